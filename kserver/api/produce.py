"""Produce (key 0): v3-v13.

Behaviour:
- acks=0 is never answered; an error then closes the connection, the only way to tell the producer.
- acks=1 answers once the leader has appended, acks=-1 once the batch is below the high watermark,
  or with REQUEST_TIMED_OUT after the request's timeout (the batch stays in the log).  With
  `flush.before.ack` both wait until the batch is on disk.
- Every partition is answered on its own: one refused does not hold up the others.
- A batch that an idempotent producer sends again is answered as it was the first time.

Errors: INVALID_REQUIRED_ACKS, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
NOT_ENOUGH_REPLICAS, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER,
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE (no transactions yet), KAFKA_STORAGE_ERROR,
REQUEST_TIMED_OUT.

Versions:
- v3 transactional_id; v5 log_start_offset; v7 zstd; v8 record_errors (KIP-467); v9 flexible
- v10 current_leader (KIP-951); v12 adds the partition to the transaction (KIP-890)
- v13 topic ids (KIP-516)

Request and answer are read and written by hand here: kio copies the record bytes out of the
request, and takes 11 us to write an answer whose bytes are known beforehand.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from kserver.api.context import Parts, Session
from kserver.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kserver.model import NO_TIMESTAMP, Offset
from kserver.network.conversation import Answer, Pending
from kserver.replica.partition import Partition
from kserver.wire import varint
from kserver.wire.batch import COMPRESSION_MASK
from kserver.wire.codec import RequestHeader
from kserver.wire.compression import Compression

KEY, VERSIONS = 0, range(3, 14)

FIRST_WITH_ZSTD = 7
FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
ALL_IN_SYNC = -1
TRANSACTIONAL_BIT = 0x10
ATTRIBUTES_AT = 22
"""Of a batch's two attribute bytes, the one that holds flags."""

_ACKS_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_INDEX_SIZE = struct.Struct(">ii")
_HEAD = struct.Struct(">ii")
# Of one partition: index, error code, base offset, append time, log start offset; then no record
# errors, no message and, where flexible, no tagged fields.
_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_PARTITION_V8 = struct.Struct(">ihqqqih")
_PARTITION_V9 = struct.Struct(">ihqqqbbb")


class Topic(NamedTuple):
    name: str | None
    """None where the client named an id that this cluster does not have."""
    id: bytes
    """The 16 bytes of v13, else the name's bytes."""
    partitions: list[tuple[int, memoryview]]


class Result(NamedTuple):
    partition: int
    error: int = 0
    base_offset: Offset = -1
    append_time: int = NO_TIMESTAMP
    log_start_offset: Offset = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


class Uncommitted(NamedTuple):
    """An append that is answered once the high watermark has passed it."""

    results: list[Result]
    at: int
    partition: Partition
    end: Offset


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Answer:
    version = header.api_version
    acks, timeout_ms, topics = _read(frame, at, version, parts)
    if acks not in (-1, 0, 1):
        return _write(header, [(t.id, _refuse_all(t)) for t in topics])
    now_ms = parts.world.clock.now_ms()
    answered: list[tuple[bytes, list[Result]]] = []
    waiting: list[Uncommitted] = []
    failed = ""
    for topic in topics:
        results: list[Result] = []
        answered.append((topic.id, results))
        for index, records in topic.partitions:
            try:
                partition = parts.replicas.partitions.get((topic.name, index))
                if partition is None:
                    partition = _missing(topic, index, parts)
                if len(records) > ATTRIBUTES_AT:
                    flags = records[ATTRIBUTES_AT]
                    if flags & TRANSACTIONAL_BIT or (
                        version < FIRST_WITH_ZSTD and flags & COMPRESSION_MASK == Compression.zstd
                    ):
                        raise _not_served(flags)
                done = partition.append_as_leader(records, acks, now_ms)
            except KafkaError as error:
                failed = str(error)
                record_errors = getattr(error, "record_errors", ())
                results.append(
                    Result(
                        index, error.code.value, message=error.message, record_errors=record_errors
                    )
                )
                continue
            except StorageError as error:
                failed = str(error)
                results.append(Result(index, ErrorCode.kafka_storage_error.value))
                continue
            results.append(
                Result(index, 0, done.first_offset, done.log_append_time, done.log_start_offset)
            )
            if partition.log.high_watermark <= done.last_offset:
                flushes = partition.log.config.flush_before_ack
                if acks == ALL_IN_SYNC or flushes:
                    end = done.last_offset + 1
                    waiting.append(Uncommitted(results, len(results) - 1, partition, end))
                if flushes:
                    parts.replicas.flush_soon(partition)
            else:
                parts.purgatory.check(partition.topic_partition)
    if acks == 0:
        if failed:
            raise ProtocolError(f"a record sent with acks=0 was refused: {failed}")
        return None
    if waiting:
        return _when_committed(header, answered, waiting, timeout_ms, parts)
    return _write(header, answered)


def _when_committed(
    header: RequestHeader,
    answered: list[tuple[bytes, list[Result]]],
    waiting: list[Uncommitted],
    timeout_ms: int,
    parts: Parts,
) -> Answer:
    pending = Pending(exclusive=False)

    def ready() -> bool:
        for results, at, partition, end in waiting:
            if parts.replicas.partitions.get(partition.topic_partition) is not partition:
                results[at] = Result(
                    results[at].partition, ErrorCode.unknown_topic_or_partition.value
                )
            elif partition.log.high_watermark < end:
                return False
        pending.complete(_write(header, answered))
        return True

    def expired() -> None:
        for results, at, partition, end in waiting:
            if partition.log.high_watermark < end:
                results[at] = Result(results[at].partition, ErrorCode.request_timed_out.value)
        pending.complete(_write(header, answered))

    if not ready():
        keys = [w.partition.topic_partition for w in waiting]
        deadline_s = parts.loop.time() + max(timeout_ms, 0) / 1000
        pending.on_abandoned = parts.purgatory.wait(keys, ready, deadline_s, expired).end
    return pending


