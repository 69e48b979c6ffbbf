"""Fetch is read and written by hand: kio, which is not, must agree in every version."""

import datetime
import uuid

from hypothesis import given
from hypothesis import strategies as st

from kserver.api import fetch, fetch_bytes
from kserver.errors import ErrorCode, ProtocolError
from kserver.log.transaction_index import AbortedTransaction
from kserver.metadata import NO_ID
from kserver.replica.fetch import DivergingEpoch, Read
from kserver.replica.fetch_session import Fetching, FetchPartition, FetchSession
from kserver.wire.codec import RequestHeader, read_request_header, read_response, write_request
from kserver.wire.versions import request
from kserver.world.disk import FileRange

offsets = st.integers(-1, 2**63 - 1)


class Bytes:
    """A file of bytes, as a file range names one."""

    path = "memory"

    def __init__(self, data):
        self.data = data

    def read_at(self, position, size):
        return self.data[position : position + size]


@st.composite
def reads(draw):
    data = draw(st.none() | st.binary(min_size=1, max_size=100))
    name = draw(st.sampled_from(["a", "bb", "c.c"]))
    return Read(
        FetchPartition(name, uuid.uuid5(NO_ID, name), draw(st.integers(0, 9)), -1, 0, -1, -1, 100),
        draw(st.sampled_from([ErrorCode.none, ErrorCode.offset_out_of_range])),
        draw(offsets),
        draw(offsets),
        draw(offsets),
        None if data is None else FileRange(Bytes(b"..." + data), 3, len(data)),
        0 if data is None else len(data),
        draw(
            st.lists(
                st.builds(
                    AbortedTransaction,
                    producer_id=offsets,
                    first_offset=offsets,
                    last_offset=offsets,
                    last_stable_offset=offsets,
                ),
                max_size=2,
            )
        ),
        draw(st.none() | st.builds(DivergingEpoch, st.integers(0, 9), st.integers(0, 99))),
        preferred=draw(st.integers(-1, 9)),
    )


