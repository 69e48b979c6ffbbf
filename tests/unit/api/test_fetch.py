"""A fetch answer is written by hand: kio must read it in every version."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from kserver.api import fetch
from kserver.errors import ErrorCode
from kserver.log.transaction_index import AbortedTransaction
from kserver.metadata import NO_ID
from kserver.replica.fetch import Diverging, Read
from kserver.replica.fetch_session import Fetching, FetchSession, Wanted
from kserver.wire.codec import RequestHeader, read_response
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
        Wanted(name, uuid.uuid5(NO_ID, name), draw(st.integers(0, 9)), -1, 0, -1, -1, 100),
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
        draw(st.none() | st.builds(Diverging, st.integers(0, 9), st.integers(0, 99))),
    )


def written(version, fetching, given, error=ErrorCode.none):
    out = fetch._write(RequestHeader(1, version, 5, None), fetching, given, error)
    parts = out if isinstance(out, list) else [out]
    whole = b"".join(p if isinstance(p, bytes) else p.read() for p in parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    correlation_id, answer = read_response(1, version, memoryview(whole)[4:])
    assert correlation_id == 5
    return answer


@given(st.sampled_from(fetch.VERSIONS), st.lists(reads(), max_size=6))
def test_what_is_written_kio_reads(version, given_reads):
    answer = written(version, Fetching([], None, False), given_reads)
    got = [
        (topic.topic_id if version >= 13 else topic.topic, p)
        for topic in answer.responses
        for p in topic.partitions
    ]
    for (topic, partition), wanted in zip(got, given_reads, strict=True):
        assert topic == (wanted.wanted.topic_id if version >= 13 else wanted.wanted.topic)
        assert partition.partition_index == wanted.wanted.partition
        assert partition.error_code == wanted.error
        assert partition.high_watermark == wanted.high_watermark
        assert partition.last_stable_offset == wanted.last_stable_offset
        assert partition.records == (wanted.data.read() if wanted.data else b"")
        assert [(a.producer_id, a.first_offset) for a in partition.aborted_transactions] == [
            (a.producer_id, a.first_offset) for a in wanted.aborted
        ]
        if version >= 11:
            assert partition.preferred_read_replica == -1
        if version >= 12 and wanted.diverging:
            told = partition.diverging_epoch
            assert (told.epoch, told.end_offset) == wanted.diverging


@given(st.sampled_from([v for v in fetch.VERSIONS if v >= 7]))
def test_a_session_error_is_the_whole_answers(version):
    answer = written(version, Fetching([], None, False), [], ErrorCode.fetch_session_id_not_found)
    assert answer.error_code is ErrorCode.fetch_session_id_not_found
    assert answer.responses == ()


def test_a_session_is_told_only_what_changed():
    wanted = [Wanted("t", None, n, -1, 0, -1, -1, 100) for n in range(3)]
    session = FetchSession(7, 0, 0)
    session.update(wanted, ())
    idle = [Read(w, high_watermark=10, last_stable_offset=10, log_start_offset=0) for w in wanted]

    def told(incremental, given_reads):
        answer = written(11, Fetching(wanted, session, incremental), given_reads)
        assert answer.session_id == 7
        return [p.partition_index for topic in answer.responses for p in topic.partitions]

    assert told(False, idle) == [0, 1, 2]
    assert told(True, idle) == []
    assert told(True, [idle[0], idle[1]._replace(high_watermark=11), idle[2]]) == [1]
    failed = idle[2]._replace(error=ErrorCode.not_leader_or_follower)
    assert told(True, [idle[0], failed]) == [2]
    assert told(True, [idle[0], failed]) == [2]
    assert told(True, [idle[2]]) == [2], "the error is gone: the client must be told"
