"""Test aiokafka, a client for asyncio."""

from kserver.errors import ErrorCode
from tests.integration.clients.promises import ODD, Promises


class TestAiokafka(Promises):
    client_name = "aiokafka"
    # aiokafka rejects records whose key and value are both null.
    sendable = tuple(r for r in ODD if r.key is not None or r.value is not None)
    # aiokafka waits for the topic's metadata until it gives up.
    invalid_topic_code = ErrorCode.unknown_topic_or_partition.value
