"""Batches of a stream as commits of a Delta table: tasks write files, the driver commits them.

The commit names the query and the batch, as Delta's application transactions do, and a batch that
the table has is not written again. Files without a commit, left by a task that was killed, are not
visible to readers of the table; a full vacuum of the table removes them.

A task keeps a few files open, and few rows in memory.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kcli.spark.processes import keep_modules

HELD_BYTES = 64 << 20
"""Bytes in a task's memory before they are written; with many directories, only the largest is."""
OPEN_FILES = 64
MEASURED = ("partition", "offset")
"""Columns whose minimum and maximum are in the table's log, if they exist."""


class CommittedElsewhere(Exception):
    """Another driver has committed the batch."""


@dataclass(frozen=True)
class AddedFile:
    """A file, for the table's log."""

    path: str
    size: int
    parts: tuple[str, ...]
    stats: str


@dataclass
class DeltaWritten(WriterCommitMessage):
    query: str
    batch: int
    files: list[AddedFile]


class DeltaSink(DataSource):
    """`writeStream.format("k-delta")`, once registered, with the options path, parts and codec."""

    @classmethod
    def name(cls) -> str:
        return "k-delta"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaStreamWriter:
        from pyspark.sql.pandas.types import to_arrow_schema

        parts = tuple(name for name in self.options["parts"].split(",") if name)
        path = address(self.options["path"])
        writer = DeltaStreamWriter(
            path, to_arrow_schema(schema, timezone="UTC"), parts, self.options["codec"]
        )
        writer.prepare()
        return writer


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, path: str, schema: pa.Schema, parts: tuple[str, ...], codec: str) -> None:
        self._path = path
        self._schema = schema
        self._parts = parts
        self._codec = codec

    def prepare(self) -> None:
        """Create or check the table. Raises ValueError if it has other columns."""
        table_of(self._path, self._schema, self._parts)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> DeltaWritten:
        keep_modules()
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None
        assert batch is not None
        if is_done(self._path, query, int(batch)):
            return DeltaWritten(query, int(batch), [])
        with DeltaFiles(self._path, self._parts, self._codec, int(batch)) as files:
            for rows in iterator:
                files.add(rows)
            return DeltaWritten(query, int(batch), files.ended())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, DeltaWritten)]
        files = [file for message in written for file in message.files]
        if files:
            from deltalake import DeltaTable

            table = DeltaTable(self._path)
            commit(table, self._schema, self._parts, files, written[0].query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files, unless the failed commit was made after all."""
        written = [message for message in messages if isinstance(message, DeltaWritten)]
        if not written or is_done(self._path, written[0].query, batchId):
            return
        store, base = store_of(self._path)
        for message in written:
            for file in message.files:
                store.delete_file(f"{base}/{file.path}")


def address(path: str) -> str:
    """Return the address for the libraries of Delta and Arrow: Hadoop has other schemes for some
    stores.
    """
    for hadoop, theirs in (("s3a://", "s3://"), ("file://", ""), ("file:", "")):
        if path.startswith(hadoop):
            path = theirs + path.removeprefix(hadoop)
            break
    return path if "://" in path else os.path.abspath(path)


def table_of(path: str, schema: pa.Schema, parts: Sequence[str]) -> Any:
    """Return the table, created if needed. Raises ValueError if it has other columns."""
    from deltalake import DeltaTable, Schema

    table = DeltaTable.create(path, schema, mode="ignore", partition_by=list(parts))
    there = {field.name: field.type for field in table.schema().fields}
    ours = {field.name: field.type for field in Schema.from_arrow(schema).fields}
    if wrong := [name for name, type in ours.items() if there.get(name) != type]:
        raise ValueError(
            f"the table {path} does not have the columns to land: {', '.join(wrong)} is missing"
            " or has another type; give another --path, or change the table"
        )
    if list(table.metadata().partition_columns) != list(parts):
        raise ValueError(
            f"the table {path} is partitioned by {', '.join(table.metadata().partition_columns)},"
            f" not by {', '.join(parts)}; --partition-by must stay the same"
        )
    return table


def is_done(path: str, query: str, batch: int) -> bool:
    from deltalake import DeltaTable

    return has_batch(DeltaTable(path), query, batch)


def has_batch(table: Any, query: str, batch: int) -> bool:
    """Whether this snapshot of the table has the batch."""
    done = table.transaction_version(query)
    return done is not None and done >= batch


def commit(
    table: Any,
    schema: pa.Schema,
    parts: Sequence[str],
    files: Sequence[AddedFile],
    query: str,
    batch: int,
) -> None:
    """Commit on top of this snapshot of the table, unless it has the batch.

    Raises CommittedElsewhere if the query has committed since the snapshot. So a driver that was
    stalled cannot add a batch that its successor has written.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction

    if has_batch(table, query, batch):
        return
    now_ms = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            path=file.path,
            size=file.size,
            partition_values=dict(zip(parts, file.parts, strict=True)),
            modification_time=now_ms,
            data_change=True,
            stats=file.stats,
        )
        for file in files
    ]
    # Deltalake accepts any version of a transaction. It refuses the commit only if there was one of
    # the same name after the snapshot that it is made on.
    properties = CommitProperties(app_transactions=[Transaction(query, batch)])
    try:
        table.create_write_transaction(
            actions, "append", schema, partition_by=list(parts), commit_properties=properties
        )
    except CommitFailedError as error:
        table.update_incremental()
        if not has_batch(table, query, batch):
            raise
        raise CommittedElsewhere(
            f"batch {batch} was committed to the table {table.table_uri} while this driver was"
            " about to commit it; end the other driver that uses this checkpoint, or start the job"
            " again if there is none"
        ) from error


