"""Test Fetch requests, in every served version, against our broker or Apache's."""

import struct
import time
import uuid

import pytest

from kserver.api import fetch as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches
from tests.contract.api.calls import (
    FIRST_WITH_TOPIC_IDS,
    UNKNOWN_TAGS,
    Topic,
    array,
    batch,
    compact,
    fetch,
    fetch_fields,
    fetch_from,
    partition_count,
    produce,
    produce_to,
    topic_id,
)
from tests.support import brokers
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
PRODUCE_VERSION = 9
NEWEST_BY_NAME = FIRST_WITH_TOPIC_IDS - 1
FIRST_FLEXIBLE, FIRST_WITH_REPLICA_STATE = 12, 15

JAVA_KNOWS = {
    ErrorCode.none,
    ErrorCode.unknown_server_error,
    ErrorCode.offset_out_of_range,
    ErrorCode.corrupt_message,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_leader_or_follower,
    ErrorCode.replica_not_available,
    ErrorCode.topic_authorization_failed,
    ErrorCode.kafka_storage_error,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_not_available,
    ErrorCode.unknown_topic_id,
    ErrorCode.inconsistent_topic_id,
}
"""Partition errors that Java's consumer can handle; any other ends its poll."""


def versions_since(first):
    return pytest.mark.parametrize("version", [v for v in VERSIONS if v >= first])


def values(records):
    return [r.value for b in batches(records) for r in b.records()]


@every_version
def test_what_was_produced_comes_back_with_its_offsets(client, topic, version):
    sent = batch(b"a", b"b")
    produce(client, PRODUCE_VERSION, topic, sent)
    produce(client, PRODUCE_VERSION, topic, batch(b"c"))
    answer = fetch(client, version, topic, 0)
    assert answer.error_code is ErrorCode.none
    first, second = batches(answer.records)
    assert [r.offset for b in (first, second) for r in b.records()] == [0, 1, 2]
    assert bytes(first.buffer)[21:] == sent[21:]
    assert first.is_valid_crc()
    assert first.leader_epoch == 0


@every_version
def test_offsets_of_a_partition_are_never_unknown(client, topic, version):
    for produced in (0, 1):
        answer = fetch(client, version, topic, 0)
        assert (answer.high_watermark, answer.last_stable_offset) == (produced, produced)
        if version >= 5:
            assert answer.log_start_offset == 0
        produce(client, PRODUCE_VERSION, topic, batch(b"a"))


@every_version
def test_no_records_are_empty_and_not_null(client, topic, version):
    assert fetch(client, version, topic, 0).records == b""


@every_version
def test_an_offset_inside_a_batch_gets_the_whole_batch(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a", b"b", b"c"))
    produce(client, PRODUCE_VERSION, topic, batch(b"d"))
    assert values(fetch(client, version, topic, 2).records) == [b"a", b"b", b"c", b"d"]
    assert values(fetch(client, version, topic, 3).records) == [b"d"]


@every_version
@pytest.mark.parametrize("offset", [2, 1000, -1, 2**62])
def test_an_offset_out_of_range_is_refused(client, topic, version, offset):
    produce(client, PRODUCE_VERSION, topic, batch(b"a"))
    answer = fetch(client, version, topic, offset)
    assert answer.error_code is ErrorCode.offset_out_of_range
    assert not answer.records


@every_version
def test_the_first_batch_comes_whole_however_small_the_limits(client, make_topic, version):
    topic = make_topic(partitions=2)
    big = {p: batch(b"x" * 50_000) for p in (0, 1)}
    produce_to(client, PRODUCE_VERSION, topic, big)
    produce_to(client, PRODUCE_VERSION, topic, big)
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}):
        answers = fetch_from(client, version, topic, {0: 0, 1: 0}, **limits)
        sizes = [len(answers[p].records or b"") for p in (0, 1)]
        assert sizes == [len(big[0]), 0], limits


@every_version
def test_the_answer_of_many_partitions_stays_within_max_bytes(client, make_topic, version):
    topic = make_topic(partitions=5)
    for _ in range(3):
        produce_to(client, PRODUCE_VERSION, topic, {p: batch(b"x" * 1000) for p in range(5)})
    limit = 4000
    answers = fetch_from(client, version, topic, dict.fromkeys(range(5), 0), max_bytes=limit)
    sizes = [len(answers[p].records or b"") for p in range(5)]
    assert 0 < sum(sizes) <= limit
    answers = fetch_from(
        client, version, topic, dict.fromkeys(range(5), 0), partition_max_bytes=1500
    )
    assert all(0 <= len(answers[p].records or b"") <= 1500 for p in range(5))


