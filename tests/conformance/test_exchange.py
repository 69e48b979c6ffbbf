"""Test that Apache's broker continues with partitions that ours wrote, and ours with Apache's."""

import shutil

import pytest

from kserver.wire.special_offsets import EARLIEST, LATEST
from tests.conformance.conftest import SEGMENTS
from tests.support import brokers

READER = "franz"
METADATA = "partition.metadata"


def adopt(filled, broker):
    """Replace the partitions of `broker`, which is stopped and has the same topics, with copies of
    another broker's partitions."""
    for topic in filled.topics:
        mine, theirs = broker.data / f"{topic}-0", filled.broker.data / f"{topic}-0"
        identity = (mine / METADATA).read_bytes()
        shutil.rmtree(mine)
        shutil.copytree(theirs, mine)
        (mine / METADATA).write_bytes(identity)


def check(catalogue, filled, broker):
    client = catalogue.open(READER, broker.address)
    for topic, count in filled.topics.items():
        assert client.offsets(topic, 0, [EARLIEST, LATEST]) == [0, count]
        read = client.consume(topic, {0: 0}, count)
        assert [r.offset for r in read] == list(range(count))
        if topic == SEGMENTS:
            assert [r.key for r in read] == [b"%d" % n for n in range(count)]
            for n in range(0, count, 37):
                # Look up by offset index, then by time index.
                (one,) = client.consume(topic, {0: n}, 1)
                assert (one.offset, one.key) == (n, b"%d" % n)
                first = next(r.offset for r in read if r.timestamp >= read[n].timestamp)
                assert client.offsets(topic, 0, [read[n].timestamp]) == [first]


@pytest.mark.parametrize(
    ("whose", "kind"),
    [("ours", "4.3.1"), ("ours", "3.9.2"), ("apaches", brokers.OURS), ("ours", brokers.OURS)],
)
def test_a_broker_goes_on_where_another_stopped_or_was_killed(
    request, catalogue, tmp_path, whose, kind
):
    filled = request.getfixturevalue(whose)
    with brokers.running(kind, tmp_path / "broker") as broker:
        for topic in filled.topics:
            brokers.create_topic(broker.address, topic)
        broker.stop()
        adopt(filled, broker)
        broker.start()  # indexes and snapshots are used as they are
        check(catalogue, filled, broker)
        for topic, count in filled.topics.items():
            assert brokers.append(broker.address, topic, [(1, b"k", b"more", ())]) == count
        broker.kill()
        broker.start()  # recovery checks every batch and rebuilds every index
        more = filled._replace(topics={t: n + 1 for t, n in filled.topics.items()})
        client = catalogue.open(READER, broker.address)
        for topic, count in more.topics.items():
            assert client.offsets(topic, 0, [EARLIEST, LATEST]) == [0, count]
            assert len(client.consume(topic, {0: 0}, count)) == count