def _missing(topic: Topic, index: int, parts: Parts) -> Partition:
    if topic.name is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    return parts.replicas.get(topic.name, index)


def _not_served(flags: int) -> KafkaError:
    if flags & TRANSACTIONAL_BIT:
        return KafkaError(ErrorCode.invalid_txn_state, "this broker does not serve transactions")
    return KafkaError(
        ErrorCode.unsupported_compression_type,
        "Produce requests with version less than 7 are not allowed to use ZStandard compression",
    )


def _refuse_all(topic: Topic) -> list[Result]:
    code = ErrorCode.invalid_required_acks.value
    return [Result(index, code) for index, _ in topic.partitions]


def _read(frame: memoryview, at: int, version: int, parts: Parts) -> tuple[int, int, list[Topic]]:
    """acks, timeout in ms, and the topics with views of their records; raises ProtocolError."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _read_flexible(frame, at, version, parts)
        return _read_plain(frame, at)
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"a broken Produce request: {error}") from error


def _read_plain(frame: memoryview, at: int) -> tuple[int, int, list[Topic]]:
    (size,) = _I16.unpack_from(frame, at)
    at += 2 + max(size, 0)
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, at)
    at += 10
    topics = []
    for _ in range(count):
        (size,) = _I16.unpack_from(frame, at)
        if size < 0:
            raise ProtocolError("a topic without a name")
        name = bytes(frame[at + 2 : at + 2 + size])
        at += 2 + size
        (partition_count,) = _I32.unpack_from(frame, at)
        at += 4
        partitions = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(frame, at)
            at += 8
            end = at + max(size, 0)
            if end > len(frame):
                raise ProtocolError("a Produce request that is cut short")
            partitions.append((index, frame[at:end]))
            at = end
        topics.append(Topic(name.decode(), name, partitions))
    return acks, timeout_ms, topics


def _read_flexible(
    frame: memoryview, at: int, version: int, parts: Parts
) -> tuple[int, int, list[Topic]]:
    uvarint = varint.decode_unsigned
    size, at = uvarint(frame, at)
    at += max(size - 1, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, at)
    count, at = uvarint(frame, at + 6)
    topics = []
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
        partitions = []
        for _ in range(partition_count - 1):
            (index,) = _I32.unpack_from(frame, at)
            size, at = uvarint(frame, at + 4)
            end = at + max(size - 1, 0)
            if end > len(frame):
                raise ProtocolError("a Produce request that is cut short")
            partitions.append((index, frame[at:end]))
            at = _skip_tags(frame, end)
        at = _skip_tags(frame, at)
        topics.append(Topic(name, raw, partitions))
    return acks, timeout_ms, topics


def _skip_tags(frame: memoryview, at: int) -> int:
    if frame[at] == 0:
        return at + 1
    count, at = varint.decode_unsigned(frame, at)
    for _ in range(count):
        _tag, at = varint.decode_unsigned(frame, at)
        size, at = varint.decode_unsigned(frame, at)
        at += size
    return at


def _write(header: RequestHeader, answered: list[tuple[bytes, list[Result]]]) -> bytes:
    version = header.api_version
    if version >= FIRST_FLEXIBLE:
        body = _write_flexible(version, answered)
    else:
        body = _write_plain(version, answered)
    return _HEAD.pack(len(body) + 4, header.correlation_id) + body


def _write_plain(version: int, answered: list[tuple[bytes, list[Result]]]) -> bytes:
    parts = [_I32.pack(len(answered))]
    for name, results in answered:
        parts += (_I16.pack(len(name)), name, _I32.pack(len(results)))
        for index, error, offset, time, start, message, errors in results:
            if version < 5:
                parts.append(_PARTITION_V3.pack(index, error, offset, time))
            elif version < 8:
                parts.append(_PARTITION_V5.pack(index, error, offset, time, start))
            elif not error:
                parts.append(_PARTITION_V8.pack(index, error, offset, time, start, 0, -1))
            else:
                parts += (
                    _PARTITION_V5.pack(index, error, offset, time, start),
                    _I32.pack(len(errors)),
                    *(_I32.pack(at) + _plain_string(text) for at, text in errors),
                    _plain_string(message),
                )
    parts.append(b"\0\0\0\0")  # throttle time
    return b"".join(parts)


def _write_flexible(version: int, answered: list[tuple[bytes, list[Result]]]) -> bytes:
    uvarint = varint.encode_unsigned
    parts = [b"\0", uvarint(len(answered) + 1)]  # the header's tagged fields come first
    for name, results in answered:
        if version < FIRST_WITH_TOPIC_IDS:
            parts.append(uvarint(len(name) + 1))
        parts += (name, uvarint(len(results) + 1))
        for index, error, offset, time, start, message, errors in results:
            if not error:
                parts.append(_PARTITION_V9.pack(index, error, offset, time, start, 1, 0, 0))
            else:
                parts += (
                    _PARTITION_V5.pack(index, error, offset, time, start),
                    uvarint(len(errors) + 1),
                    *(_I32.pack(at) + _compact_string(text) + b"\0" for at, text in errors),
                    _compact_string(message),
                    b"\0",
                )
        parts.append(b"\0")
    parts.append(b"\0\0\0\0\0")  # throttle time, tagged fields
    return b"".join(parts)


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
