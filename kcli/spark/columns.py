"""Record batches into columns, by numpy: for where `_columns.c` is not built, which does the same.

Pure: bytes in, buffers of Arrow out.

A record begins where the one before it ends, so where records begin is found one by one.  All else
is done for many records at once: the same varint of each, then the next.  Keys and values are
copied by Arrow: it is shown the whole bytes as one array whose elements are, in turn, what lies
between the values and the values, and takes every second of them.

The rules are those of `kserver.wire.records`, and so is what is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kserver.errors import ProtocolError
from kserver.model import Offset
from kserver.wire.records import MOST_LENGTH_BYTES

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Buffers: TypeAlias = list[Any]
"""One column's buffers as Arrow has them: validity, or None where nothing is null; ends; bytes."""

_PAST_END = b"\0" * 16
"""After the bytes, so that the longest varint may begin at the last, which is found out later."""
_MOST_VARINT_BYTES = 10


class ColumnBatch(NamedTuple):
    body: bytes | memoryview
    """Its records, decompressed."""
    records: int
    base_offset: Offset
    last_offset_delta: int
    time: int
    """In ms: what deltas count from; where `appended`, the time of every record."""
    appended: bool


Columns: TypeAlias = tuple[
    Any, Any, Any, Buffers | None, Buffers | None, tuple[Buffers, Buffers, Buffers] | None
]
"""Buffers of 64-bit integers: where each record starts, over the bytes of all batches, offsets, and
times in ms.  Then keys, values, and headers as lists without bytes, names and values; None for what
was not wanted."""


def decode(batches: Sequence[ColumnBatch], key: bool, value: bool, headers: bool, /) -> Columns:
    """ProtocolError where the bytes are not what a batch says of them."""
    records = _Records(batches)
    return (
        records.starts,
        records.offsets(batches),
        records.times(batches),
        records.binary(records.keys) if key else None,
        records.binary(records.values) if value else None,
        records.lists_of_headers() if headers else None,
    )


class _Slots(NamedTuple):
    """Where the bytes of one field lie in each record; of a null `end` is `start`."""

    start: Ints
    end: Ints
    null: Bools


def _joined(slots: list[_Slots], order: Ints) -> _Slots:
    """One after the other, and then in this order."""
    return _Slots(
        np.concatenate([some.start for some in slots])[order],
        np.concatenate([some.end for some in slots])[order],
        np.concatenate([some.null for some in slots])[order],
    )


