"""Test readers of landed files after some were removed, and before any exist."""

from __future__ import annotations

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from kcli.command.options import Refused
from kcli.spark.jobs.audit_queries import RECORD
from kcli.spark.jobs.landed_files import landed
from tests.support.brokers import append
from tests.support.frames import T0, of, refusal

STREAMED = ("parquet", "json")


@pytest.fixture
def records(spark, broker, topic):
    """A stream of offsets 0 to 9, half of them for each directory."""
    append(broker.address, topic, [(T0 + n, None, b"%d" % n, ()) for n in range(10)], 0)
    return of(spark.readStream, broker, topic, startingOffsets="earliest").load()


def land(records, format: str, path, where: str) -> None:
    """Write files as Spark's file sink does, including its list of landed files."""
    rows = records.where(where).selectExpr("*", "offset div 5 AS half").writeStream
    rows = rows.partitionBy("half").format(format).trigger(availableNow=True)
    rows.option("checkpointLocation", f"{path}-checkpoint").start(str(path)).awaitTermination()


def take_away(path) -> None:
    taken = list(path.glob("half=1/*"))
    assert taken
    for file in taken:
        file.unlink()


@pytest.mark.parametrize("format", STREAMED)
def test_files_that_were_taken_away_are_a_gap_for_who_asks_for_gaps(
    spark, records, tmp_path, format
):
    land(records, format, tmp_path / "all", "true")
    take_away(tmp_path / "all")
    held = landed(spark, str(tmp_path / "all"), format, RECORD, gaps=True)
    assert sorted(row.offset for row in held.collect()) == [0, 1, 2, 3, 4]
    told = refusal(lambda: landed(spark, str(tmp_path / "all"), format, RECORD).collect())
    assert "half=1" in told


def test_a_delta_table_may_lack_files_too(spark, broker, topic, records, tmp_path):
    path = tmp_path / "table"
    rows = of(spark.read, broker, topic).load().selectExpr("*", "offset div 5 AS half")
    write_deltalake(str(path), rows.toArrow(), partition_by=["half"])
    take_away(path)
    held = landed(spark, str(path), "delta", RECORD, gaps=True)
    assert sorted(row.offset for row in held.collect()) == [0, 1, 2, 3, 4]
    assert "half=1" in refusal(lambda: landed(spark, str(path), "delta", RECORD))


@pytest.mark.parametrize("format", [*STREAMED, "delta"])
def test_where_nothing_has_landed_yet_there_are_no_rows(spark, records, tmp_path, format):
    path = tmp_path / "none"
    if format == "delta":
        DeltaTable.create(str(path), pyarrow.schema([("offset", pyarrow.int64())]))
    else:
        land(records, format, path, "offset > 9")
    assert landed(spark, str(path), format, RECORD, gaps=True).collect() == []
    with pytest.raises(Refused):
        landed(spark, str(path), format, RECORD)
    with pytest.raises(Refused, match="contains no"):
        landed(spark, str(tmp_path / "nowhere"), format, RECORD, gaps=True)
