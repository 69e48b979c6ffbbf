"""kcat, the shell's way to librdkafka; Debian's is of 2021."""

from tests.integration.clients.promises import ODD, Consumes, Produces, Survives
from tests.support.brokers import create_topic


class TestKcat(Produces, Consumes, Survives):
    client_name = "kcat"
    # On its command line a header is text, and never null.
    # To it a key that is empty, or has a zero byte, is no key, and nothing at all is no record.
    sendable = tuple(
        r
        for r in ODD
        if (r.key or r.value)
        and r.key != b""
        and b"\0" not in (r.key or b"")
        and all(value and value.isascii() for _, value in r.headers)
    )
    # It has no option for them.
    test_a_producers_timestamps_reach_the_log = None
    # It would be a hundred processes.
    test_a_hundred_partitions_take_a_record_each = None

    def test_topics_and_partitions_are_listed(self, client, broker, name):
        topic = create_topic(broker.address, name, partitions=3)
        assert topic in client.topics()
        assert client.partitions(topic) == 3
