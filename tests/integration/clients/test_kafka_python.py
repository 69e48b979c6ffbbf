"""kafka-python, the protocol in plain Python."""

from kserver.errors import ErrorCode
from tests.integration.clients.promises import ODD, Promises


class TestKafkaPython(Promises):
    client_name = "kafka-python"
    # It takes neither a record that is null in key and value, nor a null in a header.
    sendable = tuple(
        r
        for r in ODD
        if not (r.key is None and r.value is None) and None not in dict(r.headers).values()
    )
    # It waits for a topic's metadata until it gives up.
    unknown_topic_code = ErrorCode.request_timed_out.value
    # It refuses such names itself.
    test_an_invalid_topic_name_is_refused_and_never_made = None
