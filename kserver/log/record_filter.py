"""Which records of a compacted log stay, and the batch that is left of a batch.

Pure: bytes in, bytes out.

    a record                                               stays
    after the last offset that the map of keys has seen    yes
    of an aborted transaction                              no
    without a key                                          no
    its key came again later                               no
    a tombstone whose batch's delete horizon has passed    no
    any other                                              yes

    a batch of which no record stays                       becomes
    the last of a producer that may write on               an empty batch: its sequence is needed
    the last of what is cleaned                            an empty batch: consumers get past it
    any other                                              nothing

A marker stays as long as its transaction has records, and then until its own delete horizon.  The
horizon, `now + delete.retention.ms`, is written into a batch when a cleaning first meets it with a
tombstone, or as the marker of an emptied transaction (KIP-534): who reads from the start within
that time sees each deletion.

A batch of which all stays keeps its bytes.  In one that changes, offsets, sequences and timestamps
stay as they were, and so do the bytes of each record but for its timestamp delta, which counts from
the horizon once there is one.

Kafka: LogCleaner, MemoryRecords.filterTo, CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from kserver.errors import ProtocolError
from kserver.log.segment import Header
from kserver.log.transaction_index import AbortedTransaction
from kserver.model import Offset, ProducerId
from kserver.wire import varint
from kserver.wire.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_RECORDS_BYTES,
    TRANSACTIONAL,
    ControlType,
    RecordBatch,
)
from kserver.wire.checksum import crc32c
from kserver.wire.compression import Compression, compress
from kserver.wire.records import NULL, long_length

ENTRY_BYTES = 144
"""A key of the map takes so much memory at most: its digest, its offset, its place in a dict."""
DIGEST_BYTES = 15
"""A bytes object of 48 bytes can hold so many; two keys of 10^9 are alike once in 10^18."""


class KeyMap:
    """The newest offset of each key in what is dirty, as many keys as `capacity_bytes` hold.

    A short key stands for itself, a longer one's digest for it: nobody can make two that are alike
    (Kafka takes MD5, with which somebody can).
    """

    __slots__ = ("_capacity", "_offsets", "next_offset")

    def __init__(self, capacity_bytes: int) -> None:
        self.next_offset: Offset = 0
        """All below it was looked at."""
        self._capacity = max(1, capacity_bytes // ENTRY_BYTES)
        self._offsets: dict[bytes, Offset] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, count: int) -> bool:
        """For so many keys more; one batch always fits, else cleaning would never end."""
        return not self._offsets or len(self._offsets) + count <= self._capacity

    def note(self, header: Header, unfolded: bytes) -> None:
        """The records of a batch that counts."""
        offsets, base = self._offsets, header.base_offset
        for record in scan(unfolded, header.record_count):
            if (key := record[5]) is not None:
                offsets[_compact(key)] = base + record[4]

    def newest(self, key: bytes) -> Offset:
        """-1 where the key was not met."""
        return self._offsets.get(_compact(key), -1)


def _compact(key: bytes) -> bytes:
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


Scanned = tuple[int, int, int, int, int, bytes | None, bool]
"""A record: where it begins, where it ends, where its offset delta begins, its timestamp delta, its
offset delta, its key, whether it has a value."""


def scan(data: bytes, count: int) -> list[Scanned]:
    """The records of a batch by their places; ProtocolError where they are not `count` records.

    Not RecordReader's, which gives values: what stays goes from one file to the next as bytes.
    Values, headers and the order of offsets are as they were appended; nobody looks at them here.
    """
    decode = varint.decode_unsigned
    records: list[Scanned] = []
    at = 0
    key: bytes | None
    try:
        for _ in range(count):
            start = at
            if (length := data[at]) < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                at += 2
                length += high * 128 - 128
            else:
                half, at = long_length(data, at)
                length = 2 * half
            end = at + (length >> 1)
            # A byte of attributes, of which there are none, comes first.
            at += 1
            if (time := data[at]) < 0x80:
                at += 1
            else:
                time, at = decode(data, at)
            rest = at
            if (delta := data[at]) < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                at += 2
                delta += high * 128 - 128
            else:
                half, at = long_length(data, at)
                delta = 2 * half
            if (size := data[at]) == NULL:
                at += 1
                size = 0
                key = None
            else:
                if size < 0x80:
                    at += 1
                else:
                    half, at = long_length(data, at)
                    size = 2 * half
                stop = at + (size >> 1)
                key = data[at:stop]
                at = stop
            has_value = data[at] != NULL
            # What is odd is negative.
            if at >= end or end > len(data) or (length | delta | size) & 1:
                raise ProtocolError("a record whose length does not match its fields")
            records.append((start, end, rest, time >> 1 ^ -(time & 1), delta >> 1, key, has_value))
            at = end
    except IndexError as error:
        raise ProtocolError("truncated record") from error
    if at != len(data):
        raise ProtocolError(f"{count} records end at byte {at} of {len(data)}")
    return records


class BatchRetention(NamedTuple):
    """What is to become of a batch as a whole, before its records are looked at."""

    discards: bool = False
    """None of its records stays: of an aborted transaction, or the marker of an emptied one."""
    stays: bool = False
    """If only as an empty batch."""
    is_spent_marker: bool = False
    """Its transaction has no records any more: the delete horizon begins, or decides."""
    aborted: AbortedTransaction | None = None
    """What its segment's index of aborted transactions still has to say."""


