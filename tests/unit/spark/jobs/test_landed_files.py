"""The files of a Delta table, by the names that they have on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra spark")
pytest.importorskip("deltalake", reason="the extra spark")

import pyarrow as pa
from deltalake import write_deltalake

from kcli.spark.jobs.landed_files import delta_files


@pytest.mark.parametrize("name", ["plain", "a b", "50%", "über #1"])
def test_files_of_a_table_are_where_they_are_said_to_be(tmp_path, name):
    at = tmp_path / name
    write_deltalake(at, pa.table({"v": [1, 2, 3], "k": ["a b", "50%", "c"]}), partition_by=["k"])
    on_disk = sorted(map(str, at.rglob("*.parquet")))
    for path in (str(at), f"file://{at}", f"{at}/"):
        assert sorted(delta_files(path, gaps=False)) == on_disk
    Path(on_disk[0]).unlink()
    assert sorted(delta_files(str(at), gaps=True)) == on_disk[1:]
