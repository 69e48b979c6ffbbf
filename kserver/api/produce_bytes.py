"""Produce requests and responses, by hand.

Pure: bytes and values only.

kio copies the record bytes out of the request, and takes 11 us to encode a response whose bytes are
known beforehand.  Property tests compare both directions with kio in every version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError, NoRoom, ProtocolError, StorageError
from kserver.log.validator import InvalidRecords, RecordError
from kserver.model import NO_TIMESTAMP, Offset
from kserver.wire import varint
from kserver.wire.codec import RequestHeader

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
MAX_PARTITIONS = 100_000
"""Maximum number of partitions and topics in a request: each takes more memory and time than its
encoded bytes."""

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


def read(
    frame: memoryview, at: int, version: int, topic_names: Mapping[UUID, str]
) -> ProduceRequest:
    """Decode the request; `topic_names` resolve topic ids.  Raises ProtocolError."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _read_flexible(frame, at, version, topic_names)
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


def _read_flexible(
    frame: memoryview, at: int, version: int, topic_names: Mapping[UUID, str]
) -> ProduceRequest:
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
            name = topic_names.get(UUID(bytes=raw)) if any(raw) else None
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
            at = varint.skip_tagged_fields(frame, end)
        at = varint.skip_tagged_fields(frame, at)
        topics.append((name, raw, partitions))
    return acks, timeout_ms, transactional_id, topics


def _less(remaining: int, count: int) -> int:
    if count > remaining:
        raise ProtocolError(f"a Produce request for more than {MAX_PARTITIONS} partitions")
    return remaining - max(count, 0)


def write(header: RequestHeader, topic_results: TopicResults, wait_ms: int = 0) -> bytes:
    """Encode the response; `wait_ms` is the throttle time."""
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


def appended(version: int, index: int, offset: Offset, time: int, log_start: Offset) -> bytes:
    """Encode the result of a partition whose batch was appended."""
    if version >= FIRST_FLEXIBLE:
        return _PARTITION_V9.pack(index, 0, offset, time, log_start, 1, 0, 0)
    if version >= 8:
        return _PARTITION_V8.pack(index, 0, offset, time, log_start, 0, -1)
    if version >= 5:
        return _PARTITION_V5.pack(index, 0, offset, time, log_start)
    return _PARTITION_V3.pack(index, 0, offset, time)


def refused(version: int, index: int, error: KafkaError | StorageError) -> bytes:
    """Encode the result of a partition whose batch was refused, with the records at fault."""
    if isinstance(error, StorageError):
        message = "The log has no room." if isinstance(error, NoRoom) else None
        return failed(version, index, ErrorCode.kafka_storage_error, message)
    errors = error.record_errors if isinstance(error, InvalidRecords) else ()
    return failed(version, index, error.code, error.message, errors)


def failed(
    version: int,
    index: int,
    code: ErrorCode,
    message: str | None = None,
    errors: Sequence[RecordError] = (),
) -> bytes:
    """Encode the result of a partition that failed with `code`."""
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
