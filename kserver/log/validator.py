"""Validation of record batches before they are appended, and the fields that the leader stamps.

Pure: bytes in, the same bytes out with offset and leader epoch patched in place.

    check (in this order)                                       refused with
    one whole batch of magic 2, nothing after it                INVALID_RECORD, CORRUPT_MESSAGE
    a client's base offset is 0                                 INVALID_RECORD
    size <= max.message.bytes (as sent, and as rebuilt)         MESSAGE_TOO_LARGE
    CRC-32C                                                     CORRUPT_MESSAGE
    codec known                                                 UNSUPPORTED_COMPRESSION_TYPE
    lz4 blocks do not depend on each other                      INVALID_RECORD
    record count = last offset delta + 1 >= 1                   INVALID_RECORD
    no control batch from a client                              INVALID_RECORD
    epoch and (from a client) sequence >= 0 with a producer id  INVALID_RECORD
    transactional only with a producer id                       INVALID_RECORD
    timestamps within the bounds; of the type LogAppendTime     INVALID_TIMESTAMP
        only to a CreateTime topic, which then sets CreateTime
    every record has a key (compacted, from a client)           INVALID_RECORD
    records can be decompressed (when walked)                   INVALID_RECORD
    records decode, offset deltas 0, 1, 2 ... (when walked)     INVALID_RECORD
    decompressed to <= 16 x max.message.bytes (when walked)     MESSAGE_TOO_LARGE

A client's records are walked with `validate.records=full`, the default: by wire/_walk.c, and, if
that finds an invalid one, once more in Python, which names it.  With `header` they are walked only
if the header does not suffice (compacted topic, a timestamp out of bounds or below -1, base
timestamp above the maximum) or if they must be rebuilt (compression.type names another codec).  A
maximum timestamp that a walk finds wrong is corrected, as in Kafka.  Timestamps before 1970 are
accepted; if a batch has no later ones, its maximum becomes -1, so no look-up by time finds it.

Log/producer_state checks sequences, log/log checks segment.bytes.  Kafka: ProduceRequest
(validateRecords), UnifiedLog (analyzeAndValidateRecords), LogValidator.

Stricter than Kafka, which accepts these:

- bytes after the batch, and a producer id without an epoch
- uncompressed records whose offset deltas are not 0, 1, 2 ... (a Java consumer returns each offset
  once, so it skips records that repeat one)
- what wire/compression is stricter about
- batches that decompress to very much: Kafka streams them; here one batch at a time is in memory,
  since an invalid record is named and compression.type compresses the batch again

More lenient: an unknown codec, and data that cannot be decompressed, are UNKNOWN_SERVER_ERROR in
Kafka; records from before 1970 may be compressed again, which is UNKNOWN_SERVER_ERROR there too.
"""

from __future__ import annotations

import struct
from builtins import memoryview  # mypyc looks a field's type up among the module's names
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import NO_TIMESTAMP, LeaderEpoch, Offset, ProducerId
from kserver.wire.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    RecordBatch,
    RecordReader,
)
from kserver.wire.checksum import crc32c
from kserver.wire.compression import Compression, Oversized, compress, has_linked_blocks
from kserver.wire.walk import largest_timestamp

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig


class Origin(Enum):
    """Source of a batch: a client's is trusted least, one replicated from a leader most."""

    client = "client"
    coordinator = "coordinator"
    replication = "replication"


class ValidBatch(NamedTuple):
    """One batch in the buffer that is written, with the fields that log, index and producers need.

    The offset that the time index pairs with `max_timestamp` is `last_offset` (KAFKA-17061).
    """

    position: int
    """Position of its first byte in the buffer."""
    size: int
    """Bytes of the whole batch, header included."""
    base_offset: Offset
    last_offset: Offset
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int
    attributes: int
    leader_epoch: LeaderEpoch


class Appended(NamedTuple):
    first_offset: Offset
    last_offset: Offset
    log_append_time: int
    """Timestamp in ms; -1 if the producer's timestamps are kept."""
    log_start_offset: Offset
    duplicate: bool = False
    """Whether the batch was appended before; the offsets are those of the first time."""


class Validated(NamedTuple):
    """Data to write: `buffer` is the validated one, stamped, or a rebuilt one."""

    buffer: memoryview
    batches: Sequence[ValidBatch]
    log_append_time_ms: int
    """NO_TIMESTAMP if the producer's timestamps are kept."""


