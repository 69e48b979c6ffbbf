"""Fetch (key 1): v4-v18.

Behaviour:
- Responds once there are `min_bytes` or an error, or `max_wait` has passed; meanwhile the request
  is delayed and its connection muted.
- The first batch of the response is whole even if it is larger than every limit (KIP-74);
  the total over many partitions stays within max_bytes and `fetch.max.bytes`.
- Starts with the batch that holds the requested offset: clients skip the records before it.
- Incremental sessions (KIP-227): a response names only partitions that changed since the last.
- Records go from the log file to the socket by sendfile; they are not read here.
- OFFSET_OUT_OF_RANGE beyond the end of a log is sent to consumers once ZooKeeper confirms that
  this broker still leads, else NOT_LEADER_OR_FOLLOWER: a consumer that is cut off together with a
  former leader would otherwise start over (auto.offset.reset).
- A replica id of 0 or above must be another live broker's, on the inter-broker listener: it reports
  the follower's log end and broker epoch, and reads to the log's end.  Otherwise it is refused as
  Apache's broker does for an id that is not a replica's (CVE-2018-1288).
- With `replica.selector.class`, a consumer that sends its rack (client.rack) is redirected to a
  replica there, and any replica serves it, up to the high watermark that it knows (KIP-392).
- A throttled follower that is not in sync gets no data while the rate is above its bound.
- Data that would exceed consumer_byte_rate is not sent: the response is empty and has the throttle
  time, for which the connection's next requests are not dispatched (KIP-219).
- read_committed ends at the last stable offset and lists aborted transactions; for
  read_uncommitted that list is null.  Records are empty, never null.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID (in a session, once
another topic has the name), NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR; FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH
for the whole response.

Versions:
- v5 log_start_offset; v7 sessions; v9 current_leader_epoch (KIP-320); v11 rack, preferred replica
- v12 flexible, last_fetched_epoch and diverging epochs (KIP-595); v13 topic ids (KIP-516)
- v15 replica state tagged; v16 node endpoints; v17 directory ids; v18 high watermark (KIP-1166)

Request and response are decoded and encoded by hand: api/fetch_bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Mapping, Sequence
from uuid import UUID

from kserver.api import fetch_bytes, throttling
from kserver.api.context import Parts, Session, is_broker
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_BROKER
from kserver.network.conversation import Pending, Response, ResponseData
from kserver.replica.fetch import FetchLimits, NotInMemory, Read, read, read_cold
from kserver.replica.fetch_session import FINAL_EPOCH, NO_SESSION, Fetching, FetchPartition
from kserver.replica.partition import Partition
from kserver.wire.codec import RequestHeader

KEY, VERSIONS = 1, range(4, 19)


class DelayedFetch:
    """A fetch whose response cannot be sent yet."""

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

    @property
    def fetch_infos(self) -> Sequence[FetchPartition]:
        """Partitions to read now."""
        session = self.fetching.session
        if self.limits.is_follower and self.fetching.incremental and session is not None:
            return session.active_fetch_infos()
        return self.fetching.fetch_infos

    def wait(self, deadline_s: float) -> None:
        """Respond once a partition has enough data, or at the deadline with what there is."""
        fetching = self.fetching
        # A follower's session has one key of its own: it may have a thousand partitions, and
        # changed ones are reported to the sessions that include them.
        keys: list[Hashable]
        if self.limits.is_follower and fetching.incremental:
            keys = [fetching.session]
        else:
            keys = [(fetch_info.topic, fetch_info.partition) for fetch_info in fetching.fetch_infos]
        wait = self.parts.purgatory.wait(keys, self.retry, deadline_s, self.expired)
        self.pending.on_abandoned = wait.end

    def retry(self) -> bool:
        """Try to respond; the purgatory calls this when a partition has changed."""
        reads = read(self.parts.replicas, self.fetch_infos, self.limits)
        if isinstance(reads, NotInMemory):
            self.parts.spawn(self.finish_cold(reads))
            return True
        if not _is_enough(reads, self.min_bytes) and not _has_news(
            self.parts, self.fetching, self.limits, reads
        ):
            _set_idle(self.fetching, self.limits, reads)
            return False
        self._complete(reads)
        return True

    def expired(self) -> None:
        reads = read(self.parts.replicas, self.fetch_infos, self.limits)
        if isinstance(reads, NotInMemory):
            self.parts.spawn(self.finish_cold(reads))
        else:
            self._complete(reads)

    async def finish_cold(self, cold: NotInMemory) -> None:
        """Wait for the disk, then respond with the data that is available."""
        self._complete(await read_cold(self.parts.replicas, self.fetch_infos, self.limits, cold))

    async def finish_confirmed(self, beyond: Sequence[Partition]) -> None:
        """Respond that offsets are beyond the ends of these partitions' logs, except those that
        this broker may not lead any more: another leader's log may be longer."""
        leadership = self.parts.leadership
        asked = {partition: leadership.is_current(partition) for partition in beyond}
        await asyncio.wait(asked.values())
        reads = read(self.parts.replicas, self.fetch_infos, self.limits)
        if isinstance(reads, NotInMemory):
            reads = await read_cold(self.parts.replicas, self.fetch_infos, self.limits, reads)
        confirmed = {p for p, is_current in asked.items() if is_current.result() and p.is_leader}
        self._send([_without_unconfirmed(self.parts, result, confirmed) for result in reads])

    def _complete(self, reads: Sequence[Read]) -> None:
        if beyond := _beyond_ends(self.parts, self.limits, reads):
            self.parts.spawn(self.finish_confirmed(beyond))
        else:
            self._send(reads)

    def _send(self, reads: Sequence[Read]) -> None:
        self.pending.complete(
            _within_quotas(
                self.header,
                self.session,
                self.parts,
                self.fetching,
                self.limits,
                reads,
                self.spent_s,
            )
        )


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Response:
    version = header.api_version
    names = parts.metadata.current.topic_names
    request = fetch_bytes.read_request(frame, at, version, names)
    is_follower = request.replica_id > NO_BROKER
    if is_follower and not is_broker(request.replica_id, session, parts):
        code = ErrorCode.not_leader_or_follower
        error_reads = [Read(fetch_info, code, aborted=None) for fetch_info in request.fetch_infos]
        return fetch_bytes.write_response(version, header.correlation_id, NO_SESSION, error_reads)
    began_s = parts.loop.time() if parts.quotas.active else 0.0
    # Replication does not count for a client's quota.
    measured = parts.quotas.active and not is_follower
    try:
        fetching = _begin(request, parts, names, is_follower=is_follower)
    except KafkaError as error:
        return fetch_bytes.write_response(
            version, header.correlation_id, NO_SESSION, [], error.code
        )
    if is_follower:
        fetching = _note_progress(request, fetching, parts)
    max_bytes = min(request.max_bytes, parts.config().fetch_max_bytes)
    min_bytes = request.min_bytes
    if measured:
        max_bytes = throttling.max_fetch_bytes(max_bytes, header.client_id or "", session, parts)
        min_bytes = min(min_bytes, max_bytes)
    limits = FetchLimits(
        max_bytes,
        request.read_committed,
        request.replica_id if is_follower else NO_BROKER,
        version < fetch_bytes.FIRST_WITH_RACK,
        request.rack,
        session.endpoint.listener,
    )
    reads = read(parts.replicas, fetching.fetch_infos, limits)
    if isinstance(reads, NotInMemory):
        delayed = DelayedFetch(header, session, parts, fetching, limits, min_bytes, began_s)
        parts.spawn(delayed.finish_cold(reads))
        return delayed.pending
    if (
        request.max_wait_ms <= 0
        or not (reads or fetching.incremental)
        or _is_enough(reads, min_bytes)
        or _has_news(parts, fetching, limits, reads)
    ):
        if beyond := _beyond_ends(parts, limits, reads):
            delayed = DelayedFetch(header, session, parts, fetching, limits, min_bytes, began_s)
            parts.spawn(delayed.finish_confirmed(beyond))
            return delayed.pending
        spent_s = parts.loop.time() - began_s if measured else 0.0
        return _within_quotas(header, session, parts, fetching, limits, reads, spent_s)
    _set_idle(fetching, limits, reads)
    delayed = DelayedFetch(header, session, parts, fetching, limits, min_bytes, began_s)
    delayed.wait(parts.loop.time() + request.max_wait_ms / 1000)
    return delayed.pending


