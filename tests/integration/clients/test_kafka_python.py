"""Test kafka-python, which implements the protocol in pure Python."""

from kserver.errors import ErrorCode
from tests.integration.clients.promises import ODD, Promises


class TestKafkaPython(Promises):
    client_name = "kafka-python"
    # kafka-python rejects records whose key and value are both null, and null header values.
    sendable = tuple(
        r
        for r in ODD
        if not (r.key is None and r.value is None) and None not in dict(r.headers).values()
    )
    # kafka-python waits for the topic's metadata until it gives up.
    unknown_topic_code = ErrorCode.request_timed_out.value
    # kafka-python rejects such names itself.
    test_an_invalid_topic_name_is_refused_and_never_made = None
