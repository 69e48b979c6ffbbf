"""Fetch (key 1): v4-v18.

Behaviour:
- Answers once `min_bytes` are there, or an error is, or `max_wait` has passed; meanwhile it is
  parked and its connection muted.
- The first batch of the answer comes whole even if it is larger than every limit (KIP-74);
  the total over many partitions stays within max_bytes and `fetch.max.bytes`.
- Starts with the batch that holds the asked offset: clients skip what lies before it.
- Incremental sessions (KIP-227): an answer names only what changed since the last.
- Records go from the log file to the socket by sendfile; they are not read here.
- A replica id of 0 or above is refused: no broker follows this one, and only brokers may tell the
  leader how far they have come (CVE-2018-1288).
- read_committed ends at the last stable offset and lists aborted transactions; an older client
  gets an empty list, never null, and empty records, never null.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE,
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR, TOPIC_AUTHORIZATION_FAILED;
FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH for the whole answer.

Versions:
- v5 log_start_offset; v7 sessions; v9 current_leader_epoch (KIP-320); v11 rack, preferred replica
- v12 flexible, last_fetched_epoch and diverging epochs (KIP-595); v13 topic ids (KIP-516)
- v15 replica state tagged; v16 node endpoints; v17 directory ids; v18 high watermark (KIP-1166)

The answer is written by hand: kio's writer takes 13 us and copies record bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kserver.api.context import Parts, Session
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import NO_ID
from kserver.model import NO_EPOCH
from kserver.network.conversation import Answer, Part, Pending
from kserver.network.conversation import Parts as Response
from kserver.replica.fetch import Limits, NotInMemory, Read, read, warmed
from kserver.replica.fetch_session import FINAL_EPOCH, NO_SESSION, Fetching, Wanted
from kserver.wire import varint
from kserver.wire.codec import RequestHeader, read_request

KEY, VERSIONS = 1, range(4, 19)

FIRST_WITH_SESSIONS = 7
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
READ_COMMITTED = 1
NO_REPLICA = -1

_HEAD = struct.Struct(">ii")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_TOP_V7 = struct.Struct(">ihi")
# index, error code, high watermark, last stable offset, log start offset
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">iqb")


class Request:
    """One fetch on its way to its answer."""

    __slots__ = ("fetching", "header", "limits", "min_bytes", "parts", "pending")

    def __init__(self, header: RequestHeader, parts: Parts, body: Any, fetching: Fetching) -> None:
        self.header = header
        self.parts = parts
        self.fetching = fetching
        self.limits = Limits(min(body.max_bytes, parts.config.fetch_max_bytes), _is_committed(body))
        self.min_bytes: int = body.min_bytes
        self.pending = Pending(exclusive=True)

    def is_enough(self, reads: Sequence[Read]) -> bool:
        size = 0
        for one in reads:
            size += one.size
            if one.error or one.diverging:
                return True
        return size >= self.min_bytes

    def answer(self, reads: Sequence[Read]) -> Response:
        return _write(self.header, self.fetching, reads)

    def retry(self) -> bool:
        """Asked by the purgatory when a partition has changed."""
        reads = read(self.parts.replicas, self.fetching.wanted, self.limits)
        if isinstance(reads, NotInMemory):
            self.parts.spawn(self.finish_cold(reads))
            return True
        if not self.is_enough(reads):
            return False
        self.pending.complete(self.answer(reads))
        return True

    def expired(self) -> None:
        reads = read(self.parts.replicas, self.fetching.wanted, self.limits)
        if isinstance(reads, NotInMemory):
            self.parts.spawn(self.finish_cold(reads))
        else:
            self.pending.complete(self.answer(reads))

    async def finish_cold(self, cold: NotInMemory) -> None:
        """What must wait for the disk is answered with what is there by then."""
        reads = await warmed(self.parts.replicas, self.fetching.wanted, self.limits, cold)
        self.pending.complete(self.answer(reads))


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Answer:
    body = read_request(header, frame, at)
    version = header.api_version
    named = _wanted(body, version, parts)
    if _replica_id(body, version) > NO_REPLICA:
        code = ErrorCode.topic_authorization_failed
        return _write(header, Fetching(named, None, False), [Read(w, code) for w in named])
    if version < FIRST_WITH_SESSIONS or body.session_epoch == FINAL_EPOCH:
        fetching = Fetching(named, None, False)
        if version >= FIRST_WITH_SESSIONS and body.session_id != NO_SESSION:
            parts.fetch_sessions.end(body.session_id)
    else:
        try:
            fetching = parts.fetch_sessions.begin(
                body.session_id,
                body.session_epoch,
                named,
                _forgotten(body, version),
                now_ms=parts.world.clock.now_ms(),
                new_id=parts.world.random.randint(1, 2**31 - 1),
            )
        except KafkaError as error:
            return _write(header, Fetching([], None, False), [], error.code)
    request = Request(header, parts, body, fetching)
    reads = read(parts.replicas, fetching.wanted, request.limits)
    if isinstance(reads, NotInMemory):
        parts.spawn(request.finish_cold(reads))
        return request.pending
    max_wait_s = body.max_wait.total_seconds()
    if max_wait_s <= 0 or not fetching.wanted or request.is_enough(reads):
        return request.answer(reads)
    keys = [(w.topic, w.partition) for w in fetching.wanted]
    parts.purgatory.wait(keys, request.retry, parts.loop.time() + max_wait_s, request.expired)
    return request.pending


def _is_committed(body: Any) -> bool:
    return bool(body.isolation_level == READ_COMMITTED)


def _replica_id(body: Any, version: int) -> int:
    return int(body.replica_id if version < 15 else body.replica_state.replica_id)


def _wanted(body: Any, version: int, parts: Parts) -> list[Wanted]:
    wanted = []
    names = parts.metadata.current.topic_names
    for topic in body.topics:
        name: str | None
        topic_id: UUID | None = None
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id = topic.topic_id or NO_ID
            name = names.get(topic_id)
        else:
            name = topic.topic
        for p in topic.partitions:
            wanted.append(
                Wanted(
                    name,
                    topic_id,
                    p.partition,
                    p.current_leader_epoch if version >= 9 else NO_EPOCH,
                    p.fetch_offset,
                    p.last_fetched_epoch if version >= FIRST_FLEXIBLE else NO_EPOCH,
                    p.log_start_offset if version >= 5 else -1,
                    p.partition_max_bytes,
                )
            )
    return wanted


def _forgotten(body: Any, version: int) -> list[tuple[UUID | str | None, int]]:
    by_id = version >= FIRST_WITH_TOPIC_IDS
    return [
        ((topic.topic_id or NO_ID) if by_id else topic.topic, partition)
        for topic in body.forgotten_topics_data
        for partition in topic.partitions
    ]


def _write(
    header: RequestHeader,
    fetching: Fetching,
    reads: Sequence[Read],
    error: ErrorCode = ErrorCode.none,
) -> Response:
    if fetching.session is not None:
        reads = _changed(fetching, reads)
    version = header.api_version
    flexible = version >= FIRST_FLEXIBLE
    # Written as pieces: bytes, and the file ranges between them.
    out: list[Part] = []
    head = bytearray(b"\0" if flexible else b"")  # the header's tagged fields
    if version >= FIRST_WITH_SESSIONS:
        head += _TOP_V7.pack(0, error.value, fetching.session_id)
    else:
        head += _I32.pack(0)
    topics = _by_topic(reads)
    head += _count(len(topics), flexible)
    for topic_reads in topics:
        wanted = topic_reads[0].wanted
        if version >= FIRST_WITH_TOPIC_IDS:
            head += (wanted.topic_id or NO_ID).bytes
        else:
            name = (wanted.topic or "").encode()
            head += varint.encode_unsigned(len(name) + 1) if flexible else _I16.pack(len(name))
            head += name
        head += _count(len(topic_reads), flexible)
        for one in topic_reads:
            head += _partition(one, version)
            if one.data is not None and one.size:
                out.append(bytes(head))
                out.append(one.data)
                head.clear()
            if flexible:
                head += _tags(one)
        if flexible:
            head += b"\0"
    if flexible:
        head += b"\0"
    if head:
        out.append(bytes(head))
    size = 4 + sum(len(p) if isinstance(p, bytes) else p.size for p in out)
    first = out[0]
    assert isinstance(first, bytes)
    first = _HEAD.pack(size, header.correlation_id) + first
    return [first, *out[1:]] if len(out) > 1 else first


def _partition(one: Read, version: int) -> bytes:
    """All of a partition's answer up to its records, whose length is the last thing written."""
    index, error = one.wanted.partition, one.error.value
    flexible = version >= FIRST_FLEXIBLE
    if version >= 5:
        data = _PARTITION_V5.pack(
            index, error, one.high_watermark, one.last_stable_offset, one.log_start_offset
        )
    else:
        data = _PARTITION_V4.pack(index, error, one.high_watermark, one.last_stable_offset)
    data += _count(len(one.aborted), flexible)
    for aborted in one.aborted:
        data += _ABORTED.pack(aborted.producer_id, aborted.first_offset)
        if flexible:
            data += b"\0"
    if version >= 11:
        data += b"\xff\xff\xff\xff"  # no preferred read replica
    return data + _count(one.size, flexible)