class RecordError(NamedTuple):
    batch_index: int
    """Index of the record in its batch."""
    message: str


class InvalidRecords(KafkaError):
    """A batch refused because of some records, which the Produce response names (KIP-467)."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


_new_tuple = tuple.__new__

_LAST_CODEC = max(Compression)
_KEPT_BITS = COMPRESSION_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON
"""Attributes of a batch that remain when they are rewritten, as in Kafka."""
_TARGETS = {"uncompressed": 0} | {codec.name: codec.value for codec in Compression if codec}
"""compression.type to the codec's id; "producer" keeps the codec of the batch."""

_UNFOLDED_TIMES, _UNFOLDED_BYTES = 16, 1 << 20
"""Limit of a decompressed batch: this many times max.message.bytes, at least these bytes."""
_EARLIEST, _LATEST = -1 << 63, (1 << 63) - 1
_WALKED_AT_ONCE = 4096
_MAX_RECORD_ERRORS = 100
"""Maximum number of refused records that a response names."""

_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")
_MAGIC_AT = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_SHORTEST_MESSAGE = 14
"""Minimum length of a message in any format, including those before batches."""


def validate(
    records: memoryview,
    config: TopicConfig,
    now_ms: int,
    *,
    origin: Origin,
    first_offset: Offset,
    leader_epoch: LeaderEpoch,
    compacted: bool,
) -> Validated:
    """Validate the one batch that a leader appends, and stamp it.

    `records` is writable.  Raises KafkaError as in the table above; a refused batch is not changed.
    """
    # The header first: its checks are cheap, and decide whether the records must be walked.
    size = len(records)
    if size < HEADER_SIZE:
        raise _not_one_batch(records)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = HEADER.unpack_from(records)
    if length + LOG_OVERHEAD != size or magic != MAGIC:
        raise _not_one_batch(records)
    if base_offset != 0 and origin is Origin.client:
        raise _invalid(f"The base offset of a produced batch must be 0, but is {base_offset}")
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    if crc32c(records[CRC_START:]) != crc:
        raise KafkaError(ErrorCode.corrupt_message, f"The CRC of the batch is not {crc}")
    _check_attributes(records, attributes, count, last_offset_delta, origin)
    if producer_id >= 0:
        if base_sequence < 0 and origin is Origin.client:
            raise _invalid(f"Invalid sequence {base_sequence} of producer {producer_id}")
        if producer_epoch < 0:
            raise _invalid(f"Invalid epoch {producer_epoch} of producer {producer_id}")
    elif attributes & TRANSACTIONAL:
        raise _invalid("A transactional batch must have a producer id")

    # The timestamps that the topic accepts; with LogAppendTime it sets them itself.
    create_time = config.message_timestamp_type == "CreateTime"
    earliest, latest = _EARLIEST, _LATEST
    if create_time:
        earliest = now_ms - config.message_timestamp_before_max_ms
        latest = min(now_ms + config.message_timestamp_after_max_ms, _LATEST)
    claims_append_time = attributes & LOG_APPEND_TIME != 0
    if claims_append_time and not (
        create_time and max_timestamp != NO_TIMESTAMP and earliest <= max_timestamp <= latest
    ):
        raise KafkaError(
            ErrorCode.invalid_timestamp, "Producers may not set the timestamp type LogAppendTime"
        )

    # The records, if the header does not suffice.  A coordinator's have their keys.
    codec = attributes & COMPRESSION_MASK
    keyed = compacted and origin is Origin.client
    rebuild = _must_rebuild(config, attributes)
    times_suffice = not create_time or (
        not claims_append_time
        and NO_TIMESTAMP <= base_timestamp <= max_timestamp <= latest
        and earliest <= base_timestamp
    )
    is_walked = config.validate_records == "full" and origin is Origin.client
    if is_walked or rebuild or keyed or not times_suffice:
        unfolded = _unfolded(records, config) if codec else records[HEADER_SIZE:]
        largest = largest_timestamp(unfolded, count, base_timestamp, earliest, latest, keyed)
        if largest is None:
            # One is invalid, which Python names; or the extension is missing.
            largest = _walk(RecordBatch(records), bytes(unfolded), earliest, latest, keyed)
        if rebuild:
            attributes = attributes & (TRANSACTIONAL | CONTROL) | _TARGETS[config.compression_type]
            max_timestamp = largest
            records = _rebuilt(records, unfolded, config)
            size = len(records)
            if size > config.max_message_bytes:
                raise _too_large(size, config)
            _stamp_time(records, attributes, max_timestamp)
        elif create_time and (largest != max_timestamp or claims_append_time):
            attributes &= _KEPT_BITS
            max_timestamp = largest
            _stamp_time(records, attributes, max_timestamp)

    # All is valid: stamp what the leader decides.
    _OFFSET_LENGTH_EPOCH.pack_into(records, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
    if not create_time:
        attributes = attributes & _KEPT_BITS | LOG_APPEND_TIME
        max_timestamp = now_ms
        _stamp_time(records, attributes, max_timestamp)
    # Avoid the Python-level constructors, which cost as much as all checks of the header.
    batch = _new_tuple(
        ValidBatch,
        (
            0,
            size,
            first_offset,
            first_offset + last_offset_delta,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
            attributes,
            leader_epoch,
        ),
    )
    return _new_tuple(Validated, (records, (batch,), NO_TIMESTAMP if create_time else now_ms))


def _check_attributes(
    records: memoryview, attributes: int, count: int, last_offset_delta: int, origin: Origin
) -> None:
    """Check the batch's codec, its count of records, and that no client writes control records."""
    codec = attributes & COMPRESSION_MASK
    if codec > _LAST_CODEC:
        raise KafkaError(
            ErrorCode.unsupported_compression_type, f"Unknown compression type id: {codec}"
        )
    if codec == Compression.lz4 and has_linked_blocks(records[HEADER_SIZE:]):
        raise _invalid(
            "The lz4 blocks of the batch depend on each other, which Java's clients cannot read; "
            "compress them independently (block_linked=False in Python's lz4.frame)"
        )
    if count < 1 or count != last_offset_delta + 1:
        raise _invalid(
            f"The batch claims {count} records, but its last offset delta is {last_offset_delta}"
        )
    if origin is Origin.client and attributes & CONTROL:
        raise _invalid("Clients are not allowed to write control records")


def _must_rebuild(config: TopicConfig, attributes: int) -> bool:
    """Return whether the topic asks for another codec; an uncompressed control batch stays so."""
    target, codec = config.compression_type, attributes & COMPRESSION_MASK
    return (
        target != "producer"
        and _TARGETS[target] != codec
        and not (attributes & CONTROL and codec == 0)
    )


def validate_replicated(records: memoryview, next_offset: Offset) -> Validated:
    """Validate a fetched batch sequence; the leader's offsets and epochs stay.

    An incomplete batch at the end, as fetches may have, is left out of `buffer`.  Raises
    CORRUPT_MESSAGE if the bytes are wrong, INVALID_RECORD if offsets go back or the first is below
    `next_offset`, the log's end.
    """
    batches = []
    position = 0
    while len(records) - position >= HEADER_SIZE:
        (
            base_offset,
            length,
            epoch,
            magic,
            crc,
            attributes,
            last_offset_delta,
            _,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ) = HEADER.unpack_from(records, position)
        size = length + LOG_OVERHEAD
        if magic != MAGIC or size < HEADER_SIZE:
            raise KafkaError(
                ErrorCode.corrupt_message, f"Not a batch at {position}: magic {magic}, size {size}"
            )
        end = position + size
        if end > len(records):
            break
        if crc32c(records[position + CRC_START : end]) != crc:
            raise KafkaError(
                ErrorCode.corrupt_message, f"The CRC of the batch at offset {base_offset} is wrong"
            )
        if base_offset < next_offset or last_offset_delta < 0:
            raise _invalid(
                f"Batch {base_offset} to {base_offset + last_offset_delta} does not follow on "
                f"{next_offset - 1}"
            )
        last_offset = base_offset + last_offset_delta
        batches.append(
            ValidBatch(
                position,
                size,
                base_offset,
                last_offset,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
                attributes,
                epoch,
            )
        )
        next_offset = last_offset + 1
        position = end
    return Validated(records[:position], batches, NO_TIMESTAMP)


def _unfolded(records: memoryview, config: TopicConfig) -> bytes:
    """Return the decompressed records.

    Raises MESSAGE_TOO_LARGE above the broker's limit, on which Java's producer splits the batch.
    """
    limit = max(_UNFOLDED_BYTES, _UNFOLDED_TIMES * config.max_message_bytes)
    batch = RecordBatch(records)
    try:
        return batch.unfolded(limit)
    except Oversized as error:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"The record batch decompresses to more than {limit} bytes, the limit for validation"
            f" with max.message.bytes={config.max_message_bytes}",
        ) from error
    except KafkaError as error:
        # Java's producers retry a batch endlessly on CORRUPT_MESSAGE.
        text = f"The records of the batch cannot be decompressed: {error.message}"
        raise _invalid(text) from error


