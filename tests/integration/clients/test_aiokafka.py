"""aiokafka, for asyncio."""

from kserver.errors import ErrorCode
from tests.integration.clients.promises import ODD, Promises


class TestAiokafka(Promises):
    client_name = "aiokafka"
    # It takes no record that is null in key and value.
    sendable = tuple(r for r in ODD if r.key is not None or r.value is not None)
    # It waits for a topic's metadata until it gives up.
    invalid_topic_code = ErrorCode.unknown_topic_or_partition.value
