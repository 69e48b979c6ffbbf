"""Rows of an Arrow record batch as the arguments of a producer's calls.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kserver.wire.batch import Headers


class NewRow(NamedTuple):
    """The arguments of Producer.try_send, except that the topic may be missing."""

    topic: str | None
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp: int | None
    headers: Headers


def rows_of(batch: pa.RecordBatch, columns: tuple[str, ...], topic: str | None) -> Iterator[NewRow]:
    """Yield the rows; `columns` are the columns to use, `topic` is that of all rows if set."""

    def column(name: str) -> Iterable[Any]:
        if name not in columns:
            return repeat(None)
        values: list[Any] = batch.column(name).to_pylist()
        return values

    topics = repeat(topic) if topic is not None else column("topic")
    keys = _bytes(batch, "key") if "key" in columns else repeat(None)
    headers = map(_headers, column("headers")) if "headers" in columns else repeat(())
    return map(
        NewRow,
        topics,
        _bytes(batch, "value"),
        keys,
        column("partition"),
        _times(batch) if "timestamp" in columns else repeat(None),
        headers,
    )


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    values: list[bytes | None] = batch.column(name).cast(pa.binary()).to_pylist()
    return values


def _times(batch: pa.RecordBatch) -> list[int | None]:
    """Return times in ms; Spark has microseconds."""
    micros = batch.column("timestamp").cast(pa.int64())
    values: list[int | None] = pc.divide(micros, 1000).to_pylist()
    return values


def _headers(headers: list[dict[str, Any] | None] | None) -> Headers:
    """Return headers; a null name becomes "", for rows that are refused because of it."""
    return tuple((h["key"] or "", h["value"]) for h in headers or () if h is not None)