def _walk(batch: RecordBatch, unfolded: bytes, earliest: int, latest: int, keyed: bool) -> int:
    """Validate every record, and return the largest of their own timestamps.

    Raises InvalidRecords naming the records that are refused.  Decoding checks that the count
    matches the header and that no byte is left.  Since offset deltas rise, and end at the count
    less one, they are 0, 1, 2 ...
    """
    largest = NO_TIMESTAMP
    errors: list[RecordError] = []
    bad_keys = bad_timestamps = index = 0
    try:
        reader = RecordReader(
            unfolded, batch.count, 0, batch.last_offset_delta, batch.base_timestamp, None
        )
        while reader.remaining:
            for _, timestamp, key, _, _ in reader.take(_WALKED_AT_ONCE):
                if timestamp > largest:
                    largest = timestamp
                if keyed and key is None:
                    bad_keys += 1
                    text = "Compacted topic cannot accept message without key"
                elif timestamp != NO_TIMESTAMP and not (earliest <= timestamp <= latest):
                    bad_timestamps += 1
                    text = f"Timestamp {timestamp} is not in [{earliest}, {latest}]"
                else:
                    index += 1
                    continue
                if len(errors) < _MAX_RECORD_ERRORS:
                    errors.append(RecordError(index, text))
                index += 1
    except ProtocolError as error:
        raise _invalid(f"The records of the batch cannot be read: {error}") from error
    if bad_timestamps:
        raise InvalidRecords(
            ErrorCode.invalid_timestamp,
            "One or more records have been rejected due to invalid timestamp",
            tuple(errors),
        )
    if bad_keys:
        raise InvalidRecords(
            ErrorCode.invalid_record,
            f"One or more records have been rejected due to {bad_keys} record errors",
            tuple(errors),
        )
    return largest


