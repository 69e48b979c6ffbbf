"""Produce (key 0): v3-v13.

Behaviour:
- acks=0 has no response; an error then closes the connection, the only way to notify the producer.
- acks=1 responds once the leader has appended, acks=-1 once the batch is below the high watermark,
  or with REQUEST_TIMED_OUT after the request's timeout (the batch stays in the log).  With
  `flush.before.ack` both wait until the batch is on disk.
- Every partition has its own result: a refused one does not affect the others.
- Only the coordinators may write to their topics.
- A retried batch of an idempotent producer gets the response of the first time, unless it was part
  of a transaction that has ended.
- The first batch of a transaction to a partition is appended once the coordinator confirms that the
  partition is part of it (txn/verification); from v12 on that adds it.  Later requests of the same
  producer wait meanwhile.
- A client above its producer_byte_rate gets its response at once, and its next requests are
  dispatched after the throttle time (KIP-219); without a response (acks=0) too.

Errors: INVALID_REQUIRED_ACKS, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION
(a coordinator's), NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND
(the batch stays in the log), CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER,
UNKNOWN_PRODUCER_ID (sequences of an ended transaction), INVALID_PRODUCER_EPOCH,
INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE (the partition is not part of the transaction),
TRANSACTION_ABORTABLE (the same, from v11), CONCURRENT_TRANSACTIONS,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED (transactional records without a transactional id),
KAFKA_STORAGE_ERROR (the disk failed, or is full: then a retry may succeed), REQUEST_TIMED_OUT.

Versions:
- v3 transactional_id; v5 log_start_offset; v7 zstd; v8 record_errors (KIP-467); v9 flexible
- v10 current_leader (KIP-951); v11 TRANSACTION_ABORTABLE; v12 adds the partition to the
  transaction (KIP-890)
- v13 topic ids (KIP-516)

Api/produce_bytes decodes and encodes, api/produce_verification has what transactions need.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kserver.api import throttling
from kserver.api.context import Parts, Session
from kserver.api.produce_bytes import (
    ProduceRequest,
    TopicResults,
    appended,
    failed,
    read,
    refused,
    write,
)
from kserver.api.produce_verification import (
    ATTRIBUTES_AT,
    FIRST_TO_ADD,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
    verify,
    verify_now,
)
from kserver.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kserver.metrics.meters import TopicMeters
from kserver.model import ALL_IN_SYNC, INTERNAL_TOPICS, Offset
from kserver.network.conversation import Pending, Response
from kserver.replica.committed import Uncommitted, when_committed
from kserver.replica.partition import Partition
from kserver.txn.verification import PartitionErrors, Turn
from kserver.wire.batch import COMPRESSION_MASK, HEADER_SIZE
from kserver.wire.codec import RequestHeader
from kserver.wire.compression import Compression

KEY, VERSIONS = 0, range(3, 14)

FIRST_WITH_ZSTD = 7
TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)
STALE_OR_TORN = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_leader_or_follower,
    ErrorCode.corrupt_message,
)
"""Errors that failed_produce_requests does not count: not the fault of the broker."""
ADMIN_CLIENT_ID = "__admin_client"
"""Client id that may write to the coordinators' topics nevertheless, as in Kafka."""

_SEQUENCED = struct.Struct(">qhi")
"""Producer id, epoch and base sequence of a batch."""


class Results:
    """Results of a request's partitions, some of them to be replaced if they are not committed."""

    __slots__ = ("appends", "began_s", "failure", "places", "topics")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        """Time at which the request was handled, from which it is charged; 0 without quotas."""
        self.topics: TopicResults = []
        self.appends: list[Uncommitted] = []
        """Appends for which the response waits."""
        self.places: list[tuple[list[bytes], int, int]] = []
        """For each of `appends`: a topic's results, the index in them, the partition's number."""
        self.failure = ""
        """The last error, for the log: with acks=0 there is no response."""


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Response:
    version = header.api_version
    request = read(frame, at, version, parts.metadata.current.topic_names)
    acks, _, transactional_id, topics = request
    if acks not in (-1, 0, 1):
        code = ErrorCode.invalid_required_acks
        return write(
            header,
            [(raw, [failed(version, index, code) for index, _ in of]) for _, raw, of in topics],
        )
    errors = {} if transactional_id is None else verify_now(request, version, parts)
    if isinstance(errors, Turn):
        pending = Pending(exclusive=False)
        # The frame's buffer is used again for the next request.
        copied = memoryview(bytearray(frame))
        parts.spawn(_in_turn(header, copied, at, session, parts, errors, pending))
        return pending
    results = _append(header, request, errors, parts)
    return _respond(header, request, len(frame), results, session, parts, None)


async def _in_turn(
    header: RequestHeader,
    frame: memoryview,
    at: int,
    session: Session,
    parts: Parts,
    turn: Turn,
    pending: Pending,
) -> None:
    """Append the request in its turn, after the verification of its partitions."""
    async with turn:
        version = header.api_version
        request = read(frame, at, version, parts.metadata.current.topic_names)
        errors = await verify(request, version, parts)
        results = _append(header, request, errors, parts)
        _respond(header, request, len(frame), results, session, parts, pending)


