"""Test that every client reads what every other client has written, in every codec."""

import pytest

from tests.integration.clients.catalogue import NODE, READERS, WRITERS
from tests.integration.clients.client import Record
from tests.integration.clients.promises import CODECS, contents
from tests.support.brokers import create_topic

CODECS_OF = {NODE: ("none", "gzip", "snappy")}
"""Codecs of clients that do not support all."""


def records(writer, codec):
    return [
        Record(f"{writer} {codec} {n} ".encode() * 20, key=b"%d" % n, headers=(("h", b"v"),))
        for n in range(5)
    ]


@pytest.fixture(scope="module")
def written(catalogue, broker):
    """written(writer) returns the topic with all records of that writer, written at the first
    call."""
    topics = {}

    def topic_of(writer):
        if writer not in topics:
            client = catalogue.open(writer, broker.address)
            topic = create_topic(broker.address, f"across-{writer}")
            for codec in CODECS_OF.get(writer, CODECS):
                client.produce(topic, records(writer, codec), codec=codec)
            topics[writer] = topic
        return topics[writer]

    return topic_of


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_one_writes_another_reads(catalogue, broker, written, writer, reader):
    expected = [r for codec in CODECS_OF.get(writer, CODECS) for r in records(writer, codec)]
    client = catalogue.open(reader, broker.address)
    read = client.consume(written(writer), {0: 0}, len(expected))
    assert contents(read) == contents(expected)
    assert [r.offset for r in read] == list(range(len(expected)))