def _begin(
    request: fetch_bytes.Request,
    parts: Parts,
    names: Mapping[UUID, str],
    *,
    is_follower: bool,
) -> Fetching:
    """Begin or continue the fetch session that the request names, or fetch without one.

    Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
    """
    if request.session_epoch == FINAL_EPOCH:
        if request.session_id != NO_SESSION:
            parts.fetch_sessions.end(request.session_id)
        return Fetching(request.fetch_infos, None, False)
    return parts.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        request.fetch_infos,
        request.forgotten,
        now_ms=parts.world.clock.now_ms(),
        new_id=parts.world.random.randint(1, 2**31 - 1),
        names=names,
        is_follower=is_follower,
    )


def _note_progress(request: fetch_bytes.Request, fetching: Fetching, parts: Parts) -> Fetching:
    """Note how far the follower has got; return what to read for it now."""
    # A fetch in a session covers all its partitions: those that it does not name have not moved,
    # and are still caught up.
    parts.replicas.left_sessions(request.replica_id, fetching.forgotten)
    session = fetching.session
    parts.replicas.fetched_by(
        request.replica_id,
        request.broker_epoch,
        fetching.fetch_infos,
        None if session is None else session.clock,
    )
    if session is None or not fetching.incremental:
        return fetching
    # Its progress may have raised the high watermark of other partitions.
    return fetching._replace(fetch_infos=session.active_fetch_infos())


