"""Apache's own client, of the two releases that most programs run."""

from kserver.errors import ErrorCode
from tests.integration.clients.promises import Promises


class Java(Promises):
    # It waits for a topic's metadata until it gives up.
    unknown_topic_code = ErrorCode.request_timed_out.value


class TestJava43(Java):
    client_name = "java-4.3.1"


class TestJava39(Java):
    client_name = "java-3.9.2"