def parsed(version, out):
    parts = out if isinstance(out, list) else [out]
    whole = b"".join(p if isinstance(p, bytes) else p.read() for p in parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    correlation_id, answer = read_response(1, version, memoryview(whole)[4:])
    assert correlation_id == 5
    return answer


def written(version, given, session_id=0, error=ErrorCode.none):
    return parsed(version, fetch_bytes.write_response(version, 5, session_id, given, error))


@given(st.sampled_from(fetch.VERSIONS), st.lists(reads(), max_size=6))
def test_what_is_written_kio_reads(version, given_reads):
    answer = written(version, given_reads)
    got = [
        (topic.topic_id if version >= 13 else topic.topic, p)
        for topic in answer.responses
        for p in topic.partitions
    ]
    for (topic, partition), wanted in zip(got, given_reads, strict=True):
        assert topic == (wanted.fetch_info.topic_id if version >= 13 else wanted.fetch_info.topic)
        assert partition.partition_index == wanted.fetch_info.partition
        assert partition.error_code == wanted.error
        assert partition.high_watermark == wanted.high_watermark
        assert partition.last_stable_offset == wanted.last_stable_offset
        assert partition.records == (wanted.data.read() if wanted.data else b"")
        assert [(a.producer_id, a.first_offset) for a in partition.aborted_transactions] == [
            (a.producer_id, a.first_offset) for a in wanted.aborted
        ]
        if version >= 11:
            assert partition.preferred_read_replica == wanted.preferred
        if version >= 12 and wanted.diverging:
            told = partition.diverging_epoch
            assert (told.epoch, told.end_offset) == wanted.diverging


@given(st.sampled_from([v for v in fetch.VERSIONS if v >= 7]))
def test_a_session_error_is_the_whole_answers(version):
    answer = written(version, [], error=ErrorCode.fetch_session_id_not_found)
    assert answer.error_code is ErrorCode.fetch_session_id_not_found
    assert answer.responses == ()


def test_a_session_is_told_only_what_changed():
    wanted = [FetchPartition("t", None, n, -1, 0, -1, -1, 100) for n in range(3)]
    session = FetchSession(7, 0, 0)
    session.update(wanted, ())
    idle = [Read(w, high_watermark=10, last_stable_offset=10, log_start_offset=0) for w in wanted]

    def told(incremental, given_reads):
        header = RequestHeader(1, 11, 5, None)
        answer = parsed(
            11, fetch._response(header, Fetching(wanted, session, incremental), given_reads)
        )
        assert answer.session_id == 7
        return [p.partition_index for topic in answer.responses for p in topic.partitions]

    assert told(False, idle) == [0, 1, 2]
    assert told(True, idle) == []
    assert told(True, [idle[0], idle[1]._replace(high_watermark=11), idle[2]]) == [1]
    failed = idle[2]._replace(error=ErrorCode.not_leader_or_follower)
    assert told(True, [idle[0], failed]) == [2]
    assert told(True, [idle[0], failed]) == [2]
    assert told(True, [idle[2]]) == [2], "the error is gone: the client must be told"


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
i32 = st.integers(-(2**31), 2**31 - 1)
wanted_partitions = st.lists(
    st.tuples(i32, i32, offsets, i32, offsets, i32), max_size=3, unique_by=lambda p: p[0]
)
wanted_topics = st.lists(st.tuples(names, wanted_partitions), max_size=3, unique_by=lambda t: t[0])


@st.composite
def requests(draw):
    """A request as kio writes it, and what it says."""
    version = draw(st.sampled_from(fetch.VERSIONS))
    build = request(1, version)
    topics = draw(wanted_topics)
    forgotten = draw(st.lists(st.tuples(names, st.lists(i32, max_size=3)), max_size=2))
    said = {
        "replica_id": draw(st.sampled_from([-1, 0, 7])),
        "max_wait_ms": draw(st.integers(0, 2**31 - 1)),
        "min_bytes": draw(i32),
        "max_bytes": draw(i32),
        "isolation": draw(st.integers(0, 1)),
        "session_id": draw(i32),
        "session_epoch": draw(i32),
        "rack": draw(st.text(max_size=150)),
    }
    entity = build(
        replica_id=said["replica_id"],
        replica_state=build.replica_state(replica_id=said["replica_id"], replica_epoch=3),
        max_wait=datetime.timedelta(milliseconds=said["max_wait_ms"]),
        min_bytes=said["min_bytes"],
        max_bytes=said["max_bytes"],
        isolation_level=said["isolation"],
        session_id=said["session_id"],
        session_epoch=said["session_epoch"],
        rack_id=said["rack"],
        topics=[
            build.topics(
                topic=name,
                topic_id=uuid.uuid5(NO_ID, name),
                partitions=[
                    build.topics.partitions(
                        partition=index,
                        current_leader_epoch=current,
                        fetch_offset=offset,
                        last_fetched_epoch=last,
                        log_start_offset=start,
                        partition_max_bytes=limit,
                    )
                    for index, current, offset, last, start, limit in partitions
                ],
            )
            for name, partitions in topics
        ],
        forgotten_topics_data=[
            build.forgotten_topics_data(
                topic=name, topic_id=uuid.uuid5(NO_ID, name), partitions=indexes
            )
            for name, indexes in forgotten
        ],
    )
    return version, memoryview(write_request(entity, 1, "c"))[4:], said, topics, forgotten


@given(requests())
def test_what_kio_writes_is_read(given_request):
    version, frame, said, topics, forgotten = given_request
    _, at = read_request_header(frame)
    by_id = version >= 13
    known = {uuid.uuid5(NO_ID, name): name for name, _ in topics[:1]}
    got = fetch_bytes.read_request(frame, at, version, known)
    for field in ("replica_id", "max_wait_ms", "min_bytes", "max_bytes"):
        assert getattr(got, field) == said[field]
    assert got.read_committed is bool(said["isolation"])
    assert got.rack == (said["rack"] if version >= 11 else "")
    assert got.broker_epoch == (3 if version >= 15 else -1)
    if version >= 7:
        assert (got.session_id, got.session_epoch) == (said["session_id"], said["session_epoch"])
    expected = []
    for name, partitions in topics:
        topic_id = uuid.uuid5(NO_ID, name) if by_id else None
        for index, current, offset, last, start, limit in partitions:
            expected.append(
                FetchPartition(
                    known.get(topic_id) if by_id else name,
                    topic_id,
                    index,
                    current if version >= 9 else -1,
                    offset,
                    last if version >= 12 else -1,
                    start if version >= 5 else -1,
                    limit,
                )
            )
    assert got.fetch_infos == expected
    if version >= 7:
        assert got.forgotten == [
            (uuid.uuid5(NO_ID, name) if by_id else name, index)
            for name, indexes in forgotten
            for index in indexes
        ]


@given(requests(), st.data())
def test_a_request_cut_anywhere_or_changed_is_read_or_refused(given_request, data):
    version, frame, *_ = given_request
    _, at = read_request_header(frame)
    changed = bytearray(frame[: data.draw(st.integers(at, len(frame)))])
    if len(changed) > at:
        changed[data.draw(st.integers(at, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        fetch_bytes.read_request(memoryview(changed), at, version, {})
    except ProtocolError:
        pass
