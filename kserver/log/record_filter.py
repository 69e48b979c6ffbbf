"""Retention of the records of a compacted log, and the batch that remains of a batch.

Pure: bytes in, bytes out.

    a record                                               stays
    after the last offset that the map of keys has seen    yes
    of an aborted transaction                              no
    without a key                                          no
    its key was written again later                        no
    a tombstone whose batch's delete horizon has passed    no
    any other                                              yes

    a batch without remaining records                      becomes
    the last of a producer that may write again            an empty batch: its sequence is needed
    the last of the cleaned part                           an empty batch: consumers can skip it
    any other                                              nothing

A marker stays as long as its transaction has records, and then until its own delete horizon.  The
horizon, `now + delete.retention.ms`, is written into a batch when a cleaning first finds it with a
tombstone, or as the marker of an emptied transaction (KIP-534): a consumer that reads from the
start within that time sees each deletion.

A batch whose records all stay keeps its bytes.  In a batch that changes, offsets, sequences and
timestamps stay the same, and so do the bytes of each record except its timestamp delta, which
counts from the horizon once there is one.

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
"""Maximum memory of a key in the map, in bytes: its digest, its offset, its place in a dict."""
DIGEST_BYTES = 15
"""Longest digest that fits into a bytes object of 48 bytes; of 10^9 keys, two collide with a
probability of 10^-18."""


class KeyMap:
    """The newest offset of each dirty key, for as many keys as `capacity_bytes` hold.

    A short key is stored itself, a longer one as its digest: collisions cannot be constructed
    (Kafka uses MD5, for which they can).
    """

    __slots__ = ("_capacity", "_offsets", "next_offset")

    def __init__(self, capacity_bytes: int) -> None:
        self.next_offset: Offset = 0
        """End of the offsets that were scanned (exclusive)."""
        self._capacity = max(1, capacity_bytes // ENTRY_BYTES)
        self._offsets: dict[bytes, Offset] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, count: int) -> bool:
        """Whether `count` more keys fit; one batch always does, else cleaning would never end."""
        return not self._offsets or len(self._offsets) + count <= self._capacity

    def note(self, header: Header, unfolded: bytes) -> None:
        """Record the offsets of a batch's keys."""
        offsets, base = self._offsets, header.base_offset
        for record in scan(unfolded, header.record_count):
            if (key := record[5]) is not None:
                offsets[_compact(key)] = base + record[4]

    def newest(self, key: bytes) -> Offset:
        """Return the newest offset of the key, or -1 if it was not seen."""
        return self._offsets.get(_compact(key), -1)


def _compact(key: bytes) -> bytes:
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


Scanned = tuple[int, int, int, int, int, bytes | None, bool]
"""A record: its start, its end, the start of its offset delta, its timestamp delta, its offset
delta, its key, whether it has a value."""


def scan(data: bytes, count: int) -> list[Scanned]:
    """Locate the records of a batch; raises ProtocolError if there are not exactly `count`.

    RecordReader is not used because it returns values: retained records are copied as bytes.
    Values, headers and the order of offsets are as they were appended; they are not checked here.
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
            # The attributes byte comes first; no attributes are defined.
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
            # In zigzag encoding, odd numbers are negative.
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
    """Decision about a batch as a whole, before its records are scanned."""

    discards: bool = False
    """Remove all its records: of an aborted transaction, or the marker of an emptied one."""
    stays: bool = False
    """Keep the batch, even if empty."""
    is_spent_marker: bool = False
    """Its transaction has no records left: the delete horizon starts, or decides."""
    aborted: AbortedTransaction | None = None
    """Entry for the aborted-transaction index of the new segment."""


class CleanedTransactionMetadata:
    """Transactions that one cleaning passes, in offset order.

    `aborted` are those of the whole log.  `last_of` has, for each producer that may write again,
    the offset of its last data batch, or None if it has none, and its epoch.
    """

    def __init__(
        self,
        aborted: Iterable[AbortedTransaction],
        last_of: Mapping[ProducerId, tuple[Offset | None, int]],
    ) -> None:
        self._to_come = sorted(
            aborted, key=lambda transaction: transaction.first_offset, reverse=True
        )
        self._aborted: dict[ProducerId, tuple[AbortedTransaction, bool]] = {}
        """Begun and not ended transactions, and whether a batch of each was seen."""
        self._committed: set[ProducerId] = set()
        """Producers of which a batch in a committed transaction was seen."""
        self._last_of = last_of

    def check_retention(self, header: Header, marker: ControlType | None) -> BatchRetention:
        """Decide about the next batch; `marker` is its control type, None without records."""
        if header.producer_id < 0:
            return BatchRetention()
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            transaction = self._to_come.pop()
            self._aborted[transaction.producer_id] = (transaction, False)
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
            # The marker may precede the start of this pass.
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
    """Return the remaining batch, empty for none.  Raises ProtocolError, KafkaError."""
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
    retained, has_tombstones = _retained(records, header.base_offset, keys, is_past)
    if not retained and not verdict.stays:
        return b""
    if not has_tombstones or header.last_offset >= keys.next_offset:
        new_horizon = None
    if len(retained) == len(records) and new_horizon is None:
        return batch.buffer
    return _rebuilt(header, data, retained, new_horizon)


def _retained(
    records: Sequence[Scanned], base_offset: Offset, keys: KeyMap, is_past: bool
) -> tuple[list[Scanned], bool]:
    """Return the records that stay, and whether tombstones are among them."""
    retained = []
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
        retained.append(record)
    return retained, has_tombstones


def _rebuilt(
    header: Header, data: bytes, retained: Sequence[Scanned], horizon_ms: int | None
) -> bytes:
    attributes, base_timestamp = header.attributes, header.base_timestamp
    parts: list[bytes] = []
    if horizon_ms is None:
        parts = [data[record[0] : record[1]] for record in retained]
    else:
        shift = base_timestamp - horizon_ms
        for _, end, rest, time, *_ in retained:
            body = b"\0" + varint.encode(time + shift) + data[rest:end]
            parts += (varint.encode(len(body)), body)
        attributes |= DELETE_HORIZON
        base_timestamp = horizon_ms
    max_timestamp = header.max_timestamp
    if retained and not attributes & LOG_APPEND_TIME:
        max_timestamp = header.base_timestamp + max(record[3] for record in retained)
    body = b"".join(parts)
    if not retained:
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
        record_count=len(retained),
    )
    crc = crc32c(body, crc32c(HEADER.pack(*fields)[CRC_START:]))
    return HEADER.pack(*fields._replace(crc=crc)) + body
