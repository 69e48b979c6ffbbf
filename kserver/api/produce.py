"""Produce (key 0): v3-v13.

Behaviour:
- acks=0 has no response; an error then closes the connection, the only way to notify the producer.
- acks=1 responds once the leader has appended, acks=-1 once the batch is below the high watermark,
  or with REQUEST_TIMED_OUT after the request's timeout (the batch stays in the log).  With
  `flush.before.ack` both wait until the batch is on disk.
- Every partition has its own result: a refused one does not affect the others.
- Only the coordinators may write to their topics.
- A retried batch of an idempotent producer gets the response of the first time.
- The first batch of a transaction to a partition is appended once the coordinator confirms that the
  partition is part of it (txn/verification); from v12 on that adds it.  Later requests of the same
  producer wait meanwhile.
- A client above its producer_byte_rate gets its response at once, and its next requests are
  dispatched after the throttle time (KIP-219); without a response (acks=0) too.

Errors: INVALID_REQUIRED_ACKS, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION
(a coordinator's), NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND
(the batch stays in the log), CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER,
INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE (the partition is not part of
the transaction), TRANSACTION_ABORTABLE (the same, from v11), CONCURRENT_TRANSACTIONS,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED (transactional records without a transactional id),
KAFKA_STORAGE_ERROR (the disk failed, or is full: then a retry may succeed), REQUEST_TIMED_OUT.

Versions:
- v3 transactional_id; v5 log_start_offset; v7 zstd; v8 record_errors (KIP-467); v9 flexible
- v10 current_leader (KIP-951); v11 TRANSACTION_ABORTABLE; v12 adds the partition to the
  transaction (KIP-890)
- v13 topic ids (KIP-516)

Request and response are decoded and encoded by hand here: kio copies the record bytes out of the
request, and takes 11 us to encode a response whose bytes are known beforehand.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kserver.api import throttling
from kserver.api.context import Parts, Session
from kserver.errors import ErrorCode, KafkaError, NoRoom, ProtocolError, StorageError
from kserver.log.validator import InvalidRecords, RecordError
from kserver.metrics.meters import TopicMeters
from kserver.model import (
    ALL_IN_SYNC,
    INTERNAL_TOPICS,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Offset,
    ProducerId,
    TopicPartition,
)
from kserver.network.conversation import Pending, Response
from kserver.replica.committed import Uncommitted, when_committed
from kserver.replica.partition import Partition
from kserver.txn.transaction import ProducerIdAndEpoch
from kserver.txn.verification import PartitionErrors, Turn
from kserver.wire import varint
from kserver.wire.batch import COMPRESSION_MASK, HEADER_SIZE
from kserver.wire.codec import RequestHeader
from kserver.wire.compression import Compression

KEY, VERSIONS = 0, range(3, 14)

FIRST_WITH_ZSTD = 7
FIRST_FLEXIBLE = 9
FIRST_WITH_ABORTABLE = 11
FIRST_TO_ADD = 12
FIRST_WITH_TOPIC_IDS = 13
TRANSACTIONAL_BIT = 0x10
TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)
STALE_OR_TORN = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_leader_or_follower,
    ErrorCode.corrupt_message,
)
"""Errors that failed_produce_requests does not count: not the fault of the broker."""
ADMIN_CLIENT_ID = "__admin_client"
"""Client id that may write to the coordinators' topics nevertheless, as in Kafka."""
MAX_PARTITIONS = 100_000
"""Maximum number of partitions and topics in a request: each takes more memory and time than its
encoded bytes."""
MAX_TAGS = 1000
ATTRIBUTES_AT = 22
"""Position of the one of a batch's two attribute bytes that holds flags."""

