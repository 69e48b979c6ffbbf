"""Produce requests (key 0), framed by hand around the batches' bytes.

Pure: values to bytes. kio's writer would copy every record once more; here the batches go to the
socket as they are, between small pieces that name their partitions.

Versions: v3-v8 with plain lengths, v9-v12 flexible, v13 with topic ids instead of names (KIP-516).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from kserver.errors import ErrorCode, ProtocolError
from kserver.model import Offset
from kserver.wire import codec, varint
from kserver.wire.api_key import ApiKey

FIRST_FLEXIBLE = 9
BY_TOPIC_ID = 13

_HEAD = struct.Struct(">hi")
_COUNT = struct.Struct(">i")
_PARTITION = struct.Struct(">ii")
_INDEX = struct.Struct(">i")


class PartitionProduceData(NamedTuple):
    """One partition's batch; `topic` is the topic's name, from v13 on its id."""

    topic: str | UUID
    partition: int
    header: bytes
    records: bytes


class PartitionProduceResponse(NamedTuple):
    """A partition's part of the response; `append_time` is -1 unless the broker sets timestamps."""

    error: ErrorCode
    message: str
    offset: Offset
    append_time: int
    bad_records: tuple[tuple[int, str], ...]
    """Index and reason of the records that caused the batch to be refused (KIP-467)."""


def request_body(
    version: int,
    parts: Sequence[PartitionProduceData],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[bytes]:
    """Return the pieces of a request's body, with the batches' records not copied."""
    topics: dict[str | UUID, list[PartitionProduceData]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    flexible = version >= FIRST_FLEXIBLE
    if transactional_id is None:
        head = b"\0" if flexible else b"\xff\xff"
    else:
        head = _name(transactional_id, flexible)
    head += _HEAD.pack(acks, timeout_ms) + _length(len(topics), flexible)
    pieces: list[bytes] = []
    for topic, of_topic in topics.items():
        head += _topic(topic, flexible) + _length(len(of_topic), flexible)
        for _, partition, header, records in of_topic:
            size = len(header) + len(records)
            if flexible:
                head += _INDEX.pack(partition) + varint.encode_unsigned(size + 1)
            else:
                head += _PARTITION.pack(partition, size)
            pieces += (head + header, records)
            head = b"\0" if flexible else b""
        if flexible:
            head += b"\0"
    if flexible:
        head += b"\0"
    return [*pieces, head] if head else pieces


def _length(count: int, flexible: bool) -> bytes:
    return varint.encode_unsigned(count + 1) if flexible else _COUNT.pack(count)


def _topic(topic: str | UUID, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    return _name(topic, flexible)


def _name(text: str, flexible: bool) -> bytes:
    name = text.encode()
    size = varint.encode_unsigned(len(name) + 1) if flexible else struct.pack(">h", len(name))
    return size + name


class ProduceResponse(NamedTuple):
    partition_responses: dict[tuple[str | UUID, int], PartitionProduceResponse]
    throttle_ms: float


def read_response(version: int, frame: memoryview) -> ProduceResponse:
    """Decode a response, by topic (name or id, as in the request) and partition."""
    try:
        response = _read_plain(version, frame)
    except (struct.error, IndexError, ValueError):
        response = None
    return response or _read_any(version, frame)


_FIXED = struct.Struct(">ihqqq")
_FIXED_BEFORE_V5 = struct.Struct(">ihqq")


def _read_plain(version: int, frame: memoryview) -> ProduceResponse | None:
    """Decode the common response by hand, in a tenth of kio's time. Return None for others: those
    with messages, refused records, tagged fields, or long counts.
    """
    flexible = version >= FIRST_FLEXIBLE
    fixed = _FIXED if version >= 5 else _FIXED_BEFORE_V5
    # If nothing is refused: no record errors, no message, no tagged fields.
    rest = b"\x01\0\0" if flexible else b"\0\0\0\0\xff\xff" if version >= 8 else b""
    at = 5 if flexible else 4
    if flexible and frame[4]:
        return None
    partition_responses: dict[tuple[str | UUID, int], PartitionProduceResponse] = {}
    topics, at = _read_length(frame, at, flexible)
    for _ in range(topics):
        topic: str | UUID
        if version >= BY_TOPIC_ID:
            topic = UUID(bytes=bytes(frame[at : at + 16]))
            at += 16
        elif flexible:
            if frame[at] >= 0x80:
                return None
            end = at + frame[at]
            topic = str(frame[at + 1 : end], "utf-8")
            at = end
        else:
            end = at + 2 + int.from_bytes(frame[at : at + 2])
            topic = str(frame[at + 2 : end], "utf-8")
            at = end
        partitions, at = _read_length(frame, at, flexible)
        for _ in range(partitions):
            index, code, offset, append_time = fixed.unpack_from(frame, at)[:4]
            at += fixed.size
            if frame[at : at + len(rest)] != rest:
                return None
            at += len(rest)
            partition_responses[topic, index] = PartitionProduceResponse(
                ErrorCode(code), "", offset, append_time, ()
            )
        if flexible:
            if frame[at]:
                return None
            at += 1
    (throttle_ms,) = _COUNT.unpack_from(frame, at)
    whole = at + 4 + flexible == len(frame) and not (flexible and frame[at + 4])
    return (
        ProduceResponse(partition_responses, throttle_ms) if whole and partition_responses else None
    )


def _read_length(frame: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """Return a count below 127 and the position after it. Raises ValueError for others."""
    if flexible:
        count, at = frame[at] - 1, at + 1
    else:
        (count,) = _COUNT.unpack_from(frame, at)
        at += 4
    if not 0 <= count < 127:
        raise ValueError(count)
    return count, at


def _read_any(version: int, frame: memoryview) -> ProduceResponse:
    _, response = codec.read_response(ApiKey.PRODUCE, version, frame)
    partition_responses: dict[tuple[str | UUID, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        topic_key = topic.topic_id if version >= BY_TOPIC_ID else topic.name
        for p in topic.partition_responses:
            appended = p.log_append_time
            partition_responses[topic_key, p.index] = PartitionProduceResponse(
                p.error_code,
                getattr(p, "error_message", None) or "",
                p.base_offset,
                -1 if appended is None else round(appended.timestamp() * 1000),
                tuple(
                    (bad.batch_index, bad.batch_index_error_message or "")
                    for bad in getattr(p, "record_errors", ())
                ),
            )
    if not partition_responses:
        raise ProtocolError("an answer to Produce that names no partition")
    return ProduceResponse(partition_responses, response.throttle_time / timedelta(milliseconds=1))