class _Records:
    """Where everything lies in the bytes of some batches, one entry a record in each array."""

    def __init__(self, batches: Sequence[ColumnBatch]) -> None:
        for batch in batches:
            if not 0 <= batch.records <= len(batch.body) // 2:
                raise ProtocolError(f"{batch.records} records in {len(batch.body)} bytes")
        self.counts = [batch.records for batch in batches]
        self.data = b"".join([*(batch.body for batch in batches), _PAST_END])
        self.bytes = np.frombuffer(self.data, np.uint8)
        self.size = len(self.data) - len(_PAST_END)
        sizes = [len(batch.body) for batch in batches]
        self.starts = np.array(record_starts(self.data, sizes, self.counts), np.int64)
        ends = np.append(self.starts[1:], self.size)
        length, at = self._lengths(self.starts)
        if np.any(at + length != ends):
            raise ProtocolError("a record that does not end where the next begins")
        self.time_deltas, at = self._varints(at + 1)
        self.offset_deltas, at = self._lengths(at)
        self.keys, at = self._slots(at)
        self.values, at = self._slots(at)
        self.header_counts, at = self._lengths(at)
        bare = self.header_counts == 0
        if np.any(np.where(bare, at != ends, at > ends)):
            raise ProtocolError("a record whose length does not match its fields")
        if np.any(self.header_counts > ends - at):
            raise ProtocolError("a record with an impossible number of headers")
        self.names, self.header_values = self._headers(at, ends)

    def _varints(self, at: Ints) -> tuple[Any, Ints]:
        """The unsigned varint at each position, and where it ends."""
        if len(at) and int(at.max()) > self.size:
            raise ProtocolError("truncated record")
        byte = self.bytes[at]
        value = (byte & 0x7F).astype(np.uint64)
        after = at + 1
        more = np.flatnonzero(byte >= 0x80)
        shift = 7
        while len(more):
            byte = self.bytes[after[more]]
            if shift > 63 or (shift == 63 and np.any(byte > 1)):
                raise ProtocolError("a varint of more than 64 bits")
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        return value, after

    def _lengths(self, at: Ints) -> tuple[Ints, Ints]:
        """The same of zigzag varints that are not negative and have 32 bits at most."""
        value, after = self._varints(at)
        _check_lengths(value, after - at)
        return (value >> np.uint64(1)).astype(np.int64), after

    def _slots(self, at: Ints) -> tuple[_Slots, Ints]:
        """The bytes that follow their length; -1 for null."""
        if len(at) and int(at.max()) > self.size:
            raise ProtocolError("truncated record")
        null = self.bytes[at] == 1
        if null.all():
            return _Slots(at + 1, at + 1, null), at + 1
        value, after = self._varints(at)
        value[null] = 0
        _check_lengths(value, after - at)
        end = after + (value >> np.uint64(1)).astype(np.int64)
        return _Slots(after, end, null), end

    def _headers(self, at: Ints, ends: Ints) -> tuple[_Slots, _Slots]:
        """The names and the values of all headers in order."""
        found: list[tuple[Ints, _Slots, _Slots]] = []
        of = np.flatnonzero(self.header_counts)
        at, left = at[of], self.header_counts[of]
        while len(of):
            names, at = self._slots(at)
            if np.any(names.null):
                raise ProtocolError("a header without a name")
            values, at = self._slots(at)
            found.append((of, names, values))
            left = left - 1
            done = left == 0
            if np.any(np.where(done, at != ends[of], at > ends[of])):
                raise ProtocolError("a record whose length does not match its fields")
            of, at, left = of[~done], at[~done], left[~done]
        if not found:
            none = np.zeros(0, np.int64)
            empty = _Slots(none, none, none.astype(np.bool_))
            return empty, empty
        order = np.argsort(np.concatenate([of for of, _, _ in found]), kind="stable")
        return _joined([n for _, n, _ in found], order), _joined([v for _, _, v in found], order)

    def offsets(self, of: Sequence[ColumnBatch]) -> Ints:
        delta, counts = self.offset_deltas, self.counts
        descends = np.diff(delta) <= 0
        firsts = np.cumsum([0, *counts])[1:-1]
        firsts = firsts[(firsts > 0) & (firsts < len(delta))]
        descends[firsts - 1] = False
        if np.any(descends):
            raise ProtocolError("records whose offsets do not ascend")
        if np.any(delta > np.repeat([b.last_offset_delta for b in of], counts)):
            raise ProtocolError("a record past the batch's last offset")
        return np.repeat(np.array([b.base_offset for b in of], np.int64), counts) + delta

    def times(self, of: Sequence[ColumnBatch]) -> Ints:
        delta = self.time_deltas
        base = np.repeat(np.array([b.time for b in of], np.int64), self.counts)
        signed = (delta >> np.uint64(1)).astype(np.int64) ^ -(delta & np.uint64(1)).astype(np.int64)
        appended = np.array([b.appended for b in of], np.bool_)
        signed[np.repeat(appended, self.counts)] = 0
        time: Ints = base + signed
        # Where both have one sign and the sum has the other, it ran over.
        if np.any((base ^ time) & (signed ^ time) < 0):
            raise ProtocolError("a timestamp of more than 64 bits")
        return time

    def binary(self, slots: _Slots) -> Buffers:
        """The bytes of these slots, which ascend and do not overlap."""
        if not len(slots.start):
            return [None, np.zeros(1, np.int32), b""]
        if slots.null.all():
            none = np.zeros(len(slots.null) + 1, np.int32)
            return [np.zeros(len(none) // 8 + 1, np.uint8), none, b""]
        # Element 2i is the slot i, element 2i + 1 what lies between it and the next.
        at = np.empty(2 * len(slots.start), np.int32)
        at[::2], at[1::2] = slots.start, slots.end
        whole = pa.Array.from_buffers(
            pa.binary(), len(at) - 1, [None, pa.py_buffer(at), pa.py_buffer(self.data)]
        )
        null = slots.null if slots.null.any() else None
        wanted = pa.array(np.arange(0, len(at), 2, dtype=np.int64), mask=null)
        return whole.take(wanted).buffers()  # type: ignore[no-any-return]

    def lists_of_headers(self) -> tuple[Buffers, Buffers, Buffers]:
        """Null where there are none."""
        some = self.header_counts > 0
        valid = None if some.all() else np.packbits(some, bitorder="little")
        ends = np.append(0, np.cumsum(self.header_counts)).astype(np.int32)
        return [valid, ends], self.binary(self.names), self.binary(self.header_values)


def _check_lengths(value: Any, size: Ints) -> None:
    too_long = size > MOST_LENGTH_BYTES
    if np.any((value & np.uint64(1)) | (value >> np.uint64(32)) | too_long):
        raise ProtocolError("a length that is negative, or has more than 32 bits or five bytes")


def record_starts(data: bytes, sizes: list[int], counts: list[int]) -> list[int]:
    """The position of each record: batch by batch so many, in so many bytes.  At least as many as
    the longest varint has follow the last one in `data`.

    ProtocolError where they do not fill a batch exactly.  A length that makes no sense leads to
    that, or is for the caller to find.
    """
    starts: list[int] = []
    append = starts.append
    at = end = 0
    try:
        for size, count in zip(sizes, counts, strict=True):
            end += size
            # Whoever has gone past the end never comes back: that is seen after the last.
            for _ in range(count):
                append(at)
                if (length := data[at]) < 0x80:
                    at += 1 + (length >> 1)
                elif (high := data[at + 1]) < 0x80:
                    at += 2 + (high << 6 | (length & 0x7F) >> 1)
                else:
                    at = _after_long(data, at)
            if at != end:
                raise ProtocolError("the last record does not end where the batch does")
    except IndexError as error:
        raise ProtocolError("truncated record") from error
    return starts


def _after_long(data: bytes, at: int) -> int:
    """Where a record ends whose length takes more bytes."""
    value = shift = 0
    for _ in range(_MOST_VARINT_BYTES):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            break
    return at + (value >> 1)
