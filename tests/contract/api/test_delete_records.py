"""Test DeleteRecords requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import delete_records as module
from kserver.errors import ErrorCode
from kserver.log.checkpoint import LOG_STARTS, decode_offsets
from kserver.model import TopicPartition
from kserver.wire.batch import encode_batch
from tests.contract.api.calls import batch, fetch, produce
from tests.support import brokers
from tests.support.wire_client import WireClient, milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
newest = max(VERSIONS)


def delete(client, version, topic, offsets):
    """Return (error code, low watermark) of each partition."""
    asked = [{"partition_index": p, "offset": offset} for p, offset in offsets.items()]
    answer = client.call(
        KEY,
        version,
        topics=[{"name": topic, "partitions": asked}],
        timeout=milliseconds(30_000),
    )
    return {p.partition_index: (p.error_code, p.low_watermark) for p in answer.topics[0].partitions}


@pytest.fixture
def filled(make_topic, client):
    """A topic of one partition with ten records in five batches."""
    topic = make_topic()
    for n in range(5):
        produce(client, 9, topic, batch(b"%d" % (2 * n), b"%d" % (2 * n + 1)))
    return topic


@every_version
def test_the_log_starts_where_it_was_asked_to(client, filled, version):
    name = filled.name
    assert delete(client, version, name, {0: 3}) == {0: (ErrorCode.none, 3)}
    assert fetch(client, 12, filled, 2).error_code is ErrorCode.offset_out_of_range
    assert fetch(client, 12, filled, 3).log_start_offset == 3
    # The log start offset never moves back.
    assert delete(client, version, name, {0: 1}) == {0: (ErrorCode.none, 3)}
    assert delete(client, version, name, {0: -1}) == {0: (ErrorCode.none, 10)}
    answer = fetch(client, 12, filled, 10)
    assert (answer.error_code, answer.records) in ((ErrorCode.none, None), (ErrorCode.none, b""))
    assert produce(client, 9, filled, batch(b"on")).base_offset == 10


@every_version
@pytest.mark.parametrize("offset", [11, -2])
def test_an_offset_that_is_not_there_is_out_of_range(client, filled, version, offset):
    out_of_range = {0: (ErrorCode.offset_out_of_range, -1)}
    assert delete(client, version, filled.name, {0: offset}) == out_of_range
    assert fetch(client, 12, filled, 0).log_start_offset == 0


@every_version
def test_a_partition_or_topic_that_is_not_there_is_told_beside_others(client, filled, version):
    found = delete(client, version, filled.name, {0: 1, 1: 1})
    assert found == {0: (ErrorCode.none, 1), 1: (ErrorCode.unknown_topic_or_partition, -1)}
    unknown = {0: (ErrorCode.unknown_topic_or_partition, -1)}
    assert delete(client, version, "missing", {0: 1}) == unknown


@pytest.mark.parametrize(
    ("policy", "code"),
    [("compact", ErrorCode.policy_violation), ("compact,delete", ErrorCode.none)],
)
def test_a_topic_that_is_only_compacted_keeps_its_records(client, make_topic, policy, code):
    topic = make_topic(cleanup_policy=policy)
    keyed = encode_batch([(0, b"key", b"value", ()), (1, b"key", b"value", ())])
    produce(client, 9, topic, keyed)
    assert delete(client, newest, topic.name, {0: 1})[0][0] is code


def test_the_start_is_on_disk_when_it_is_answered(only_ours, broker, client, filled):
    delete(client, newest, filled.name, {0: 7})
    path = broker.data / LOG_STARTS
    stored = decode_offsets(path.read_bytes(), str(path))
    assert stored[TopicPartition(filled.name, 0)] == 7


def test_whole_segments_below_the_start_go_and_it_stays_after_a_kill(only_ours, tmp_path):
    settings = {"log.retention.check.interval.ms": 100}
    with brokers.BrokerProcess(tmp_path, settings) as broker:
        name = brokers.create_topic(broker.address, "t", segment_bytes=1000, retention_ms=-1)
        for n in range(10):
            brokers.append(broker.address, name, [(0, None, b"%d" % n * 800, ())])
        segments = sorted((broker.data / "t-0").glob("*.log"))
        assert len(segments) == 10
        with WireClient(broker.address) as client:
            assert delete(client, newest, name, {0: 5}) == {0: (ErrorCode.none, 5)}
        brokers.until(lambda: sorted((broker.data / "t-0").glob("*.log")) == segments[5:])
        with WireClient(broker.address) as client:
            assert delete(client, newest, name, {0: 8}) == {0: (ErrorCode.none, 8)}
        broker.kill()
        broker.start()
        with WireClient(broker.address) as client:
            assert delete(client, newest, name, {0: 0}) == {0: (ErrorCode.none, 8)}
