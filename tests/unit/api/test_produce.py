"""Produce is read and written by hand: kio, which is not, must agree in every version."""

import datetime
import uuid
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.api import produce, produce_bytes
from kserver.errors import ErrorCode, ProtocolError
from kserver.metadata import NO_ID
from kserver.wire.codec import RequestHeader, read_request_header, read_response, write_request
from kserver.wire.versions import request

versions = st.sampled_from(produce.VERSIONS)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
ids = st.uuids().filter(lambda u: u != NO_ID)
partitions = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.none() | st.binary(max_size=300)), max_size=4
)
topics = st.lists(st.tuples(names, ids, partitions), max_size=4, unique_by=lambda t: t[0])


def frame_of(version, given, acks=-1, timeout_ms=1500, transactional_id=None):
    build = request(0, version)
    by_id = version >= produce_bytes.FIRST_WITH_TOPIC_IDS
    return memoryview(
        write_request(
            build(
                transactional_id=transactional_id,
                acks=acks,
                timeout=datetime.timedelta(milliseconds=timeout_ms),
                topic_data=[
                    build.topic_data(
                        name=name,
                        topic_id=topic_id,
                        partition_data=[
                            build.topic_data.partition_data(index=i, records=r) for i, r in parts
                        ],
                    )
                    for name, topic_id, parts in given
                ],
            ),
            7,
            "client",
        )
    )[4:], by_id


@given(
    versions,
    topics,
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 2**31 - 1),
    st.none() | st.text(max_size=200),
)
def test_what_kio_writes_is_read(version, given_topics, acks, timeout_ms, transactional_id):
    frame, by_id = frame_of(version, given_topics, acks, timeout_ms, transactional_id)
    header, at = read_request_header(frame)
    assert header == RequestHeader(0, version, 7, "client")
    known = {topic_id: name for name, topic_id, _ in given_topics}
    read = produce_bytes.read(frame, at, version, known)
    assert read[:3] == (acks, timeout_ms, transactional_id)
    assert [
        (name, raw, [(i, bytes(records)) for i, records in parts]) for name, raw, parts in read[3]
    ] == [
        (name, topic_id.bytes if by_id else name.encode(), [(i, r or b"") for i, r in parts])
        for name, topic_id, parts in given_topics
    ]


def test_an_unknown_topic_id_is_read_as_a_topic_without_a_name():
    frame, _ = frame_of(13, [("t", uuid.uuid4(), [(0, b"x")])])
    _, at = read_request_header(frame)
    ((name, _, _),) = produce_bytes.read(frame, at, 13, {})[3]
    assert name is None


@given(versions, topics, st.data())
def test_a_request_cut_anywhere_or_changed_is_read_or_refused(version, given_topics, data):
    frame, _ = frame_of(version, given_topics)
    changed = bytearray(frame[: data.draw(st.integers(0, len(frame)))])
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        header, at = read_request_header(memoryview(changed))
        if header.api_version in produce.VERSIONS:
            produce_bytes.read(memoryview(changed), at, header.api_version, {})
    except ProtocolError:
        pass


codes = st.sampled_from([ErrorCode.invalid_record, ErrorCode.not_leader_or_follower])
record_errors = st.lists(st.tuples(st.integers(0, 1000), st.text(max_size=40)), max_size=3).map(
    tuple
)


class Result(NamedTuple):
    """What one partition is to be answered."""

    partition: int
    error: ErrorCode
    base_offset: int = -1
    append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()

    def written(self, version):
        index, code, offset, time, start, message, errors = self
        if code is ErrorCode.none:
            return produce_bytes.appended(version, index, offset, time, start)
        return produce_bytes.failed(version, index, code, message, errors)


@st.composite
def results(draw):
    partition = draw(st.integers(0, 2**31 - 1))
    if draw(st.booleans()):
        message = draw(st.none() | st.text(max_size=200))
        return Result(partition, draw(codes), message=message, record_errors=draw(record_errors))
    offset, start = draw(st.integers(-1, 2**63 - 1)), draw(st.integers(-1, 2**63 - 1))
    time = draw(st.integers(-1, 253_402_300_799_999))
    return Result(partition, ErrorCode.none, offset, time, start)


@given(versions, st.lists(st.tuples(names, ids, st.lists(results(), max_size=4)), max_size=4))
def test_what_is_written_kio_reads(version, answered):
    by_id = version >= produce_bytes.FIRST_WITH_TOPIC_IDS
    frame = produce_bytes.write(
        RequestHeader(0, version, 99, None),
        [
            (i.bytes if by_id else n.encode(), [result.written(version) for result in given])
            for n, i, given in answered
        ],
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, answer = read_response(0, version, memoryview(frame)[4:])
    assert correlation_id == 99
    for topic, (name, topic_id, expected) in zip(answer.responses, answered, strict=True):
        assert (topic.topic_id == topic_id) if by_id else (topic.name == name)
        for got, wanted in zip(topic.partition_responses, expected, strict=True):
            assert got.index == wanted.partition
            assert got.error_code is wanted.error
            assert got.base_offset == wanted.base_offset
            if version >= 5:
                assert got.log_start_offset == wanted.log_start_offset
            if version >= 8:
                assert got.error_message == wanted.message
                assert [
                    (e.batch_index, e.batch_index_error_message) for e in got.record_errors
                ] == list(wanted.record_errors)


@pytest.mark.parametrize("version", produce.VERSIONS)
def test_trailing_garbage_in_a_count_is_refused(version):
    frame, _ = frame_of(version, [("t", uuid.uuid4(), [(0, b"abc")])])
    with pytest.raises(ProtocolError):
        produce_bytes.read(frame[:-4], read_request_header(frame)[1], version, {})
