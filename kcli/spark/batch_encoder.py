"""Encodes columns of Arrow into the batches of a topic's partitions, many rows a step.

Pure: no I/O.

    partitions_of     the partition of each row's key, as the producer's own partitioner
    encoded           the bytes of every row, in batches

A record is a sequence of varints between the row's own bytes. The varints of all rows are made by
numpy, as columns of bytes next to each other, and Arrow joins them with keys and values, so that
the joined column's buffer has the records one after the other:

    length attributes time offset key-length | key | value-length | value | headers

The order of rows within a partition is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kserver.wire.batch import HEADER_SIZE, EncodedRecords

Numbers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

MAX_RECORDS = 1 << 20
"""Maximum of a batch, so that an offset's delta takes three bytes at most."""
_SEED, _MULTIPLIER = 0x9747B28C, 0x5BD1E995


class Columns(NamedTuple):
    """The columns of rows for one topic: keys, values and headers binary, headers encoded as in a
    record. `times`: ms, of each row.
    """

    value: pa.BinaryArray
    key: pa.BinaryArray | None
    headers: pa.BinaryArray | None
    times: Numbers

    def take(self, rows: Numbers) -> Columns:
        def of(column: pa.BinaryArray | None) -> Any:
            return None if column is None else column.take(pa.array(rows))

        return Columns(of(self.value), of(self.key), of(self.headers), self.times[rows])

    @property
    def sizes(self) -> Numbers:
        """Upper bound of the size of each record."""
        varying = _lengths(self.value) + 30
        for column in (self.key, self.headers):
            if column is not None:
                varying += _lengths(column)
        return varying


class EncodedBatch(NamedTuple):
    partition: int
    records: EncodedRecords


def encoded(columns: Columns, partitions: Numbers, batch_size: int) -> Iterator[EncodedBatch]:
    """Encode rows into batches of their partitions, of at most `batch_size` bytes or one row."""
    order = np.argsort(partitions, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        columns, partitions = columns.take(order), partitions[order]
    starts = _cut(columns.sizes, partitions, batch_size - HEADER_SIZE)
    if not len(starts):
        return
    ends = np.append(starts[1:], len(partitions))
    body, offsets = _bodies(columns, starts, ends)
    largest = np.maximum.reduceat(columns.times, starts)
    view = memoryview(body)
    for start, end, last in zip(starts.tolist(), ends.tolist(), largest.tolist(), strict=True):
        records = EncodedRecords(
            bytes(view[offsets[start] : offsets[end]]), end - start, int(columns.times[start]), last
        )
        yield EncodedBatch(int(partitions[start]), records)


def _cut(sizes: Numbers, partitions: Numbers, room: int) -> Numbers:
    """Return the first row of each batch."""
    ends = np.cumsum(sizes)
    borders = [*(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    starts = []
    at = 0
    for border in borders:
        while at < border:
            starts.append(at)
            used = int(ends[at - 1]) if at else 0
            fits = int(np.searchsorted(ends, used + room, side="right"))
            at = min(max(fits, at + 1), at + MAX_RECORDS, border)
    return np.array(starts, np.int64)


def _bodies(columns: Columns, starts: Numbers, ends: Numbers) -> tuple[pa.Buffer, Numbers]:
    """Return all records one after the other, and where each batch begins."""
    counts = ends - starts
    deltas = np.arange(int(ends[-1])) - np.repeat(starts, counts)
    times = columns.times - np.repeat(columns.times[starts], counts)
    value_lengths = _lengths(columns.value, null=-1)
    key_lengths = np.full(len(deltas), -1) if columns.key is None else _lengths(columns.key, -1)
    head = [_zeros(len(deltas)), _varints(times), _varints(deltas), _varints(key_lengths)]
    middle = _varints(value_lengths)
    sizes = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + middle.lengths
    for part in head:
        sizes += part.lengths
    sizes += 1 if columns.headers is None else _lengths(columns.headers)
    pieces = [_packed([_varints(sizes), *head])]
    if columns.key is not None:
        pieces.append(pc.fill_null(columns.key, b""))
    pieces += [_packed([middle]), pc.fill_null(columns.value, b"")]
    pieces.append(pa.scalar(b"\0") if columns.headers is None else columns.headers)
    joined = pc.binary_join_element_wise(*pieces, b"")
    return joined.buffers()[2], _offsets(joined)


def headers_of(column: pa.ListArray) -> pa.BinaryArray:
    """Encode the headers of each row: their number, and each one's name and value. Names are not
    null.
    """
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    flat = column.flatten()
    names, values = (flat.field(name).cast(pa.binary()) for name in ("key", "value"))
    encoded_header = pc.binary_join_element_wise(
        _packed([_varints(_lengths(names))]),
        names,
        _packed([_varints(_lengths(values, null=-1))]),
        pc.fill_null(values, b""),
        b"",
    )
    ends = np.append(0, np.cumsum(counts)).astype(np.int32)
    of_rows = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), encoded_header), b"")
    return pc.binary_join_element_wise(_packed([_varints(counts)]), of_rows, b"")