def _is_enough(reads: Sequence[Read], min_bytes: int) -> bool:
    size = 0
    for result in reads:
        size += result.size
        if (
            result.error is not ErrorCode.none
            or result.diverging is not None
            or result.preferred != NO_BROKER
        ):
            return True
    return size >= min_bytes


def _beyond_ends(parts: Parts, limits: FetchLimits, reads: Sequence[Read]) -> list[Partition]:
    """Return partitions that this broker leads whose log ends before the offset that a consumer
    fetches.  A former leader's log does so too."""
    if limits.is_follower:
        return []  # it is fenced by its leader epoch
    return [
        partition
        for result in reads
        if result.error is ErrorCode.offset_out_of_range
        and (partition := _beyond_end(parts, result)) is not None
        and partition.is_leader
    ]


def _beyond_end(parts: Parts, result: Read) -> Partition | None:
    """Return the partition if its log ends before the offset that was to be read."""
    fetch_info = result.fetch_info
    partition = parts.replicas.partitions.get((fetch_info.topic or "", fetch_info.partition))
    if partition is None or fetch_info.offset <= partition.log.log_end_offset:
        return None
    return partition


def _without_unconfirmed(parts: Parts, result: Read, confirmed: Collection[Partition]) -> Read:
    if result.error is not ErrorCode.offset_out_of_range:
        return result
    partition = _beyond_end(parts, result)
    if partition is None or partition in confirmed:
        return result
    return result._replace(error=ErrorCode.not_leader_or_follower)