def _tags(one: Read) -> bytes:
    if one.diverging is None:
        return b"\0"
    epoch, end_offset = one.diverging
    diverging = _DIVERGING.pack(epoch, end_offset, 0)
    return b"\1\0" + varint.encode_unsigned(len(diverging)) + diverging


def _count(number: int, flexible: bool) -> bytes:
    return varint.encode_unsigned(number + 1) if flexible else _I32.pack(number)


def _by_topic(reads: Sequence[Read]) -> list[list[Read]]:
    """Runs of the same topic: a session's partitions are in no order of topics."""
    topics: list[list[Read]] = []
    last: object = topics
    for one in reads:
        topic = one.wanted.topic_id or one.wanted.topic
        if topic != last:
            topics.append([])
            last = topic
        topics[-1].append(one)
    return topics


def _changed(fetching: Fetching, reads: Sequence[Read]) -> list[Read]:
    """What a session's client is told: all at first, then only what it does not know."""
    session = fetching.session
    assert session is not None
    told = []
    with_bytes = []
    for one in reads:
        known = session.partitions.get(one.wanted.key)
        if known is None:
            continue
        news = (
            not fetching.incremental
            or one.size > 0
            or one.error is not ErrorCode.none
            or one.diverging is not None
            or known.high_watermark != one.high_watermark
            or known.log_start_offset != one.log_start_offset
        )
        if news:
            told.append(one)
            known.high_watermark = one.high_watermark
            known.log_start_offset = one.log_start_offset
            if one.error is not ErrorCode.none:
                # An error is told again each time until it is gone.
                known.high_watermark = -1
        if one.size:
            with_bytes.append(one.wanted.key)
    session.rotate(with_bytes)
    return told
