"""Test Apache's own client, of the two most common releases."""

from kserver.errors import ErrorCode
from tests.integration.clients.promises import Promises


class Java(Promises):
    # The client waits for the topic's metadata until it gives up.
    unknown_topic_code = ErrorCode.request_timed_out.value


class TestJava43(Java):
    client_name = "java-4.3.1"


class TestJava39(Java):
    client_name = "java-3.9.2"
