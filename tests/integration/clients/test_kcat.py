"""Test kcat, the command line of librdkafka; Debian's is from 2021."""

from tests.integration.clients.promises import ODD, Consumes, Produces, Survives
from tests.support.brokers import create_topic


class TestKcat(Produces, Consumes, Survives):
    client_name = "kcat"
    # On kcat's command line a header is text and never null. A key that is empty or contains a zero
    # byte counts as missing, and a record without key and value is not produced.
    sendable = tuple(
        r
        for r in ODD
        if (r.key or r.value)
        and r.key != b""
        and b"\0" not in (r.key or b"")
        and all(value and value.isascii() for _, value in r.headers)
    )
    # kcat has no option for timestamps.
    test_a_producers_timestamps_reach_the_log = None
    # It would need a hundred processes.
    test_a_hundred_partitions_take_a_record_each = None

    def test_topics_and_partitions_are_listed(self, client, broker, name):
        topic = create_topic(broker.address, name, partitions=3)
        assert topic in client.topics()
        assert client.partitions(topic) == 3
