"""Fetch (key 1): v4-v18.

Behaviour:
- Answers once `min_bytes` are there, or an error is, or `max_wait` has passed; meanwhile it is
  parked and its connection muted.
- The first batch of the answer comes whole even if it is larger than every limit (KIP-74);
  the total over many partitions stays within max_bytes and `fetch.max.bytes`.
- Starts with the batch that holds the asked offset: clients skip what lies before it.
- Incremental sessions (KIP-227): an answer names only what changed since the last.
- Records go from the log file to the socket by sendfile; they are not read here.
- A replica id of 0 or above is another live broker's, on the listener between brokers: it tells the
  leader how far that follower has come, and reads to the log's end.  Any other is refused as
  Apache's broker does where it is not a replica's (CVE-2018-1288).
- What would exceed consumer_byte_rate is not sent: the answer is empty, tells how long that is so,
  and the connection is not heard before (KIP-219).
- read_committed ends at the last stable offset and lists aborted transactions; for
  read_uncommitted that list is null.  Records are empty, never null.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE,
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR;
FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH for the whole answer.

Versions:
- v5 log_start_offset; v7 sessions; v9 current_leader_epoch (KIP-320); v11 rack, preferred replica
- v12 flexible, last_fetched_epoch and diverging epochs (KIP-595); v13 topic ids (KIP-516)
- v15 replica state tagged; v16 node endpoints; v17 directory ids; v18 high watermark (KIP-1166)

Request and answer are read and written by hand: api/fetch_bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kserver.api import fetch_bytes, throttling
from kserver.api.context import Parts, Session, is_broker
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_BROKER
from kserver.network.conversation import Answer, Pending
from kserver.network.conversation import Parts as Response
from kserver.replica.fetch import FetchLimits, NotInMemory, Read, read, warmed
from kserver.replica.fetch_session import FINAL_EPOCH, NO_SESSION, Fetching
from kserver.wire.codec import RequestHeader

KEY, VERSIONS = 1, range(4, 19)


class Parked:
    """A fetch that cannot be answered yet."""

    __slots__ = (
        "fetching",
        "header",
        "limits",
        "min_bytes",
        "parts",
        "pending",
        "session",
        "spent_s",
    )

    def __init__(
        self,
        header: RequestHeader,
        session: Session,
        parts: Parts,
        fetching: Fetching,
        limits: FetchLimits,
        min_bytes: int,
        began_s: float,
    ) -> None:
        self.header = header
        self.session = session
        self.parts = parts
        self.fetching = fetching
        self.limits = limits
        self.min_bytes = min_bytes
        self.spent_s = parts.loop.time() - began_s if parts.quotas.active else 0.0
        self.pending = Pending(exclusive=True)

    def retry(self) -> bool:
        """Asked by the purgatory when a partition has changed."""
        reads = read(self.parts.replicas, self.fetching.wanted, self.limits)
        if isinstance(reads, NotInMemory):
            self.parts.spawn(self.finish_cold(reads))
            return True
        if not _is_enough(reads, self.min_bytes):
            return False
        self._complete(reads)
        return True

    def expired(self) -> None:
        reads = read(self.parts.replicas, self.fetching.wanted, self.limits)
        if isinstance(reads, NotInMemory):
            self.parts.spawn(self.finish_cold(reads))
        else:
            self._complete(reads)

    async def finish_cold(self, cold: NotInMemory) -> None:
        """What must wait for the disk is answered with what is there by then."""
        self._complete(await warmed(self.parts.replicas, self.fetching.wanted, self.limits, cold))

    def _complete(self, reads: Sequence[Read]) -> None:
        self.pending.complete(
            _within_quotas(
                self.header, self.session, self.parts, self.fetching, reads, self.spent_s
            )
        )


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Answer:
    version = header.api_version
    measured = parts.quotas.active
    began_s = parts.loop.time() if measured else 0.0
    names = parts.metadata.current.topic_names
    request = fetch_bytes.read_request(frame, at, version, names)
    wanted = request.wanted
    is_follower = request.replica_id > NO_BROKER
    if is_follower:
        if not is_broker(request.replica_id, session, parts):
            code = ErrorCode.not_leader_or_follower
            refused = [Read(one, code, aborted=None) for one in wanted]
            return fetch_bytes.write_answer(version, header.correlation_id, NO_SESSION, refused)
        measured = False  # what is replicated counts for no client's quota
        parts.replicas.fetched_by(request.replica_id, wanted)
    if request.session_epoch == FINAL_EPOCH:
        if request.session_id != NO_SESSION:
            parts.fetch_sessions.end(request.session_id)
        fetching = Fetching(wanted, None, False)
    else:
        try:
            fetching = parts.fetch_sessions.begin(
                request.session_id,
                request.session_epoch,
                wanted,
                request.forgotten,
                now_ms=parts.world.clock.now_ms(),
                new_id=parts.world.random.randint(1, 2**31 - 1),
            )
        except KafkaError as error:
            return fetch_bytes.write_answer(
                version, header.correlation_id, NO_SESSION, [], error.code
            )
    max_bytes = min(request.max_bytes, parts.config().fetch_max_bytes)
    min_bytes = request.min_bytes
    if measured:
        max_bytes = throttling.most_to_fetch(max_bytes, header.client_id or "", session, parts)
        min_bytes = min(min_bytes, max_bytes)
    limits = FetchLimits(max_bytes, request.read_committed, to_log_end=is_follower)
    reads = read(parts.replicas, fetching.wanted, limits)
    if isinstance(reads, NotInMemory):
        parked = Parked(header, session, parts, fetching, limits, min_bytes, began_s)
        parts.spawn(parked.finish_cold(reads))
        return parked.pending
    if request.max_wait_ms <= 0 or not reads or _is_enough(reads, min_bytes):
        spent_s = parts.loop.time() - began_s if measured else 0.0
        return _within_quotas(header, session, parts, fetching, reads, spent_s)
    parked = Parked(header, session, parts, fetching, limits, min_bytes, began_s)
    keys = [(one.topic, one.partition) for one in fetching.wanted]
    deadline_s = parts.loop.time() + request.max_wait_ms / 1000
    wait = parts.purgatory.wait(keys, parked.retry, deadline_s, parked.expired)
    parked.pending.on_abandoned = wait.end
    return parked.pending


def _is_enough(reads: Sequence[Read], min_bytes: int) -> bool:
    size = 0
    for one in reads:
        size += one.size
        if one.error is not ErrorCode.none or one.diverging is not None:
            return True
    return size >= min_bytes


def _within_quotas(
    header: RequestHeader,
    session: Session,
    parts: Parts,
    fetching: Fetching,
    reads: Sequence[Read],
    spent_s: float,
) -> Response:
    if parts.quotas.active:
        size = sum([one.size for one in reads])
        wait_ms = throttling.fetched(size, spent_s, header.client_id or "", session, parts)
        if wait_ms:
            return _throttled(header, parts, fetching, wait_ms)
    return _answer(header, fetching, reads)


def _answer(header: RequestHeader, fetching: Fetching, reads: Sequence[Read]) -> Response:
    for one in reads:
        meters = one.meters
        if meters is not None:
            meters.total_fetch_requests += 1
            meters.bytes_out += one.size
            if one.error is ErrorCode.kafka_storage_error:
                meters.failed_fetch_requests += 1
    if fetching.session is None:
        told, session_id = reads, NO_SESSION
    else:
        told, session_id = _changed(fetching, reads), fetching.session.id
    return fetch_bytes.write_answer(header.api_version, header.correlation_id, session_id, told)


def _throttled(header: RequestHeader, parts: Parts, fetching: Fetching, wait_ms: int) -> Response:
    """Nothing new, yet.  A session that the client was not told of yet is not begun: it asks for
    one again."""
    session_id = NO_SESSION
    if fetching.session is not None:
        if fetching.incremental:
            session_id = fetching.session.id
        else:
            parts.fetch_sessions.end(fetching.session.id)
    return fetch_bytes.write_answer(
        header.api_version, header.correlation_id, session_id, [], wait_ms=wait_ms
    )


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