# Bytes of Arrow


def _offsets(column: pa.BinaryArray) -> Numbers:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    return offsets.astype(np.int64)


def _lengths(column: pa.BinaryArray, null: int = 0) -> Numbers:
    if not len(column):
        return np.zeros(0, np.int64)
    lengths = np.diff(_offsets(column))
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = null
    return lengths


# Numbers of variable length


class _Part(NamedTuple):
    """A number of each row: bytes, of which the first `lengths` count."""

    bytes: npt.NDArray[np.uint8]
    lengths: Numbers


def _zeros(count: int) -> _Part:
    return _Part(np.zeros((count, 1), np.uint8), np.ones(count, np.int64))


def _varints(numbers: Numbers) -> _Part:
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    largest = int(zigzag.max(initial=0))
    width = max(1, -(-largest.bit_length() // 7))
    lengths = np.ones(len(numbers), np.int64)
    for n in range(1, width):
        lengths += zigzag >> np.uint64(7 * n) != 0
    digits = np.empty((len(numbers), width), np.uint8)
    for n in range(width):
        low = (zigzag >> np.uint64(7 * n)).astype(np.uint8) & 0x7F
        digits[:, n] = low | ((lengths > n + 1).astype(np.uint8) << 7)
    return _Part(digits, lengths)


def _packed(parts: list[_Part]) -> pa.BinaryArray:
    """Join the parts of each row into one binary value."""
    table = np.concatenate([part.bytes for part in parts], axis=1)
    if table.shape[1] == sum(int(p.lengths.min(initial=9)) for p in parts):
        data = table.reshape(-1)
    else:
        used = [np.arange(p.bytes.shape[1]) < p.lengths[:, None] for p in parts]
        data = table[np.concatenate(used, axis=1)]
    lengths = parts[0].lengths.copy()
    for part in parts[1:]:
        lengths += part.lengths
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


# Partitions


def partitions_of(keys: pa.BinaryArray, partitions: int) -> Numbers:
    """Return the partitions of keys (partitioner.partition_for_key); for null, any."""
    return (_murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def _murmur2(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    offsets, lengths = _offsets(keys)[:-1], _lengths(keys)
    # Append bytes, so that a word at the end of the last key can be read.
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    data = np.append(data, np.zeros(4, np.uint8))
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    multiplier = np.uint32(_MULTIPLIER)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    whole = lengths // 4
    with np.errstate(over="ignore"):
        # Process only keys with words left: one long key costs only its own length.
        rows, n = np.flatnonzero(whole), 0
        while len(rows):
            k = words[offsets[rows] + 4 * n] * multiplier
            k = (k ^ k >> np.uint32(24)) * multiplier
            hashes[rows] = hashes[rows] * multiplier ^ k
            n += 1
            rows = rows[whole[rows] > n]
        rows = np.flatnonzero(lengths % 4)
        rest = (lengths[rows] % 4).astype(np.uint32)
        tail = words[offsets[rows] + 4 * whole[rows]] & (
            (np.uint32(1) << rest * np.uint32(8)) - np.uint32(1)
        )
        hashes[rows] = (hashes[rows] ^ tail) * multiplier
        hashes = (hashes ^ hashes >> np.uint32(13)) * multiplier
    return hashes ^ hashes >> np.uint32(15)
