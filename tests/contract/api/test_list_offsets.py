"""Test ListOffsets requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import list_offsets as module
from kserver.errors import ErrorCode
from kserver.wire.batch import encode_batch
from kserver.wire.compression import Compression
from kserver.wire.special_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from tests.contract.api.calls import batch, produce, produce_to

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
PRODUCE_VERSION = 9


def ask(client, version, topic, *asked, isolation_level=0, replica_id=-1):
    """Return the responses to pairs of partition and timestamp, in order."""
    partitions = [
        {"partition_index": p, "timestamp": t, "current_leader_epoch": -1} for p, t in asked
    ]
    answer = client.call(
        KEY,
        version,
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[{"name": topic.name, "partitions": partitions}],
    )
    (found,) = answer.topics
    assert found.name == topic.name
    return found.partitions


def offset(client, version, topic, timestamp):
    (found,) = ask(client, version, topic, (0, timestamp))
    assert found.error_code is ErrorCode.none
    return found.offset


@every_version
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_earliest_and_latest_of_an_empty_and_of_a_filled_log(
    client, topic, version, isolation_level
):
    for produced in (0, 3):
        if produced:
            produce(client, PRODUCE_VERSION, topic, batch(b"a", b"b", b"c"))
        for timestamp, expected in ((EARLIEST, 0), (LATEST, produced)):
            (found,) = ask(client, version, topic, (0, timestamp), isolation_level=isolation_level)
            assert (found.error_code, found.offset) == (ErrorCode.none, expected)
            assert found.timestamp == -1


@every_version
@pytest.mark.parametrize("codec", [Compression.none, Compression.gzip])
def test_a_time_finds_the_first_record_not_before_it_inside_its_batch(
    client, topic, version, codec
):
    produce(client, PRODUCE_VERSION, topic, batch(*[b"x"] * 10, timestamp=1000, compression=codec))
    produce(client, PRODUCE_VERSION, topic, batch(*[b"x"] * 10, timestamp=2000, compression=codec))
    for timestamp, expected in (
        (0, (0, 1000)),
        (1000, (0, 1000)),
        (1007, (7, 1007)),
        (1500, (10, 2000)),
        (2009, (19, 2009)),
    ):
        (found,) = ask(client, version, topic, (0, timestamp))
        assert (found.offset, found.timestamp) == expected
        if version >= 4:
            assert found.leader_epoch == 0


@every_version
def test_a_time_among_records_out_of_order_finds_the_first_that_reaches_it(client, topic, version):
    times = (5_000, 1_000, 9_000, 2_000)
    produce(
        client,
        PRODUCE_VERSION,
        topic,
        encode_batch([(time, None, b"x", ()) for time in times]),
    )
    assert [offset(client, version, topic, t) for t in (0, 5_000, 5_001, 9_000)] == [0, 0, 2, 2]


@every_version
def test_a_time_that_no_record_has_reached_finds_nothing(client, topic, version):
    for _ in range(2):
        (found,) = ask(client, version, topic, (0, 5_000))
        assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.none, -1, -1)
        produce(client, PRODUCE_VERSION, topic, batch(b"a", timestamp=1000))


@every_version
def test_special_times_are_understood_from_the_version_that_brought_them(client, topic, version):
    produce(
        client,
        PRODUCE_VERSION,
        topic,
        encode_batch([(time, None, b"x", ()) for time in (1_000, 9_000, 2_000)]),
    )
    for timestamp, expected in (
        (MAX_TIMESTAMP, (1, 9_000)),
        (EARLIEST_LOCAL, (0, -1)),
        (LATEST_TIERED, (-1, -1)),
        (EARLIEST_PENDING_UPLOAD, (-1, -1)),
    ):
        (found,) = ask(client, version, topic, (0, timestamp))
        if version < SINCE[timestamp]:
            assert found.error_code is ErrorCode.unsupported_version, timestamp
        else:
            assert found.error_code is ErrorCode.none, timestamp
            assert (found.offset, found.timestamp) == expected, timestamp


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= SINCE[MAX_TIMESTAMP]])
@pytest.mark.parametrize(
    ("times", "latest"),
    [
        ((-5, -7), (-1, -1)),
        ((-1, -1), (0, -1)),
        ((-5, 1_000, -7), (1, 1_000)),
    ],
)
def test_records_of_before_1970_have_no_time_to_be_found_by(
    client, topic, version, since_4, times, latest
):
    produce(
        client, PRODUCE_VERSION, topic, encode_batch([(time, None, b"x", ()) for time in times])
    )
    for asked, expected in (
        (MAX_TIMESTAMP, latest),
        (0, latest if latest[1] >= 0 else (-1, -1)),
        (EARLIEST, (0, -1)),
        (LATEST, (len(times), -1)),
    ):
        (found,) = ask(client, version, topic, (0, asked))
        assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.none, *expected)


@every_version
def test_a_partition_that_is_named_twice_is_refused(client, make_topic, version):
    topic = make_topic(partitions=2)
    answers = ask(client, version, topic, (0, EARLIEST), (0, LATEST), (1, LATEST))
    codes = {(a.partition_index, a.error_code) for a in answers}
    assert codes == {(0, ErrorCode.invalid_request), (1, ErrorCode.none)}


@every_version
def test_each_partition_is_answered_on_its_own(client, make_topic, version):
    topic = make_topic(partitions=2)
    produce_to(client, PRODUCE_VERSION, topic, {1: batch(b"a")})
    answers = ask(client, version, topic, (1, LATEST), (7, LATEST), (0, LATEST))
    assert {a.partition_index: (a.error_code, a.offset) for a in answers} == {
        1: (ErrorCode.none, 1),
        7: (ErrorCode.unknown_topic_or_partition, -1),
        0: (ErrorCode.none, 0),
    }


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 4])
def test_another_leader_epoch_than_the_clients_is_told(client, topic, version):
    def code(epoch):
        partition = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": epoch}
        topics = [{"name": topic.name, "partitions": [partition]}]
        answer = client.call(KEY, version, replica_id=-1, isolation_level=0, topics=topics)
        return answer.topics[0].partitions[0].error_code

    assert code(0) is ErrorCode.none
    assert code(1) is ErrorCode.unknown_leader_epoch


@every_version
def test_who_leaves_its_replica_id_0_is_answered_like_a_client(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a", b"b"))
    (found,) = ask(client, version, topic, (0, LATEST), replica_id=0)
    assert (found.error_code, found.offset) == (ErrorCode.none, 2)


@every_version
def test_a_negative_time_without_a_meaning_is_not_supported(client, topic, version):
    (found,) = ask(client, version, topic, (0, -7))
    assert found.error_code is ErrorCode.unsupported_version