@versions_since(FIRST_FLEXIBLE)
def test_tagged_fields_that_nobody_knows_are_passed_over(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a", b"b"))
    named = compact(topic.name.encode()) if version < FIRST_WITH_TOPIC_IDS else topic.id.bytes
    wanted = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1 << 20) + UNKNOWN_TAGS
    replica = struct.pack(">i", -1) if version < FIRST_WITH_REPLICA_STATE else b""
    body = (
        *(replica, struct.pack(">iiibii", 0, 1, 1 << 20, 0, 0, -1)),
        *(array(named + array(wanted) + UNKNOWN_TAGS), array(), compact(b"rack"), UNKNOWN_TAGS),
    )
    answer = client.call_bytes(KEY, version, b"".join(body))
    (told,) = answer.responses[0].partitions
    assert (told.error_code, values(told.records)) == (ErrorCode.none, [b"a", b"b"])


@every_version
def test_an_unknown_topic_is_named_as_unknown(client, version):
    unknown = Topic("missing", uuid.uuid4())
    answer = fetch(client, version, unknown, 0)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    assert answer.error_code is (
        ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    )
    assert not answer.records


@every_version
def test_an_unknown_partition_is_named_as_unknown(client, topic, version):
    answer = fetch_from(client, version, topic, {7: 0})[7]
    assert answer.error_code is ErrorCode.unknown_topic_or_partition


@versions_since(FIRST_WITH_TOPIC_IDS)
def test_each_unknown_topic_id_is_answered_as_its_own(client, version):
    unknown = [Topic("missing", uuid.uuid4()) for _ in range(2)]
    asked = [fetch_fields(version, one, {0: 0}) for one in unknown]
    asked[0]["topics"] += asked[1]["topics"]
    answer = client.call(KEY, version, **asked[0])
    told = {
        topic.topic_id: [p.partition_index for p in topic.partitions] for topic in answer.responses
    }
    assert told == {one.id: [0] for one in unknown}


@versions_since(FIRST_WITH_TOPIC_IDS)
def test_the_zero_topic_id_is_unknown(client, version):
    answer = fetch(client, version, Topic("", uuid.UUID(int=0)), 0)
    assert answer.error_code is ErrorCode.unknown_topic_id


