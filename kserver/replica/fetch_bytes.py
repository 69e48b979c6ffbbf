"""A follower's Fetch, by hand: encodes the request, decodes the response.

Pure: bytes and values only.

Records are not copied: they go from the response's frame into the log.  Property tests compare both
directions with kio in every version, as they do for the leader's side (api/fetch_bytes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kserver.errors import ProtocolError
from kserver.model import BrokerId, Offset
from kserver.replica.follower_session import PartitionKey, Position, SessionRequest
from kserver.replica.truncation import DivergingEpoch
from kserver.wire import varint

FIRST_VERSION, LAST_VERSION = 13, 17
"""From the first version with topic ids (KIP-516) to the last that matters to a follower."""
FIRST_WITH_REPLICA_STATE = 15

_REPLICA = struct.Struct(">i")
# max wait, min bytes, max bytes, isolation level, session id and epoch
_LIMITS = struct.Struct(">iiibii")
# index, current leader epoch, offset, last fetched epoch, log start offset, max bytes, no tags
_PARTITION_REQUEST = struct.Struct(">iiqiqib")
# One tagged field, number 1, of 13 bytes: replica id and epoch, no tags (KIP-903)
_REPLICA_STATE = struct.Struct(">bbbiqb")
_INDEX = struct.Struct(">i")
# correlation id, no tags, throttle time, error code, session id
_HEAD = struct.Struct(">ibihi")
# index, error code, high watermark, last stable offset, log start offset
_FIXED = struct.Struct(">ihqqq")
_DIVERGING = struct.Struct(">iq")
_ABORTED_SIZE = 16
_PREFERRED_SIZE = 4
_DIVERGING_TAG = 0


class FetchRequestLimits(NamedTuple):
    """Limits of one fetch; times in milliseconds."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class FetchedPartition(NamedTuple):
    """One partition of the response; `records` is a view of the frame."""

    key: PartitionKey
    error_code: int
    high_watermark: Offset
    log_start_offset: Offset
    records: memoryview
    diverging: DivergingEpoch | None


class FetchResponse(NamedTuple):
    throttle_ms: int
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]


def write_request(
    version: int,
    replica: BrokerId,
    broker_epoch: int,
    limits: FetchRequestLimits,
    request: SessionRequest,
) -> bytes:
    """Return the request body, for `Peer.send`."""
    pieces = []
    if version < FIRST_WITH_REPLICA_STATE:
        pieces.append(_REPLICA.pack(replica))
    pieces.append(
        _LIMITS.pack(
            limits.max_wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            0,
            request.session_id,
            request.epoch,
        )
    )
    max_bytes = limits.partition_max_bytes
    pieces += _topics(
        (key, _partition(key, position, max_bytes)) for key, position in request.positions.items()
    )
    pieces += _topics((key, _INDEX.pack(key[1])) for key in request.forgotten)
    pieces.append(b"\1")  # no rack
    if version < FIRST_WITH_REPLICA_STATE:
        pieces.append(b"\0")
    else:
        pieces.append(_REPLICA_STATE.pack(1, 1, 13, replica, broker_epoch, 0))
    return b"".join(pieces)


def _partition(key: PartitionKey, position: Position, max_bytes: int) -> bytes:
    leader_epoch, offset, last_epoch, log_start_offset = position
    return _PARTITION_REQUEST.pack(
        key[1], leader_epoch, offset, last_epoch, log_start_offset, max_bytes, 0
    )


def _topics(partitions: Iterable[tuple[PartitionKey, bytes]]) -> list[bytes]:
    by_topic: dict[bytes, list[bytes]] = {}
    for (topic_id, _), piece in partitions:
        by_topic.setdefault(topic_id, []).append(piece)
    pieces = [varint.encode_unsigned(len(by_topic) + 1)]
    for topic_id, of_topic in by_topic.items():
        pieces += (topic_id, varint.encode_unsigned(len(of_topic) + 1), *of_topic, b"\0")
    return pieces


def read_response(frame: memoryview) -> FetchResponse:
    """Decode the response; all supported versions have the same shape.  Raises ProtocolError."""
    try:
        return _read_response(frame)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a broken Fetch response: {error}") from error


def _read_response(frame: memoryview) -> FetchResponse:
    _, tags, throttle_ms, code, session_id = _HEAD.unpack_from(frame)
    if tags:
        raise ProtocolError("a Fetch response with tagged fields in its header")
    at = _HEAD.size
    partitions: list[FetchedPartition] = []
    topics, at = varint.decode_unsigned(frame, at)
    for _ in range(topics - 1):
        topic_id = bytes(frame[at : at + 16])
        count, at = varint.decode_unsigned(frame, at + 16)
        for _ in range(count - 1):
            partition, at = _read_partition(frame, at, topic_id)
            partitions.append(partition)
        at = _skip_tags(frame, at)
    _skip_tags(frame, at)
    return FetchResponse(throttle_ms, code, session_id, partitions)


def _read_partition(frame: memoryview, at: int, topic_id: bytes) -> tuple[FetchedPartition, int]:
    index, code, high_watermark, _, log_start_offset = _FIXED.unpack_from(frame, at)
    aborted, at = varint.decode_unsigned(frame, at + _FIXED.size)
    for _ in range(aborted - 1):
        at = _skip_tags(frame, at + _ABORTED_SIZE)
    size, at = varint.decode_unsigned(frame, at + _PREFERRED_SIZE)
    end = at + max(size - 1, 0)
    if end > len(frame):
        raise ProtocolError("truncated Fetch response")
    records = frame[at:end]
    diverging = None
    if frame[end] == 0:
        at = end + 1
    else:
        diverging, at = _read_tags(frame, end)
    return (
        FetchedPartition(
            (topic_id, index), code, high_watermark, log_start_offset, records, diverging
        ),
        at,
    )


def _read_tags(frame: memoryview, at: int) -> tuple[DivergingEpoch | None, int]:
    diverging = None
    count, at = varint.decode_unsigned(frame, at)
    for _ in range(count):
        tag, at = varint.decode_unsigned(frame, at)
        size, at = varint.decode_unsigned(frame, at)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _DIVERGING.unpack_from(frame, at)
            diverging = DivergingEpoch(epoch, end_offset) if epoch >= 0 else None
        at += size
        if at > len(frame):
            raise ProtocolError("truncated tagged field")
    return diverging, at


def _skip_tags(frame: memoryview, at: int) -> int:
    if frame[at] == 0:
        return at + 1
    return _read_tags(frame, at)[1]
