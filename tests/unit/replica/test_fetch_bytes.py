"""A follower's Fetch is written and read by hand: kio, which is not, must agree."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.api import fetch_bytes as leader
from kserver.errors import ErrorCode, ProtocolError
from kserver.log.transaction_index import AbortedTransaction
from kserver.replica import fetch_bytes
from kserver.replica.fetch import Read
from kserver.replica.fetch_bytes import FetchedPartition, FetchRequestLimits
from kserver.replica.fetch_session import FetchPartition
from kserver.replica.follower_session import PartitionKey, Position, SessionRequest
from kserver.replica.truncation import DivergingEpoch
from kserver.wire import codec
from kserver.wire.codec import read_request_header
from kserver.world.disk import FileRange

VERSIONS = range(fetch_bytes.FIRST_VERSION, fetch_bytes.LAST_VERSION + 1)
IDS = [UUID(int=n + 1) for n in range(3)]
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
keys = st.tuples(st.sampled_from([i.bytes for i in IDS]), int32)
positions = st.builds(Position, int32, int64, int32, int64)
limits = st.builds(FetchRequestLimits, int32, int32, int32, int32)


class Bytes:
    """A file of bytes, as a file range names one."""

    path = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


@given(
    st.sampled_from(VERSIONS),
    int32,
    int64,
    limits,
    st.builds(
        SessionRequest,
        int32,
        int32,
        st.dictionaries(keys, positions, max_size=6),
        st.dictionaries(keys, st.none(), max_size=6),
    ),
)
def test_kio_reads_what_is_written(
    version: int,
    replica: int,
    broker_epoch: int,
    limits: FetchRequestLimits,
    request: SessionRequest,
) -> None:
    body = fetch_bytes.write_request(version, replica, broker_epoch, limits, request)
    head = b"\0\1" + version.to_bytes(2) + bytes(4) + b"\0\1f" + b"\0"
    read = kio_request(head + body)
    told: dict[PartitionKey, Position] = {}
    for topic in read.topics:
        for p in topic.partitions:
            told[topic.topic_id.bytes, p.partition] = Position(
                p.current_leader_epoch, p.fetch_offset, p.last_fetched_epoch, p.log_start_offset
            )
            assert p.partition_max_bytes == limits.partition_max_bytes
    assert told == request.positions
    forgotten = [(t.topic_id.bytes, p) for t in read.forgotten_topics_data for p in t.partitions]
    assert set(forgotten) == request.forgotten.keys()
    assert (read.session_id, read.session_epoch) == (request.session_id, request.epoch)
    assert (read.min_bytes, read.max_bytes) == (limits.min_bytes, limits.max_bytes)
    if version < fetch_bytes.FIRST_WITH_REPLICA_STATE:
        assert read.replica_id == replica
    else:
        state = read.replica_state
        assert (state.replica_id, state.replica_epoch) == (replica, broker_epoch)


@st.composite
def reads(draw: st.DrawFn) -> Read:
    data = draw(st.none() | st.binary(min_size=1, max_size=100))
    topic_id = draw(st.sampled_from(IDS))
    aborted = st.builds(AbortedTransaction, int64, int64, int64, int64)
    return Read(
        FetchPartition("t", topic_id, draw(st.integers(0, 9)), -1, 0, -1, -1, 100),
        draw(st.sampled_from([ErrorCode.none, ErrorCode.offset_out_of_range])),
        draw(int64),
        draw(int64),
        draw(int64),
        None if data is None else FileRange(Bytes(data), 0, len(data)),
        0 if data is None else len(data),
        draw(st.none() | st.lists(aborted, max_size=2)),
        draw(st.none() | st.builds(DivergingEpoch, st.integers(0, 9), st.integers(0, 99))),
    )


@given(st.sampled_from(VERSIONS), int32, st.lists(reads(), max_size=6))
def test_what_a_leader_writes_is_read(version: int, session_id: int, given: list[Read]) -> None:
    parts = leader.write_response(version, 5, session_id, given)
    whole = b"".join(p if isinstance(p, bytes) else p.read() for p in parts)
    answer = fetch_bytes.read_response(memoryview(whole)[4:])
    assert (answer.throttle_ms, answer.error_code, answer.session_id) == (0, 0, session_id)
    assert answer.partitions == [
        FetchedPartition(
            (one.fetch_info.topic_id.bytes, one.fetch_info.partition),  # type: ignore[union-attr]
            one.error.value,
            one.high_watermark,
            one.log_start_offset,
            memoryview(one.data.read() if one.data else b""),
            one.diverging,
        )
        for one in given
    ]
    for size in range(4, len(whole)):
        with pytest.raises(ProtocolError):
            fetch_bytes.read_response(memoryview(whole)[4:size])


def kio_request(frame: bytes) -> Any:
    header, at = read_request_header(memoryview(frame))
    return codec.read_request(header, memoryview(frame), at)
