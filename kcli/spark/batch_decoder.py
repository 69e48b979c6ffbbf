"""Decodes record batches, as they are in a log, into columns of Arrow.

Pure: bytes in, columns out.

The records' bytes are decoded by `_columns.c` if it is built, otherwise by `columns` with numpy;
this module makes the decisions per batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kcli.spark.columns import Buffers, ColumnBatch
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import Offset, ProducerId, TopicPartition
from kserver.wire.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    ControlType,
    RecordBatch,
    named,
    read_control_record,
)
from kserver.wire.records import MIN_RECORD_BYTES

try:
    from kcli.spark._columns import decode
except ImportError:
    from kcli.spark.columns import decode

ARROW_BYTES = 2 << 20
"""Bytes of records in an Arrow batch: Spark is fastest with batches of 1 to 4 MB."""

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""Every available column, with Spark's type in Arrow."""

_MAX_MS = ((1 << 63) - 1) // 1000


class AbortedRange(NamedTuple):
    """An aborted transaction: its producer's records from `first_offset` to the marker."""

    first_offset: Offset
    producer_id: ProducerId


def visible(
    record_batches: Iterable[RecordBatch],
    partition: TopicPartition,
    aborted: Sequence[AbortedRange] = (),
    *,
    check_crcs: bool = True,
) -> Iterator[RecordBatch]:
    """Return the batches of a fetch whose records are visible: without control batches and aborted
    transactions. Raises KafkaError if a checksum is wrong.
    """
    waiting = sorted(aborted, reverse=True)
    aborting: set[ProducerId] = set()
    for batch in record_batches:
        if check_crcs and not batch.is_valid_crc():
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"the batch at offset {batch.base_offset} of {partition} does not match its"
                " checksum",
            )
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            aborting.add(waiting.pop().producer_id)
        if batch.is_control:
            if batch.producer_id in aborting and _aborts(batch):
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch


def _aborts(batch: RecordBatch) -> bool:
    rows = batch.reader(batch.unfolded()).take(1)
    return bool(rows) and read_control_record(named(rows)[0]).type is ControlType.abort