def _append(
    header: RequestHeader, request: ProduceRequest, errors: PartitionErrors, parts: Parts
) -> Results:
    """Append all batches that are not refused."""
    version = header.api_version
    acks, _, transactional_id, topics = request
    now_ms = parts.world.clock.now_ms()
    done = Results(parts.loop.time() if parts.quotas.active else 0.0)
    for name, raw, partitions in topics:
        results: list[bytes] = []
        done.topics.append((raw, results))
        is_closed = name in INTERNAL_TOPICS and header.client_id != ADMIN_CLIENT_ID
        for index, records in partitions:
            try:
                partition = parts.replicas.partitions.get((name, index))
                if partition is None:
                    partition = _missing(name, index, parts)
                meters = partition.meters
                meters.total_produce_requests += 1
                if is_closed:
                    raise KafkaError(ErrorCode.invalid_topic_exception)
                if len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT]:
                    _check_flags(partition, records, version, transactional_id, errors)
                first, last, append_time, log_start, _ = partition.append_as_leader(
                    records, acks, now_ms
                )
            except (KafkaError, StorageError) as error:
                done.failure = str(error)
                if partition is not None:
                    _count_failure(partition.meters, error, len(records))
                results.append(refused(version, index, error))
                continue
            meters.messages_in += last - first + 1
            meters.bytes_in += len(records)
            results.append(appended(version, index, first, append_time, log_start))
            if partition.log.high_watermark <= last:
                _defer_response(done, partition, acks, last, index, parts)
            # A follower waits for appended records, a consumer for committed ones.
            parts.purgatory.check(partition.topic_partition)
    return done


def _check_flags(
    partition: Partition,
    records: memoryview,
    version: int,
    transactional_id: str | None,
    errors: PartitionErrors,
) -> None:
    """Check what a batch's attributes say against the request's version and transaction; the
    batch itself is validated by the log."""
    flags = records[ATTRIBUTES_AT]
    if flags & TRANSACTIONAL_BIT:
        if transactional_id is None:
            raise KafkaError(ErrorCode.transactional_id_authorization_failed)
        if partition.topic_partition in errors:
            raise errors[partition.topic_partition]
        if version >= FIRST_TO_ADD and len(records) >= HEADER_SIZE:
            partition.check_first_sequence(*_SEQUENCED.unpack_from(records, PRODUCER_AT))
    if version < FIRST_WITH_ZSTD and flags & COMPRESSION_MASK == Compression.zstd:
        raise KafkaError(
            ErrorCode.unsupported_compression_type,
            "Produce requests with version less than 7 are not allowed to use ZStandard"
            " compression",
        )


def _defer_response(
    done: Results, partition: Partition, acks: int, last: Offset, index: int, parts: Parts
) -> None:
    """Have the response wait for an append that is not committed yet, if acks=all or
    flush.before.ack demand it."""
    flushes = partition.log.config.flush_before_ack
    if acks == ALL_IN_SYNC or flushes:
        _, results = done.topics[-1]
        done.places.append((results, len(results) - 1, index))
        done.appends.append(Uncommitted(partition, partition.led_since, last + 1, acks))
    if flushes:
        parts.replicas.flush_soon(partition)


def _respond(
    header: RequestHeader,
    request: ProduceRequest,
    size: int,
    done: Results,
    session: Session,
    parts: Parts,
    pending: Pending | None,
) -> Response:
    """Respond once all is committed that has to be: through `pending` if given."""
    acks, timeout_ms, _, _ = request
    wait_ms = 0
    if parts.quotas.active:
        wait_ms = throttling.charge_produce(size, acks, done.began_s, header, session, parts)
    if acks == 0:
        if pending is not None:
            pending.complete(None)
        elif done.failure:
            raise ProtocolError(f"a record sent with acks=0 was refused: {done.failure}")
        return None
    if not done.appends:
        response = write(header, done.topics, wait_ms)
        if pending is not None:
            pending.complete(response)
        return response
    pending = pending or Pending(exclusive=False)

    def on_committed(codes: Sequence[ErrorCode]) -> None:
        for (results, place, number), code in zip(done.places, codes, strict=True):
            if code is not ErrorCode.none:
                results[place] = failed(header.api_version, number, code)
        pending.complete(write(header, done.topics, wait_ms))

    deadline_s = parts.loop.time() + max(timeout_ms, 0) / 1000
    wait = when_committed(done.appends, parts.purgatory, deadline_s, on_committed)
    if wait is not None:
        pending.on_abandoned = wait.end
    return pending


def _count_failure(meters: TopicMeters, error: KafkaError | StorageError, size: int) -> None:
    """Count what Kafka counts (ReplicaManager.appendToLocalLog), and also a failing disk."""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.kafka_storage_error
    if code in TOO_LARGE:
        meters.bytes_rejected += size
    elif code not in STALE_OR_TORN:
        meters.failed_produce_requests += 1


def _missing(name: str | None, index: int, parts: Parts) -> Partition:
    if name is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    return parts.replicas.get(name, index)
