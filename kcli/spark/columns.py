"""Decodes record batches into columns with numpy; used if `_columns.c`, which does the same, is not
built.

Pure: bytes in, buffers of Arrow out.

A record begins where the one before it ends, so the starts of records are found one by one. All
else is done for many records at once: one varint of each, then the next. Keys and values are copied
by Arrow: all bytes are passed as one array whose elements are alternately a value and the bytes
between two values; every second element is taken.

The rules are those of `kserver.wire.records`, and so are the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kserver.errors import ProtocolError
from kserver.model import Offset
from kserver.wire.records import MAX_LENGTH_BYTES

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Buffers: TypeAlias = list[Any]
"""One column's buffers in Arrow's layout: validity, or None if nothing is null; ends; bytes."""

_PAST_END = b"\0" * 16
"""Appended to the bytes, so that a varint may begin at the last byte; such overruns are detected
later.
"""
_MAX_VARINT_BYTES = 10


class ColumnBatch(NamedTuple):
    body: bytes | memoryview
    """Its decompressed records."""
    records: int
    base_offset: Offset
    last_offset_delta: int
    time: int
    """In ms: base of the deltas; if `appended`, the time of every record."""
    appended: bool


Columns: TypeAlias = tuple[
    Any, Any, Any, Buffers | None, Buffers | None, tuple[Buffers, Buffers, Buffers] | None
]
"""Buffers of 64-bit integers: start of each record in the bytes of all batches, offsets, and times
in ms. Then keys, values, and headers as lists without bytes, names and values; None for columns
that were not requested.
"""


def decode(batches: Sequence[ColumnBatch], key: bool, value: bool, headers: bool, /) -> Columns:
    """Decode the batches. Raises ProtocolError if the bytes contradict a batch's header."""
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
    """The position of one field in each record; for null, `end` is `start`."""

    start: Ints
    end: Ints
    null: Bools


def _concatenate(slots: list[_Slots], order: Ints) -> _Slots:
    """Concatenate the slots and sort them in this order."""
    return _Slots(
        np.concatenate([some.start for some in slots])[order],
        np.concatenate([some.end for some in slots])[order],
        np.concatenate([some.null for some in slots])[order],
    )


class _Records:
    """The positions of all fields in the bytes of some batches; each array has an entry per
    record.
    """

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
        """Decode the unsigned varint at each position; return the values and the positions after
        them.
        """
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
        """Decode zigzag varints in the same way. Raises ProtocolError if one is negative or has
        more than 32 bits.
        """
        value, after = self._varints(at)
        _check_lengths(value, after - at)
        return (value >> np.uint64(1)).astype(np.int64), after

    def _slots(self, at: Ints) -> tuple[_Slots, Ints]:
        """Return the slots of bytes that follow their length; -1 is null."""
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
        """Return the names and the values of all headers in order."""
        levels: list[tuple[Ints, _Slots, _Slots]] = []
        of = np.flatnonzero(self.header_counts)
        at, rest = at[of], self.header_counts[of]
        while len(of):
            names, at = self._slots(at)
            if np.any(names.null):
                raise ProtocolError("a header without a name")
            values, at = self._slots(at)
            levels.append((of, names, values))
            rest = rest - 1
            done = rest == 0
            if np.any(np.where(done, at != ends[of], at > ends[of])):
                raise ProtocolError("a record whose length does not match its fields")
            of, at, rest = of[~done], at[~done], rest[~done]
        if not levels:
            none = np.zeros(0, np.int64)
            empty = _Slots(none, none, none.astype(np.bool_))
            return empty, empty
        order = np.argsort(np.concatenate([of for of, _, _ in levels]), kind="stable")
        return _concatenate([n for _, n, _ in levels], order), _concatenate(
            [v for _, _, v in levels], order
        )

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
        # If both have one sign and the sum has the other, it overflowed.
        if np.any((base ^ time) & (signed ^ time) < 0):
            raise ProtocolError("a timestamp of more than 64 bits")
        return time

    def binary(self, slots: _Slots) -> Buffers:
        """Return the bytes of these slots, which ascend and do not overlap."""
        if not len(slots.start):
            return [None, np.zeros(1, np.int32), b""]
        if slots.null.all():
            none = np.zeros(len(slots.null) + 1, np.int32)
            return [np.zeros(len(none) // 8 + 1, np.uint8), none, b""]
        # Element 2i is slot i, element 2i + 1 the bytes between it and the next.
        at = np.empty(2 * len(slots.start), np.int32)
        at[::2], at[1::2] = slots.start, slots.end
        whole = pa.Array.from_buffers(
            pa.binary(), len(at) - 1, [None, pa.py_buffer(at), pa.py_buffer(self.data)]
        )
        null = slots.null if slots.null.any() else None
        indexes = pa.array(np.arange(0, len(at), 2, dtype=np.int64), mask=null)
        return whole.take(indexes).buffers()  # type: ignore[no-any-return]

    def lists_of_headers(self) -> tuple[Buffers, Buffers, Buffers]:
        """Return the headers as lists, null for records without any."""
        some = self.header_counts > 0
        valid = None if some.all() else np.packbits(some, bitorder="little")
        ends = np.append(0, np.cumsum(self.header_counts)).astype(np.int32)
        return [valid, ends], self.binary(self.names), self.binary(self.header_values)


def _check_lengths(value: Any, size: Ints) -> None:
    too_long = size > MAX_LENGTH_BYTES
    if np.any((value & np.uint64(1)) | (value >> np.uint64(32)) | too_long):
        raise ProtocolError("a length that is negative, or has more than 32 bits or five bytes")


def record_starts(data: bytes, sizes: list[int], counts: list[int]) -> list[int]:
    """Return the position of each record: `counts` records in `sizes` bytes of each batch. At least
    16 bytes have to follow the last batch in `data`.

    Raises ProtocolError unless the records fill each batch exactly. An invalid length leads to
    that, or is for the caller to detect.
    """
    starts: list[int] = []
    append = starts.append
    at = end = 0
    try:
        for size, count in zip(sizes, counts, strict=True):
            end += size
            # A position past the end never returns into the batch, so one check after the last
            # suffices.
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
    """Return the end of a record whose length takes more bytes."""
    value = shift = 0
    for _ in range(_MAX_VARINT_BYTES):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            break
    return at + (value >> 1)