_PRODUCER = struct.Struct(">qh")
_SEQUENCED = struct.Struct(">qhi")
_PRODUCER_AT = 43
"""Position of a batch's producer id and epoch, which its base sequence follows."""
_ACKS_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_INDEX_SIZE = struct.Struct(">ii")
_HEAD = struct.Struct(">ii")
# One partition: index, error code, base offset, append time, log start offset; then no record
# errors, no message and, if flexible, no tagged fields.
_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_PARTITION_V8 = struct.Struct(">ihqqqih")
_PARTITION_V9 = struct.Struct(">ihqqqbbb")


Topic: TypeAlias = tuple[str | None, bytes, list[tuple[int, memoryview]]]
"""Name, or None for an unknown topic id; the 16 bytes of the id in v13, else the bytes of the name;
partitions with views of their records."""

TopicResults: TypeAlias = list[tuple[bytes, list[bytes]]]
"""Bytes that name each topic, and the encoded response of each partition."""


ProduceRequest: TypeAlias = tuple[int, int, str | None, list[Topic]]
"""A request: acks, timeout in ms, transactional id, topics.  A plain tuple for speed, since every
request creates one."""


class TransactionalPartitions(NamedTuple):
    """Partitions of a request that begin, or may begin, a producer's part of a transaction."""

    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    errors: PartitionErrors
    """Errors of partitions with another producer's batches, which cannot be in its transaction."""


class UncommittedResult(NamedTuple):
    """An append whose response waits until it is committed."""

    results: list[bytes]
    place: int
    """Index of its response in the results."""
    number: int
    """Partition number in the request."""


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Response:
    request = _read(frame, at, header.api_version, parts)
    acks, _, transactional_id, topics = request
    if acks not in (-1, 0, 1):
        return _write(header, [_refuse_all(topic, header.api_version) for topic in topics])
    if transactional_id is None:
        return _append(header, request, len(frame), {}, session, parts)
    return _in_transaction(header, request, frame, at, session, parts)


def _in_transaction(
    header: RequestHeader,
    request: ProduceRequest,
    frame: memoryview,
    at: int,
    session: Session,
    parts: Parts,
) -> Response:
    transactional = _transactional_partitions(request, header.api_version, parts)
    producer_id = (
        _producer_id(request) if transactional is None else transactional.producer.producer_id
    )
    # Requests that waited for an earlier verification may still be waiting for their turn.
    if not parts.verification.has_turn(producer_id):
        if transactional is None:
            return _append(header, request, len(frame), {}, session, parts)
        errors = parts.verification.verify_now(*_verification(header, request, transactional))
        if errors is not None:
            return _append(
                header, request, len(frame), {**errors, **transactional.errors}, session, parts
            )
    pending = Pending(exclusive=False)
    turn = parts.verification.turn(producer_id)
    copied = memoryview(bytearray(frame))
    parts.spawn(_in_turn(header, copied, at, session, parts, turn, pending))
    return pending


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
        request = _read(frame, at, header.api_version, parts)
        transactional = _transactional_partitions(request, header.api_version, parts)
        errors: PartitionErrors = {}
        if transactional is not None:
            errors = await parts.verification.verify(*_verification(header, request, transactional))
            errors = {**errors, **transactional.errors}
        _append(header, request, len(frame), errors, session, parts, pending)


def _verification(
    header: RequestHeader, request: ProduceRequest, transactional: TransactionalPartitions
) -> tuple[str, ProducerIdAndEpoch, frozenset[TopicPartition], bool, bool]:
    _, _, transactional_id, _ = request
    assert transactional_id is not None
    version = header.api_version
    return (
        transactional_id,
        transactional.producer,
        transactional.partitions,
        version >= FIRST_TO_ADD,
        version >= FIRST_WITH_ABORTABLE,
    )


def _producer_id(request: ProduceRequest) -> ProducerId:
    """Return the producer id of the first batch, or NO_PRODUCER_ID without one."""
    for _, _, batches in request[3]:
        for _, records in batches:
            if len(records) >= _PRODUCER_AT + _PRODUCER.size:
                producer_id: ProducerId
                producer_id, _ = _PRODUCER.unpack_from(records, _PRODUCER_AT)
                return producer_id
    return NO_PRODUCER_ID