def arrow_batches(
    record_batches: Iterable[RecordBatch],
    partition: TopicPartition,
    start: Offset,
    end: Offset,
    columns: Sequence[str],
    *,
    max_bytes: int = ARROW_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return the records from `start` on before `end`, with these columns of TYPES in this order.

    Raises ProtocolError if the bytes contradict a batch's header, KafkaError if they cannot be
    decompressed.
    """
    parts: list[ColumnBatch] = []
    size = 0
    for batch in record_batches:
        if batch.last_offset < start or batch.base_offset >= end:
            continue
        parts.append(_part(batch))
        size += len(parts[-1].body)
        if size >= max_bytes:
            yield from _decoded(parts, size, partition, start, end, columns, max_bytes)
            parts, size = [], 0
    if parts:
        yield from _decoded(parts, size, partition, start, end, columns, max_bytes)


def _part(of: RecordBatch) -> ColumnBatch:
    """Return a batch's records and the fields of its header, after a check."""
    attributes, count, last_delta = of.attributes, of.count, of.last_offset_delta
    body = of.unfolded() if attributes & COMPRESSION_MASK else of.buffer[HEADER_SIZE:]
    if not 0 <= count <= len(body) // MIN_RECORD_BYTES or (body and not count):
        raise ProtocolError(f"{count} records in {len(body)} bytes")
    if last_delta < count - 1:
        raise ProtocolError(f"{count} records up to {last_delta}")
    base = of.base_offset
    if base + last_delta >= 1 << 63:
        raise ProtocolError("an offset of more than 64 bits")
    appended = attributes & LOG_APPEND_TIME != 0
    time = of.max_timestamp if appended else of.base_timestamp
    return ColumnBatch(body, count, base, last_delta, time, appended)


def _decoded(
    parts: list[ColumnBatch],
    size: int,
    partition: TopicPartition,
    start: Offset,
    end: Offset,
    columns: Sequence[str],
    max_bytes: int,
) -> Iterator[pa.RecordBatch]:
    selection = ("key" in columns, "value" in columns, "headers" in columns)
    starts, offsets, times, keys, values, headers = decode(parts, *selection)
    starts, offsets = (memoryview(buffer).cast("B").cast("q") for buffer in (starts, offsets))
    first, last = bisect_left(offsets, start), bisect_left(offsets, end)
    if first >= last:
        return
    count = len(offsets)
    arrays = []
    for name in columns:
        match name:
            case "key":
                array = _array(TYPES[name], count, keys)
            case "value":
                array = _array(TYPES[name], count, values)
            case "topic":
                array = pa.repeat(pa.scalar(partition.topic, TYPES[name]), count)
            case "partition":
                array = pa.repeat(pa.scalar(partition.partition, TYPES[name]), count)
            case "offset":
                array = _array(TYPES[name], count, [None, offsets])
            case "timestamp":
                array = _timestamps(times, first, last)
            case "timestampType":
                array = _timestamp_types(parts)
            case _:
                array = _headers(count, headers)
        arrays.append(array if name == "timestamp" else array.slice(first, last - first))
    if arrays:
        whole = pa.RecordBatch.from_arrays(arrays, schema=_schema(columns))
    else:
        # Without columns only the number of rows counts.
        whole = pa.RecordBatch.from_struct_array(_array(pa.struct([]), last - first, [None]))
    at = first
    while at < last:
        # As many as fill one batch, and at least one; a rest of less than half is added to it.
        full = starts[at] + max_bytes
        if size - full < max_bytes // 2:
            full = size
        stop = min(max(at + 1, bisect_left(starts, full)), last)
        yield whole.slice(at - first, stop - at)
        at = stop


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def _array(type_: pa.DataType, count: int, buffers: Buffers | None) -> pa.Array:
    assert buffers is not None
    shown = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(type_, count, shown)


def _timestamps(ms: Any, first: int, last: int) -> pa.Array:
    """Return the times of these rows; times out of range matter only if the column is requested.

    Arrow's own cast would load its compute functions, which takes longer than to read many rows.
    """
    times = np.frombuffer(ms, np.int64)[first:last]
    if times.max() > _MAX_MS or times.min() < -_MAX_MS:
        raise ProtocolError("a timestamp outside Spark's range of some 290,000 years")
    return _array(TYPES["timestamp"], last - first, [None, times * 1000])


def _timestamp_types(parts: Sequence[ColumnBatch]) -> pa.Array:
    """Return a type for each record, of batches that nearly always have the same one."""
    kinds = [
        (appended, sum(part.records for part in some))
        for appended, some in groupby(parts, lambda part: part.appended)
    ]
    type_ = TYPES["timestampType"]
    return pa.concat_arrays(
        [pa.repeat(pa.scalar(int(appended), type_), count) for appended, count in kinds]
    )


def _headers(count: int, buffers: tuple[Buffers, Buffers, Buffers] | None) -> pa.Array:
    """Return a list for each record, null if it has no headers, as in Spark's own source."""
    assert buffers is not None
    lists, names, values = buffers
    of = memoryview(names[1]).nbytes // 4 - 1
    keys = _array(pa.binary(), of, names)
    try:
        keys = keys.cast(pa.string())
    except pa.ArrowInvalid:
        # Like Java's clients, replace invalid UTF-8 in names.
        keys = pa.array([key.as_py().decode(errors="replace") for key in keys], pa.string())
    structs = pa.StructArray.from_arrays(
        [keys, _array(pa.binary(), of, values)], fields=list(HEADERS.value_type)
    )
    shown = [None if buffer is None else pa.py_buffer(buffer) for buffer in lists]
    return pa.Array.from_buffers(HEADERS, count, shown, children=[structs])