class DeltaFiles:
    """The files of a task's rows: one for each directory, or more if there are too many to keep
    open.
    """

    def __init__(self, path: str, parts: tuple[str, ...], codec: str, batch: int) -> None:
        self._store, self._base = store_of(path)
        self._parts = parts
        self._codec = codec
        self._batch = batch
        self._open: dict[tuple[str, ...], _File] = {}
        self._ended: list[AddedFile] = []

    def __enter__(self) -> DeltaFiles:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for file in self._open.values():
            file.discard()
        if kind is not None:
            for landed in self._ended:
                self._store.delete_file(f"{self._base}/{landed.path}")

    def add(self, batch: pa.RecordBatch) -> None:
        for parts, rows in runs(batch, self._parts):
            if parts not in self._open:
                while len(self._open) >= OPEN_FILES:
                    self._end(next(iter(self._open)))
                self._open[parts] = _File(self._store, self._base, self._name(parts), self._codec)
            self._open[parts].add(rows)
        while sum(file.held_bytes for file in self._open.values()) >= HELD_BYTES:
            max(self._open.values(), key=lambda file: file.held_bytes).write()

    def ended(self) -> list[AddedFile]:
        for parts in list(self._open):
            self._end(parts)
        return self._ended

    def _end(self, parts: tuple[str, ...]) -> None:
        name, size, stats = self._open[parts].ended()
        del self._open[parts]
        self._ended.append(AddedFile(name, size, parts, stats))

    def _name(self, parts: Sequence[str]) -> str:
        places = [f"{name}={part}/" for name, part in zip(self._parts, parts, strict=True)]
        return f"{''.join(places)}part-{self._batch}-{uuid.uuid4()}.parquet"


def store_of(path: str) -> tuple[fs.FileSystem, str]:
    if "://" in path:
        system_and_path: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
        return system_and_path
    return fs.LocalFileSystem(), path


def runs(
    batch: pa.RecordBatch, parts: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
    """Yield the rows of each directory without the columns of its path."""
    if not batch.num_rows:
        return
    rest = batch.select([name for name in batch.schema.names if name not in parts])
    if not parts:
        yield (), rest
        return
    keys = pc.binary_join_element_wise(*(batch[name] for name in parts), "/")
    for key in pc.unique(keys).to_pylist():
        # Mostly all rows belong to one directory.
        run = rest if len(pc.unique(keys)) == 1 else rest.filter(pc.equal(keys, key))
        yield tuple(key.split("/")), run


class _File:
    def __init__(self, store: fs.FileSystem, base: str, name: str, codec: str) -> None:
        self.held_bytes = 0
        self._store = store
        self._name = name
        self._path = f"{base.rstrip('/')}/{name}"
        self._codec = codec
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[pa.RecordBatch] = []
        self._stats = _Stats()

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows.append(rows)
        self.held_bytes += rows.nbytes
        self._stats.add(rows)

    def ended(self) -> tuple[str, int, str]:
        """Close the file; return its name, its size, and its statistics."""
        if self._rows:
            self.write()
        assert self._writer is not None
        self._writer.close()
        size = self._store.get_file_info(self._path).size
        return self._name, size, self._stats.text()

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._store.delete_file(self._path)

    def write(self) -> None:
        table = pa.Table.from_batches(self._rows)
        if self._writer is None:
            self._store.create_dir(self._path.rpartition("/")[0], recursive=True)
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression=self._codec, filesystem=self._store
            )
        self._writer.write_table(table)
        self._rows, self.held_bytes = [], 0


class _Stats:
    """A file's statistics for Delta's log."""

    def __init__(self) -> None:
        self._rows = 0
        self._min_values: dict[str, int] = {}
        self._max_values: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        for name in MEASURED:
            if name in rows.schema.names:
                extremes = pc.min_max(rows[name]).as_py()
                self._min_values[name] = min(
                    self._min_values.get(name, extremes["min"]), extremes["min"]
                )
                self._max_values[name] = max(
                    self._max_values.get(name, extremes["max"]), extremes["max"]
                )

    def text(self) -> str:
        statistics = {
            "numRecords": self._rows,
            "minValues": self._min_values,
            "maxValues": self._max_values,
        }
        return json.dumps(statistics)