def _transactional_partitions(
    request: ProduceRequest, version: int, parts: Parts
) -> TransactionalPartitions | None:
    """Return the partitions to verify, or None if the coordinator need not be asked."""
    if version < FIRST_TO_ADD and not parts.config().transaction_partition_verification_enable:
        return None
    partitions = []
    producer: ProducerIdAndEpoch | None = None
    errors: dict[TopicPartition, KafkaError] = {}
    _, _, _, topics = request
    for name, _, batches in topics:
        for index, records in batches:
            partition = parts.replicas.partitions.get((name, index))
            if partition is None or len(records) < _PRODUCER_AT + _PRODUCER.size:
                continue
            if not records[ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
                continue
            producer_id, epoch = _PRODUCER.unpack_from(records, _PRODUCER_AT)
            if partition.open_epoch(producer_id) != epoch:
                producer = producer or ProducerIdAndEpoch(producer_id, epoch)
                if producer == (producer_id, epoch):
                    partitions.append(partition.topic_partition)
                else:
                    errors[partition.topic_partition] = _second_producer(producer_id)
    return (
        None
        if producer is None
        else TransactionalPartitions(producer, frozenset(partitions), errors)
    )


def _append(
    header: RequestHeader,
    request: ProduceRequest,
    size: int,
    errors: PartitionErrors,
    session: Session,
    parts: Parts,
    pending: Pending | None = None,
) -> Response:
    """Append all batches that are not refused, and respond: through `pending` if given."""
    version = header.api_version
    began_s = parts.loop.time() if parts.quotas.active else 0.0
    acks, timeout_ms, transactional_id, topics = request
    now_ms = parts.world.clock.now_ms()
    topic_results: TopicResults = []
    waiting: list[UncommittedResult] = []
    appends: list[Uncommitted] = []
    failed = ""
    for name, raw, partitions in topics:
        results: list[bytes] = []
        topic_results.append((raw, results))
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
                if len(records) > ATTRIBUTES_AT:
                    flags = records[ATTRIBUTES_AT]
                    if flags & TRANSACTIONAL_BIT:
                        if transactional_id is None:
                            raise KafkaError(ErrorCode.transactional_id_authorization_failed)
                        if partition.topic_partition in errors:
                            raise errors[partition.topic_partition]
                        if version >= FIRST_TO_ADD and len(records) >= HEADER_SIZE:
                            partition.check_first_sequence(
                                *_SEQUENCED.unpack_from(records, _PRODUCER_AT)
                            )
                    if version < FIRST_WITH_ZSTD and flags & COMPRESSION_MASK == Compression.zstd:
                        raise _zstd_not_known()
                first, last, append_time, log_start, _ = partition.append_as_leader(
                    records, acks, now_ms
                )
            except (KafkaError, StorageError) as error:
                failed = str(error)
                if partition is not None:
                    _count_failure(partition.meters, error, len(records))
                results.append(_error_result(version, index, error))
                continue
            meters.messages_in += last - first + 1
            meters.bytes_in += len(records)
            results.append(_appended(version, index, first, append_time, log_start))
            # Not committed yet: acks=all waits, and with flush.before.ack so does acks=1.
            if partition.log.high_watermark <= last:
                flushes = partition.log.config.flush_before_ack
                if acks == ALL_IN_SYNC or flushes:
                    waiting.append(UncommittedResult(results, len(results) - 1, index))
                    appends.append(Uncommitted(partition, partition.led_since, last + 1, acks))
                if flushes:
                    parts.replicas.flush_soon(partition)
            # A follower waits for appended records, a consumer for committed ones.
            parts.purgatory.check(partition.topic_partition)
    wait_ms = 0
    if parts.quotas.active:
        wait_ms = throttling.charge_produce(size, acks, began_s, header, session, parts)
    if acks == 0:
        if pending is not None:
            pending.complete(None)
        elif failed:
            raise ProtocolError(f"a record sent with acks=0 was refused: {failed}")
        return None
    if waiting:
        pending = pending or Pending(exclusive=False)
        deadline_s = parts.loop.time() + max(timeout_ms, 0) / 1000

        def on_committed(codes: Sequence[ErrorCode]) -> None:
            for (results, place, number), code in zip(waiting, codes, strict=True):
                if code is not ErrorCode.none:
                    results[place] = _failed(version, number, code)
            pending.complete(_write(header, topic_results, wait_ms))

        wait = when_committed(appends, parts.purgatory, deadline_s, on_committed)
        if wait is not None:
            pending.on_abandoned = wait.end
        return pending
    response = _write(header, topic_results, wait_ms)
    if pending is not None:
        pending.complete(response)
    return response


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


def _second_producer(producer_id: int) -> KafkaError:
    text = f"producer {producer_id} is not the only one with transactional records in the request"
    return KafkaError(ErrorCode.invalid_producer_id_mapping, text)


def _zstd_not_known() -> KafkaError:
    return KafkaError(
        ErrorCode.unsupported_compression_type,
        "Produce requests with version less than 7 are not allowed to use ZStandard compression",
    )


def _refuse_all(topic: Topic, version: int) -> tuple[bytes, list[bytes]]:
    _, raw, partitions = topic
    code = ErrorCode.invalid_required_acks
    return raw, [_failed(version, index, code) for index, _ in partitions]


def _read(frame: memoryview, at: int, version: int, parts: Parts) -> ProduceRequest:
    """Decode the request.  Raises ProtocolError."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _read_flexible(frame, at, version, parts)
        return _read_plain(frame, at)
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"a broken Produce request: {error}") from error


def _read_plain(frame: memoryview, at: int) -> ProduceRequest:
    (size,) = _I16.unpack_from(frame, at)
    at += 2
    transactional_id = None
    if size >= 0:
        transactional_id = bytes(frame[at : at + size]).decode()
        at += size
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, at)
    at += 10
    remaining = _less(MAX_PARTITIONS, count)
    topics: list[Topic] = []
    for _ in range(count):
        (size,) = _I16.unpack_from(frame, at)
        if size < 0:
            raise ProtocolError("a topic without a name")
        name = bytes(frame[at + 2 : at + 2 + size])
        at += 2 + size
        (partition_count,) = _I32.unpack_from(frame, at)
        remaining = _less(remaining, partition_count)
        at += 4
        partitions = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(frame, at)
            at += 8
            end = at + max(size, 0)
            if end > len(frame):
                raise ProtocolError("truncated Produce request")
            partitions.append((index, frame[at:end]))
            at = end
        topics.append((name.decode(), name, partitions))
    return acks, timeout_ms, transactional_id, topics


def _read_flexible(frame: memoryview, at: int, version: int, parts: Parts) -> ProduceRequest:
    uvarint = varint.decode_unsigned
    size, at = uvarint(frame, at)
    transactional_id = None
    if size > 0:
        transactional_id = bytes(frame[at : at + size - 1]).decode()
        at += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, at)
    count, at = uvarint(frame, at + 6)
    remaining = _less(MAX_PARTITIONS, count)
    topics: list[Topic] = []
    for _ in range(count - 1):
        name: str | None
        if version >= FIRST_WITH_TOPIC_IDS:
            raw = bytes(frame[at : at + 16])
            at += 16
            name = parts.metadata.current.topic_names.get(UUID(bytes=raw)) if any(raw) else None
        else:
            size, at = uvarint(frame, at)
            if size == 0:
                raise ProtocolError("a topic without a name")
            raw = bytes(frame[at : at + size - 1])
            at += size - 1
            name = raw.decode()
        partition_count, at = uvarint(frame, at)
        remaining = _less(remaining, partition_count)
        partitions = []
        for _ in range(partition_count - 1):
            (index,) = _I32.unpack_from(frame, at)
            size, at = uvarint(frame, at + 4)
            end = at + max(size - 1, 0)
            if end > len(frame):
                raise ProtocolError("truncated Produce request")
            partitions.append((index, frame[at:end]))
            at = _skip_tags(frame, end)
        at = _skip_tags(frame, at)
        topics.append((name, raw, partitions))
    return acks, timeout_ms, transactional_id, topics


def _less(remaining: int, count: int) -> int:
    if count > remaining:
        raise ProtocolError(f"a Produce request for more than {MAX_PARTITIONS} partitions")
    return remaining - max(count, 0)


def _skip_tags(frame: memoryview, at: int) -> int:
    if frame[at] == 0:
        return at + 1
    count, at = varint.decode_unsigned(frame, at)
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields")
    for _ in range(count):
        _tag, at = varint.decode_unsigned(frame, at)
        size, at = varint.decode_unsigned(frame, at)
        at += size
    return at


def _write(header: RequestHeader, topic_results: TopicResults, wait_ms: int = 0) -> bytes:
    version = header.api_version
    if version >= FIRST_FLEXIBLE:
        uvarint = varint.encode_unsigned
        parts = [b"\0", uvarint(len(topic_results) + 1)]  # the header's tagged fields come first
        for raw, results in topic_results:
            if version < FIRST_WITH_TOPIC_IDS:
                parts.append(uvarint(len(raw) + 1))
            parts += (raw, uvarint(len(results) + 1), *results, b"\0")
        parts += (_I32.pack(wait_ms), b"\0")  # tagged fields
    else:
        parts = [_I32.pack(len(topic_results))]
        for raw, results in topic_results:
            parts += (_I16.pack(len(raw)), raw, _I32.pack(len(results)), *results)
        parts.append(_I32.pack(wait_ms))
    body = b"".join(parts)
    return _HEAD.pack(len(body) + 4, header.correlation_id) + body


def _appended(version: int, index: int, offset: Offset, time: int, log_start: Offset) -> bytes:
    if version >= FIRST_FLEXIBLE:
        return _PARTITION_V9.pack(index, 0, offset, time, log_start, 1, 0, 0)
    if version >= 8:
        return _PARTITION_V8.pack(index, 0, offset, time, log_start, 0, -1)
    if version >= 5:
        return _PARTITION_V5.pack(index, 0, offset, time, log_start)
    return _PARTITION_V3.pack(index, 0, offset, time)


def _error_result(version: int, index: int, error: KafkaError | StorageError) -> bytes:
    if isinstance(error, StorageError):
        message = "The log has no room." if isinstance(error, NoRoom) else None
        return _failed(version, index, ErrorCode.kafka_storage_error, message)
    errors = error.record_errors if isinstance(error, InvalidRecords) else ()
    return _failed(version, index, error.code, error.message, errors)


def _failed(
    version: int,
    index: int,
    code: ErrorCode,
    message: str | None = None,
    errors: Sequence[RecordError] = (),
) -> bytes:
    if version < 5:
        return _PARTITION_V3.pack(index, code.value, -1, NO_TIMESTAMP)
    fixed = _PARTITION_V5.pack(index, code.value, -1, NO_TIMESTAMP, -1)
    if version < 8:
        return fixed
    if version < FIRST_FLEXIBLE:
        each = (_I32.pack(at) + _plain_string(text) for at, text in errors)
        return b"".join((fixed, _I32.pack(len(errors)), *each, _plain_string(message)))
    each = (_I32.pack(at) + _compact_string(text) + b"\0" for at, text in errors)
    count = varint.encode_unsigned(len(errors) + 1)
    return b"".join((fixed, count, *each, _compact_string(message), b"\0"))


def _plain_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()[: 2**15 - 1]
    return _I16.pack(len(data)) + data


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return varint.encode_unsigned(len(data) + 1) + data