def _has_news(parts: Parts, fetching: Fetching, limits: FetchLimits, reads: Sequence[Read]) -> bool:
    """Whether a follower that consumers read from must learn of a higher high watermark now.

    Sending each rise costs one more fetch per produce, so other followers learn of it with the next
    records, as in 3.9.
    """
    session = fetching.session
    if not limits.is_follower or session is None or not parts.replicas.selects_replicas:
        return False
    for result in reads:
        cached = session.partitions.get(result.fetch_info.key)
        if cached is not None and cached.high_watermark < result.high_watermark:
            return True
    return False


def _set_idle(fetching: Fetching, limits: FetchLimits, reads: Sequence[Read]) -> None:
    """Remove partitions without more data or changed offsets from a follower session's active
    ones."""
    session = fetching.session
    if session is None or not limits.is_follower:
        return
    for result in reads:
        key = result.fetch_info.key
        if (
            result.is_at_end
            and result.error is ErrorCode.none
            and session.is_known(key, result.high_watermark, result.log_start_offset)
        ):
            session.active.pop(key, None)


def _within_quotas(
    header: RequestHeader,
    session: Session,
    parts: Parts,
    fetching: Fetching,
    limits: FetchLimits,
    reads: Sequence[Read],
    spent_s: float,
) -> ResponseData:
    if limits.is_follower:
        for result in reads:
            if result.size:
                parts.replicas.sent(
                    (result.fetch_info.topic, result.fetch_info.partition), result.size
                )
    elif parts.quotas.active:
        size = sum([result.size for result in reads])
        wait_ms = throttling.charge_fetch(size, spent_s, header.client_id or "", session, parts)
        if wait_ms:
            return _throttled(header, parts, fetching, wait_ms)
    response = _response(header, fetching, reads, is_follower=limits.is_follower)
    _set_idle(fetching, limits, reads)
    return response


def _response(
    header: RequestHeader, fetching: Fetching, reads: Sequence[Read], *, is_follower: bool = False
) -> ResponseData:
    for result in reads:
        meters = result.meters
        if meters is not None:
            meters.total_fetch_requests += 1
            if not is_follower:
                meters.bytes_out += result.size
            if result.error is ErrorCode.kafka_storage_error:
                meters.failed_fetch_requests += 1
    if fetching.session is None:
        changed_reads, session_id = reads, NO_SESSION
    else:
        changed_reads, session_id = _changed(fetching, reads), fetching.session.id
    return fetch_bytes.write_response(
        header.api_version, header.correlation_id, session_id, changed_reads
    )


def _throttled(
    header: RequestHeader, parts: Parts, fetching: Fetching, wait_ms: int
) -> ResponseData:
    """Return an empty response with the throttle time.  A session that the client does not know of
    yet is ended: the client will request one again."""
    session_id = NO_SESSION
    if fetching.session is not None:
        if fetching.incremental:
            session_id = fetching.session.id
        else:
            parts.fetch_sessions.end(fetching.session.id)
    return fetch_bytes.write_response(
        header.api_version, header.correlation_id, session_id, [], wait_ms=wait_ms
    )


def _changed(fetching: Fetching, reads: Sequence[Read]) -> list[Read]:
    """Return the reads to include in a session's response: all at first, then only changes."""
    session = fetching.session
    assert session is not None
    changed = []
    with_bytes = []
    for result in reads:
        cached = session.partitions.get(result.fetch_info.key)
        if cached is None:
            continue
        news = (
            not fetching.incremental
            or result.size > 0
            or result.error is not ErrorCode.none
            or result.diverging is not None
            or result.preferred != NO_BROKER
            or cached.high_watermark != result.high_watermark
            or cached.log_start_offset != result.log_start_offset
        )
        if news:
            changed.append(result)
            cached.high_watermark = result.high_watermark
            cached.log_start_offset = result.log_start_offset
            if result.error is not ErrorCode.none or result.diverging is not None:
                # Repeat an error in each response until it is resolved; a follower that has to
                # truncate does not take the offsets of that response.
                cached.high_watermark = -1
        if result.size:
            with_bytes.append(result.fetch_info.key)
    session.rotate(with_bytes)
    return changed