def _rebuilt(records: memoryview, unfolded: bytes | memoryview, config: TopicConfig) -> memoryview:
    """Return the batch with its records compressed as the topic is configured.  Its header still
    has the old codec; `_stamp_time` sets it."""
    codec = Compression(_TARGETS[config.compression_type])
    body = compress(codec, unfolded, _level(codec, config))
    return memoryview(bytearray(records[:HEADER_SIZE]) + body)


def _level(codec: Compression, config: TopicConfig) -> int | None:
    match codec:
        case Compression.gzip:
            return config.compression_gzip_level
        case Compression.lz4:
            return config.compression_lz4_level
        case Compression.zstd:
            return config.compression_zstd_level
        case _:
            return None


def _stamp_time(records: memoryview, attributes: int, max_timestamp: int) -> None:
    _ATTRIBUTES.pack_into(records, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(records, _MAX_TIMESTAMP_AT, max_timestamp)
    _CRC.pack_into(records, _CRC_AT, crc32c(records[CRC_START:]))


def _not_one_batch(records: memoryview) -> KafkaError:
    """Return the error for bytes that are not exactly one batch of magic 2."""
    arrived = len(records)
    if arrived <= _MAGIC_AT:
        return _invalid("Produce requests must have at least one record batch per partition")
    _, length, _ = _OFFSET_LENGTH_EPOCH.unpack_from(records)
    magic = records[_MAGIC_AT]
    size = length + LOG_OVERHEAD
    if length < _SHORTEST_MESSAGE or (magic == MAGIC and size < HEADER_SIZE):
        return KafkaError(ErrorCode.corrupt_message, f"The batch claims a length of {length} bytes")
    if magic > MAGIC:
        return KafkaError(ErrorCode.corrupt_message, f"Invalid magic found in record: {magic}")
    if size > arrived:
        return _invalid(f"The record batch claims {size} bytes, but {arrived} were received")
    if magic < MAGIC:
        return _invalid(
            f"Produce requests may only contain record batches with magic version 2, not {magic}"
        )
    return _invalid("Produce requests must contain exactly one record batch per partition")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)


def _too_large(size: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.message_too_large,
        f"The record batch is {size} bytes, which exceeds max.message.bytes of "
        f"{config.max_message_bytes}",
    )