@every_version
def test_no_refusal_is_one_that_java_does_not_know(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a"))
    unknown = Topic("missing", uuid.uuid4())
    told = [
        fetch(client, version, unknown, 0),
        fetch_from(client, version, topic, {-1: 0})[-1],
        fetch(client, version, topic, 99),
        fetch(client, version, topic, 0, current_leader_epoch=99),
        fetch(client, version, topic, 0, max_bytes=-1),
        fetch(client, version, topic, 0, partition_max_bytes=-1),
    ]
    assert {answer.error_code for answer in told} <= JAVA_KNOWS


@every_version
def test_who_wants_no_bytes_does_not_wait(client, topic, version):
    began = time.monotonic()
    assert fetch(client, version, topic, 0, min_bytes=0, max_wait_ms=20_000).records == b""
    assert time.monotonic() - began < 10


@every_version
def test_waits_for_the_first_byte_and_wakes_with_it(broker, client, topic, version):
    correlation_id = client.send(
        KEY, version, **fetch_fields(version, topic, {0: 0}, max_wait_ms=20_000)
    )
    began = time.monotonic()
    with WireClient(broker.address) as producer:
        produce(producer, PRODUCE_VERSION, topic, batch(b"a"))
    answer = client.receive(KEY, version, correlation_id)
    assert values(answer.responses[0].partitions[0].records) == [b"a"]
    assert time.monotonic() - began < 10


@every_version
def test_waits_no_longer_than_it_was_told(client, topic, version):
    began = time.monotonic()
    answer = fetch(client, version, topic, 0, max_wait_ms=100)
    waited_s = time.monotonic() - began
    assert answer.error_code is ErrorCode.none
    assert 0.09 <= waited_s < 5


@every_version
def test_min_bytes_counts_over_all_partitions(broker, client, make_topic, version):
    topic = make_topic(partitions=2)
    size = len(batch(b"a"))
    asked = fetch_fields(
        version, topic, {0: 0, 1: 0}, max_wait_ms=20_000, min_bytes=2 * size, max_bytes=1 << 20
    )
    correlation_id = client.send(KEY, version, **asked)
    with WireClient(broker.address) as producer:
        for partition in (0, 1):
            produce_to(producer, PRODUCE_VERSION, topic, {partition: batch(b"a")})
    answer = client.receive(KEY, version, correlation_id)
    sizes = [len(p.records) for p in answer.responses[0].partitions]
    assert sizes == [size, size]


@every_version
@pytest.mark.usefixtures("only_ours")
def test_a_topic_that_is_deleted_wakes_who_waits_for_it(broker, client, topic, version):
    asked = fetch_fields(version, topic, {0: 0}, max_wait_ms=20_000)
    correlation_id = client.send(KEY, version, **asked)
    with WireClient(broker.address) as admin:
        admin.call(20, 5, topic_names=[topic.name])
    began = time.monotonic()
    answer = client.receive(KEY, version, correlation_id)
    assert answer.responses[0].partitions[0].error_code in (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.not_leader_or_follower,
    )
    assert time.monotonic() - began < 10


@versions_since(9)
def test_another_leader_epoch_than_the_clients_is_told(client, topic, version):
    answer = fetch(client, version, topic, 0, current_leader_epoch=5)
    assert answer.error_code is ErrorCode.unknown_leader_epoch
    assert fetch(client, version, topic, 0, current_leader_epoch=0).error_code is ErrorCode.none


@every_version
def test_read_committed_gets_what_is_not_transactional(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a"))
    answer = fetch(client, version, topic, 0, isolation_level=1)
    assert values(answer.records) == [b"a"]
    assert answer.aborted_transactions == ()


@every_version
@pytest.mark.usefixtures("only_ours")
def test_a_client_that_poses_as_a_broker_gets_nothing(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a"))
    posing = (
        {"replica_id": 2}
        if version < 15
        else {"replica_state": {"replica_id": 2, "replica_epoch": -1}}
    )
    answer = fetch(client, version, topic, 0, **posing)
    assert answer.error_code is ErrorCode.not_leader_or_follower
    assert not answer.records


@every_version
def test_aborted_transactions_are_null_unless_they_were_asked_for(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a"))
    assert fetch(client, version, topic, 0).aborted_transactions is None
    committed = fetch(client, version, topic, 0, isolation_level=1)
    assert committed.aborted_transactions == ()


@every_version
def test_out_of_range_tells_no_offsets(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a"))
    answer = fetch(client, version, topic, 5)
    assert answer.error_code is ErrorCode.offset_out_of_range
    assert answer.high_watermark == -1


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 9])
def test_any_negative_epoch_of_the_leader_is_none(client, topic, version):
    produce(client, PRODUCE_VERSION, topic, batch(b"a"))
    for_topic = fetch_fields(version, topic, {0: 0})
    for_topic["topics"][0]["partitions"][0]["current_leader_epoch"] = -2
    (answer,) = client.call(KEY, version, **for_topic).responses
    assert answer.partitions[0].error_code is ErrorCode.none


@versions_since(7)
def test_a_session_tells_only_what_changed(client, make_topic, version):
    topic = make_topic(partitions=3)

    def ask(session_id, epoch, offsets, **fields):
        return client.call(
            KEY,
            version,
            **fetch_fields(
                version, topic, offsets, session_id=session_id, session_epoch=epoch, **fields
            ),
        )

    def told(answer):
        return {
            p.partition_index: values(p.records) for t in answer.responses for p in t.partitions
        }

    full = ask(0, 0, {0: 0, 1: 0, 2: 0})
    assert full.session_id > 0
    assert told(full) == {0: [], 1: [], 2: []}
    assert told(ask(full.session_id, 1, {})) == {}
    produce_to(client, PRODUCE_VERSION, topic, {1: batch(b"a")})
    assert told(ask(full.session_id, 2, {})) == {1: [b"a"]}
    assert told(ask(full.session_id, 3, {1: 1})) == {}
    # Partitions removed from the session are not returned any more.
    named = {"topic_id": topic.id} if version >= FIRST_WITH_TOPIC_IDS else {"topic": topic.name}
    forgotten = [named | {"partitions": [2]}]
    produce_to(client, PRODUCE_VERSION, topic, {0: batch(b"b"), 2: batch(b"c")})
    assert told(ask(full.session_id, 4, {}, forgotten_topics_data=forgotten)) == {0: [b"b"]}


@versions_since(FIRST_WITH_TOPIC_IDS)
@pytest.mark.parametrize("names_again", [False, True])
def test_a_session_gives_nothing_of_the_next_topic_of_a_name(
    broker, client, topic, version, names_again
):
    def ask(session_id, epoch, offsets):
        fields = {"session_id": session_id, "session_epoch": epoch}
        return client.call(KEY, version, **fetch_fields(version, topic, offsets, **fields))

    session_id = ask(0, 0, {0: 0}).session_id
    client.call(20, 5, topic_names=[topic.name], timeout=milliseconds(30_000))
    until(lambda: partition_count(client, topic.name) is None)
    brokers.create_topic(broker.address, topic.name, 1)
    next_topic = Topic(topic.name, topic_id(client, topic.name))
    assert next_topic.id != topic.id
    produce(client, PRODUCE_VERSION, next_topic, batch(b"of the next"))
    answer = ask(session_id, 1, {0: 0} if names_again else {})
    (partition,) = answer.responses[0].partitions
    assert partition.error_code is ErrorCode.inconsistent_topic_id
    assert not partition.records


@versions_since(7)
def test_a_session_tells_that_the_log_begins_later(client, topic, version):
    def ask(session_id, epoch, offsets):
        fields = {"session_id": session_id, "session_epoch": epoch}
        answer = client.call(KEY, version, **fetch_fields(version, topic, offsets, **fields))
        told = [p.log_start_offset for t in answer.responses for p in t.partitions]
        return answer.session_id, told

    produce(client, PRODUCE_VERSION, topic, batch(b"a", b"b"))
    session_id, told = ask(0, 0, {0: 2})
    assert told == [0]
    assert ask(session_id, 1, {}) == (session_id, [])
    deleted = {"name": topic.name, "partitions": [{"partition_index": 0, "offset": 1}]}
    client.call(ApiKey.DELETE_RECORDS, 2, topics=[deleted], timeout=milliseconds(30_000))
    assert ask(session_id, 2, {}) == (session_id, [1])
    assert ask(session_id, 3, {}) == (session_id, [])


@versions_since(FIRST_FLEXIBLE)
def test_a_session_sends_the_offsets_again_once_the_log_no_longer_diverges(
    kind, client, topic, version
):
    def ask(session_id, epoch, offset):
        fields = {"session_id": session_id, "session_epoch": epoch, "last_fetched_epoch": 0}
        answer = client.call(KEY, version, **fetch_fields(version, topic, {0: offset}, **fields))
        told = [
            (p.diverging_epoch.end_offset, p.high_watermark)
            for t in answer.responses
            for p in t.partitions
        ]
        return answer.session_id, told

    produce(client, PRODUCE_VERSION, topic, batch(b"a", b"b"))
    session_id, told = ask(0, 0, 5)
    assert told == [(2, 2)]
    assert ask(session_id, 1, 5) == (session_id, [(2, 2)])
    # From Apache, a follower that truncated learns the high watermark with the next records only.
    sent = [(-1, 2)] if kind == brokers.OURS else []
    assert ask(session_id, 2, 2) == (session_id, sent)
    assert ask(session_id, 3, 2) == (session_id, [])


@versions_since(7)
def test_a_session_that_is_unknown_or_out_of_step_must_begin_anew(client, topic, version):
    def ask(session_id, epoch, offsets):
        fields = {"session_id": session_id, "session_epoch": epoch}
        return client.call(KEY, version, **fetch_fields(version, topic, offsets, **fields))

    full = ask(0, 0, {0: 0})
    assert ask(full.session_id, 5, {}).error_code is ErrorCode.invalid_fetch_session_epoch
    assert ask(full.session_id ^ 1, 1, {}).error_code is ErrorCode.fetch_session_id_not_found
    final = ask(full.session_id, -1, {0: 0})
    assert (final.error_code, final.session_id) == (ErrorCode.none, 0)
    assert ask(full.session_id, 1, {}).error_code is ErrorCode.fetch_session_id_not_found


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_every_offset_of_a_log_of_many_segments_can_be_read(client, make_topic, version):
    topic = make_topic(segment_bytes=1 << 20, index_interval_bytes=4096)
    count = 350
    for n in range(count):
        produce(client, PRODUCE_VERSION, topic, batch(b"%05d" % n + b"x" * 10_000))
    offset, got = 0, []
    while offset < count:
        read = list(batches(fetch(client, version, topic, offset).records))
        assert read[0].base_offset == offset
        got += [r.value[:5] for b in read for r in b.records()]
        offset = read[-1].next_offset
    assert got == [b"%05d" % n for n in range(count)]
    for offset in range(0, count, 7):
        first = next(batches(fetch(client, version, topic, offset, max_bytes=1).records))
        assert first.base_offset == offset