class CleanedTransactionMetadata:
    """What one cleaning knows of the transactions that it walks over, in offset order.

    `aborted` are those of the whole log, `last_of` the last data batch's offset of each producer
    that may write on, None where that wrote none, and its epoch.
    """

    def __init__(
        self,
        aborted: Iterable[AbortedTransaction],
        last_of: Mapping[ProducerId, tuple[Offset | None, int]],
    ) -> None:
        self._to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[ProducerId, tuple[AbortedTransaction, bool]] = {}
        """Begun and not ended, and whether a batch of it was met."""
        self._committed: set[ProducerId] = set()
        """Producers of whom a batch was met."""
        self._last_of = last_of

    def judge(self, header: Header, marker: ControlType | None) -> BatchRetention:
        """The next batch; `marker` is what a control batch says, None for one without records."""
        if header.producer_id < 0:
            return BatchRetention()
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            one = self._to_come.pop()
            self._aborted[one.producer_id] = (one, False)
        offset, epoch = self._last_of.get(header.producer_id, (-1, -1))
        if header.attributes & CONTROL:
            is_last = offset is None and header.producer_epoch == epoch
            if marker is ControlType.abort:
                begun = self._aborted.pop(header.producer_id, None)
                if begun is not None and begun[1] and begun[0].last_offset == header.base_offset:
                    return BatchRetention(stays=is_last, aborted=begun[0])
            elif marker is ControlType.commit:
                if header.producer_id in self._committed:
                    self._committed.remove(header.producer_id)
                    return BatchRetention(stays=is_last)
            elif marker is ControlType.unknown:
                return BatchRetention()
            return BatchRetention(True, is_last, is_spent_marker=True)
        is_last = header.last_offset == offset
        if header.attributes & TRANSACTIONAL:
            begun = self._aborted.get(header.producer_id)
            # The marker may lie before where the walk began.
            if begun is not None and header.base_offset <= begun[0].last_offset:
                self._aborted[header.producer_id] = (begun[0], True)
                return BatchRetention(True, is_last)
            self._committed.add(header.producer_id)
        return BatchRetention(stays=is_last)


def filtered(
    batch: RecordBatch,
    header: Header,
    verdict: BatchRetention,
    keys: KeyMap,
    now_ms: int,
    delete_retention_ms: int,
) -> memoryview | bytes:
    """What is left of the batch, empty for nothing.  Raises ProtocolError, KafkaError."""
    horizon = batch.delete_horizon_ms
    is_past = horizon is not None and now_ms >= horizon
    new_horizon = now_ms + delete_retention_ms if horizon is None else None
    is_control = header.attributes & CONTROL
    if verdict.discards and (is_past or not is_control):
        if not verdict.stays:
            return b""
        return _rebuilt(header, b"", (), None) if header.record_count else batch.buffer
    if is_control:
        if not verdict.is_spent_marker or new_horizon is None or not header.record_count:
            return batch.buffer
        data = batch.unfolded(MAX_RECORDS_BYTES)
        return _rebuilt(header, data, scan(data, header.record_count), new_horizon)
    if header.base_offset >= keys.next_offset:
        return batch.buffer
    data = batch.unfolded(MAX_RECORDS_BYTES) if header.record_count else b""
    records = scan(data, header.record_count)
    kept, has_tombstones = _kept(records, header.base_offset, keys, is_past)
    if not kept and not verdict.stays:
        return b""
    if not has_tombstones or header.last_offset >= keys.next_offset:
        new_horizon = None
    if len(kept) == len(records) and new_horizon is None:
        return batch.buffer
    return _rebuilt(header, data, kept, new_horizon)


def _kept(
    records: Sequence[Scanned], base_offset: Offset, keys: KeyMap, is_past: bool
) -> tuple[list[Scanned], bool]:
    """The records that stay, and whether tombstones are among them."""
    kept = []
    has_tombstones = False
    end = keys.next_offset
    for record in records:
        offset, key = base_offset + record[4], record[5]
        if offset < end:
            if key is None or keys.newest(key) > offset:
                continue
            if not record[6]:
                if is_past:
                    continue
                has_tombstones = True
        kept.append(record)
    return kept, has_tombstones


def _rebuilt(header: Header, data: bytes, kept: Sequence[Scanned], horizon_ms: int | None) -> bytes:
    attributes, base_timestamp = header.attributes, header.base_timestamp
    parts: list[bytes] = []
    if horizon_ms is None:
        parts = [data[record[0] : record[1]] for record in kept]
    else:
        shift = base_timestamp - horizon_ms
        for _, end, rest, time, *_ in kept:
            body = b"\0" + varint.encode(time + shift) + data[rest:end]
            parts += (varint.encode(len(body)), body)
        attributes |= DELETE_HORIZON
        base_timestamp = horizon_ms
    max_timestamp = header.max_timestamp
    if kept and not attributes & LOG_APPEND_TIME:
        max_timestamp = header.base_timestamp + max(record[3] for record in kept)
    body = b"".join(parts)
    if not kept:
        attributes &= ~COMPRESSION_MASK
    elif codec := Compression(attributes & COMPRESSION_MASK):
        body = compress(codec, body)
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    fields = header._replace(
        batch_length=length,
        crc=0,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    crc = crc32c(body, crc32c(HEADER.pack(*fields)[CRC_START:]))
    return HEADER.pack(*fields._replace(crc=crc)) + body
