"""Files that belong to a commit and files that belong to none, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra spark")
pytest.importorskip("deltalake", reason="the extra spark")

import deltalake
import pyarrow as pa

from kcli.spark.jobs.delta import (
    CommittedElsewhere,
    DeltaFiles,
    DeltaStreamWriter,
    DeltaWritten,
    commit,
)

SCHEMA = pa.schema([("value", pa.binary()), ("day", pa.string())])
PARTS = ("day",)
QUERY = "a-query"


def written(path: Path, batch: int) -> tuple[DeltaStreamWriter, DeltaWritten]:
    writer = DeltaStreamWriter(str(path), SCHEMA, PARTS, "zstd")
    writer.prepare()
    rows = pa.record_batch([[b"a", b"b", b"c"], ["1", "2", "1"]], schema=SCHEMA)
    with DeltaFiles(str(path), PARTS, "zstd", batch) as files:
        files.add(rows)
        return writer, DeltaWritten(QUERY, batch, files.ended())


def values(path: Path) -> list[bytes]:
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    return sorted(rows["value"].to_pylist())


def parquet(path: Path) -> list[Path]:
    return list(path.rglob("*.parquet"))


def test_a_batch_that_the_table_knows_is_not_committed_again(tmp_path):
    for _ in range(2):
        writer, message = written(tmp_path, 0)
        writer.commit([message, None], 0)
    assert values(tmp_path) == [b"a", b"b", b"c"]
    writer, message = written(tmp_path, 1)
    writer.commit([message], 1)
    assert len(values(tmp_path)) == 6


def test_a_driver_that_stalled_before_its_commit_does_not_commit_what_its_successor_has(tmp_path):
    _, stalled = written(tmp_path, 0)
    before = deltalake.DeltaTable(tmp_path)
    successor, message = written(tmp_path, 0)
    successor.commit([message], 0)
    with pytest.raises(CommittedElsewhere, match="batch 0 was committed to the table"):
        commit(before, SCHEMA, PARTS, stalled.files, QUERY, 0)
    # Nor on a snapshot that has the batch, or a later one.
    commit(deltalake.DeltaTable(tmp_path), SCHEMA, PARTS, stalled.files, QUERY, 0)
    assert values(tmp_path) == [b"a", b"b", b"c"]


def test_a_commit_beside_one_of_another_query_is_made(tmp_path):
    _, one = written(tmp_path, 0)
    _, other = written(tmp_path, 0)
    before = deltalake.DeltaTable(tmp_path)
    commit(deltalake.DeltaTable(tmp_path), SCHEMA, PARTS, other.files, "another", 0)
    commit(before, SCHEMA, PARTS, one.files, QUERY, 0)
    assert len(values(tmp_path)) == 6


def test_files_that_are_given_up_are_removed_and_those_of_the_table_never(tmp_path):
    writer, message = written(tmp_path, 0)
    assert len(parquet(tmp_path)) == 2
    writer.abort([message, None], 0)
    assert parquet(tmp_path) == []
    writer, message = written(tmp_path, 0)
    writer.commit([message], 0)
    # As Spark does where a commit was made and then failed.
    writer.abort([message], 0)
    assert values(tmp_path) == [b"a", b"b", b"c"]
