"""Test kafkajs, the client of most Node programs."""

import time

from kserver.wire.special_offsets import EARLIEST, LATEST
from tests.integration.clients.client import Record
from tests.integration.clients.promises import (
    ODD,
    Administers,
    Produces,
    Survives,
    write,
    written,
)
from tests.support.brokers import create_topic


class TestKafkajs(Produces, Administers, Survives):
    client_name = "kafkajs"
    # The codecs that need no compiler.
    codecs = ("none", "gzip", "snappy")
    # Headers are a map from names to strings or buffers, whose order is not kept.
    sendable = tuple(r for r in ODD if len(r.headers) <= 1)

    def read(self, client, broker, topic, count):
        # kafkajs consumes only in groups, so the log is read instead.
        records = written(broker, topic)
        assert len(records) == count
        return [r.value for r in records]

    def test_offsets_are_found_for_times(self, client, broker, name):
        topic = create_topic(broker.address, name)
        now_ms = int(time.time() * 1000)
        write(broker, topic, [Record(b"x", timestamp=now_ms + 10 * n) for n in range(10)])
        times = [EARLIEST, LATEST, now_ms - 1, now_ms + 35, now_ms + 90, now_ms + 91]
        # For a time after the last record kafkajs returns the end offset.
        assert client.offsets(topic, 0, times) == [0, 10, 0, 4, 9, 10]
