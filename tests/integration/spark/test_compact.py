"""Test the job compact: it merges many files into few, and every reader sees the same rows."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from kcli.command.options import Refused
from kcli.spark import jobs
from kcli.spark.jobs import compact
from kcli.spark.jobs.land import landed
from tests.support.frames import fill

EVERY_THIRD = "spark.sql.streaming.fileSink.log.compactInterval"


def given(path: Path, *words: str) -> SimpleNamespace:
    return jobs.read("compact", ["--path", str(path), "--quiet", *words])


def land(spark, broker, topic: str, where: Path) -> None:
    words = ["--topics", topic, "--path", str(where / "lake"), "--quiet", "--max-offsets", "10"]
    words += ["--checkpoint", str(where / "at"), "--bootstrap-server", broker.address]
    landed(spark, jobs.read("land", [*words, "--partition-by", "hour"]))


def files(path: Path) -> list[Path]:
    return sorted(f for f in path.rglob("*.parquet") if "_k_compact" not in f.parts)


def by_list(spark, path: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(path)).select("offset").collect())


def by_files(path: Path) -> list[int]:
    tables = [pq.read_table(file, partitioning=None) for file in files(path)]
    return sorted(pa.concat_tables(tables)["offset"].to_pylist())


def test_where_a_job_lands_all_readers_see_the_same_before_and_after(
    spark, broker, topic, tmp_path
):
    before = spark.conf.get(EVERY_THIRD, "10")
    spark.conf.set(EVERY_THIRD, "3")
    try:
        lake = tmp_path / "lake"
        fill(broker, topic, 70)
        land(spark, broker, topic, tmp_path)
        assert len(files(lake)) == 7
        told = compact.compacted(spark, given(lake, "--verify-counts", "--partitions", "hour=21"))
        assert told == "no files to compact"
        told = compact.compacted(spark, given(lake, "--verify-counts", "--partitions", "hour=22"))
        # The files of the last batch are not in the sink's list yet.
        assert told == "6 files in 1 directories compacted into 1"
        assert len(files(lake)) == 2
        assert by_list(spark, lake) == by_files(lake) == list(range(70))
        assert [path.name for path in (lake / "_k_compact").iterdir()] == ["lock"]
        # The sink continues, and builds its next list from the replaced one.
        fill(broker, topic, 20, start=70)
        land(spark, broker, topic, tmp_path)
        assert (lake / "_spark_metadata" / "8.compact").exists()
        assert by_list(spark, lake) == by_files(lake) == list(range(90))
        compact.compacted(spark, given(lake))
        assert by_list(spark, lake) == by_files(lake) == list(range(90))
    finally:
        spark.conf.set(EVERY_THIRD, before)


def test_lines_of_json_stay_as_they_are(spark, tmp_path):
    lines = [json.dumps({"n": n, "s": "\u2028é"}, ensure_ascii=False) for n in range(6)]
    for n in range(3):
        text = "".join(f"{line}\n" for line in lines[2 * n : 2 * n + 2])
        (tmp_path / f"part-{n}.json.gz").write_bytes(gzip.compress(text.encode()))
    assert compact.compacted(spark, given(tmp_path, "--format", "json", "--dry-run"))
    assert len(list(tmp_path.glob("part-*"))) == 3
    compact.compacted(spark, given(tmp_path, "--format", "json"))
    (one,) = tmp_path.glob("*.json.gz")
    assert one.name.startswith("compact-")
    found = gzip.decompress(one.read_bytes()).decode().split("\n")
    assert sorted(found) == sorted(["", *lines])


def test_what_does_not_hold_the_same_takes_no_place(spark, tmp_path):
    whole = spark.createDataFrame(
        [("t", 0, 1), ("t", 0, 2)], "topic string, partition int, offset long"
    )
    same = spark.createDataFrame([("t", 0, 2), ("t", 0, 1)], whole.schema)
    less = whole.limit(1)
    other = spark.createDataFrame([("t", 0, 1), ("t", 0, 1)], whole.schema)
    unit = compact.Unit("d=1", (), 1)
    for words, wrong in [((), [less]), (("--verify-counts",), [less, other])]:
        compact._compare(whole, same, unit, given(tmp_path, *words))
        for frame in wrong:
            with pytest.raises(Refused, match="d=1: the new files do not hold all rows"):
                compact._compare(whole, frame, unit, given(tmp_path, *words))


DELETED = re.compile(r'(?<="deletionTimestamp":)[0-9]+')


def two_hours_earlier(match: re.Match[str]) -> str:
    return str(int(match[0]) - 2 * 3_600_000)


def test_a_delta_table_compacts_the_chosen_directories(tmp_path):
    for n in range(6):
        table = pa.table({"offset": [n], "date": [f"2026-11-2{n % 2}"]})
        write_deltalake(tmp_path, table, mode="append", partition_by=["date"])
    words = ("--format", "delta", "--partitions", "date=2026-11-20")
    assert compact._compact_table(given(tmp_path, *words, "--older-than", "1h")) == (
        "no files to compact"
    )
    told = compact._compact_table(given(tmp_path, *words))
    assert told == "3 files in 1 directories compacted into 1"
    table = DeltaTable(tmp_path)
    assert len(table.file_uris()) == 4
    assert sorted(table.to_pyarrow_table()["offset"].to_pylist()) == list(range(6))
    assert len(files(tmp_path)) == 7
    # The retention is in whole hours, rounded up from the option.
    vacuum = given(tmp_path, "--format", "delta", "--vacuum-after", "30m")
    compact._compact_table(vacuum)
    assert len(files(tmp_path)) == 8
    for log in (tmp_path / "_delta_log").glob("*.json"):
        log.write_text(DELETED.sub(two_hours_earlier, log.read_text()))
    compact._compact_table(vacuum)
    assert len(files(tmp_path)) == 2
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["offset"].to_pylist()) == list(range(6))


def test_where_there_is_nothing_it_says_so(spark, tmp_path):
    with pytest.raises(Refused, match="contains no files"):
        compact.compacted(spark, given(tmp_path / "no"))
    with pytest.raises(Refused, match="contains no Delta table"):
        compact._compact_table(given(tmp_path / "no", "--format", "delta"))


def test_part_of_a_table_is_refused_and_a_name_is_no_address(spark, broker, topic, tmp_path):
    fill(broker, topic, 20)
    where = tmp_path / "a#b?c"
    land(spark, broker, topic, where)
    (part,) = (where / "lake").glob("date=*/hour=*")
    with pytest.raises(Refused, match=r"is part of the directory that .*/lake/_spark_metadata"):
        compact.compacted(spark, given(part))
    write_deltalake(tmp_path / "table", pa.table({"value": [1]}))
    with pytest.raises(Refused, match="is a Delta table: give --format delta"):
        compact.compacted(spark, given(tmp_path / "table"))
    assert compact.compacted(spark, given(tmp_path)) == "no files to compact"


def test_a_directory_that_has_landed_takes_no_other_checkpoint(spark, broker, topic, tmp_path):
    fill(broker, topic, 20)
    land(spark, broker, topic, tmp_path)
    (tmp_path / "at").rename(tmp_path / "lost")
    with pytest.raises(Refused, match="was written by a query with another checkpoint"):
        land(spark, broker, topic, tmp_path)
