"""Test the job land: records of topics become files, each record once; late and invalid records go
to separate places."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kcli.command.options import Refused
from kcli.spark import jobs
from kcli.spark.jobs import leftovers
from kcli.spark.jobs.land import landed
from kcli.spark.jobs.land_paths import time_sql
from kcli.spark.jobs.spark_errors import refusing_spark_errors
from kcli.spark.jobs.store import LocalStore
from tests.support import frames
from tests.support.brokers import append, create_topic
from tests.support.frames import T0, of

HOUR_MS = 3_600_000
PARTITIONS = ["date", "hour"]


def run(spark, broker, topic: str, where: Path, *words: str):
    """Run the job in this session; return the number of rows of each query."""
    given = jobs.read(
        "land",
        [
            *("--topics", topic, "--path", str(where / "lake"), "--quiet"),
            *("--checkpoint", str(where / "checkpoint"), "--bootstrap-server", broker.address),
            *words,
        ],
    )
    with refusing_spark_errors():
        status, totals = landed(spark, given)
    assert status == 0
    return {name: one.observed.get("rows", 0) for name, one in totals.items()}


def table(path: Path, format: str = "parquet") -> pa.Table:
    """Read the files without Spark."""
    kinds = pa.schema([("date", pa.string()), ("hour", pa.string())])
    hive = ds.partitioning(kinds, flavor="hive")
    return ds.dataset(path, format=format, partitioning=hive).to_table()


def places(path: Path, format: str = "parquet") -> list[tuple[int, int]]:
    found = table(path, format)
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def fill(broker, topic: str, values: list[tuple[int, bytes | None]]) -> None:
    """Append records with these timestamps to partition 1."""
    append(broker.address, topic, [(at, b"k", value, ()) for at, value in values], 1)


def order(n: int, at_ms: int) -> bytes:
    return json.dumps({"id": n, "at": at_ms}).encode()


def test_records_land_once_late_ones_and_dead_letters_put_aside(spark, broker, topic, tmp_path):
    dead = create_topic(broker.address, f"{topic}-dead")
    words = ["--value", "json", "--schema", "id bigint, at bigint", "--event-time", "at"]
    words += ["--partition-by", "hour", "--late-path", str(tmp_path / "late")]
    words += ["--late-after", "10m", "--dlq", dead]
    # T0 is 22:13:20. There are 1000 records: in time, just too late, invalid, without a time,
    # without a value.
    closed = T0 - 13 * 60_000 - 20_000 + 10 * 60_000
    good = [(T0 + n, order(n, T0 + n)) for n in range(900)]
    edge = [(closed - 1, order(900, T0 - HOUR_MS)), (closed, order(901, T0 - HOUR_MS))]
    late = [(T0 + n, order(n, T0 - 3 * HOUR_MS)) for n in range(48)]
    broken = [(T0, b"{"), (T0, b'{"id": "x", "at": 1}'), (T0, b'{"id": 1}'), *[(T0, b"\xff")] * 45]
    fill(broker, topic, good + edge + late + broken + [(T0, None), (T0, None)])
    found = run(spark, broker, topic, tmp_path, *words)
    assert found == {"landed": 903, "late": 49, "dlq": 48}
    # A second run finds nothing; a third one finds the records since then.
    assert run(spark, broker, topic, tmp_path, *words) == {"landed": 0, "late": 0, "dlq": 0}
    fill(broker, topic, [(T0, order(1000, T0)), (T0, b"}")])
    assert run(spark, broker, topic, tmp_path, *words) == {"landed": 1, "late": 0, "dlq": 1}

    main = table(tmp_path / "lake")
    hours = Counter(zip(main["date"].to_pylist(), main["hour"].to_pylist(), strict=True))
    assert hours == {("2023-11-14", "22"): 903, ("2023-11-14", "21"): 1}
    ids = [None if value is None else value["id"] for value in main["value"].to_pylist()]
    assert Counter(ids) == Counter([*range(901), 1000, None, None])
    put_aside = table(tmp_path / "late")
    assert Counter(put_aside["hour"].to_pylist()) == {"19": 48, "21": 1}
    letters = of(spark.read, broker, dead, includeHeaders="true").load().collect()
    assert len(letters) == 49
    reasons = Counter(dict(row.headers)["k.dlq.reason"].decode() for row in letters)
    assert reasons["it has no time in at"] == 1
    assert sum(reasons.values()) == 49
    assert all(dict(row.headers)["k.dlq.topic"].decode() == topic for row in letters)
    lost = {int(dict(row.headers)["k.dlq.offset"]) for row in letters}
    landed_at = {offset for _, offset in places(tmp_path / "lake") + places(tmp_path / "late")}
    assert landed_at.isdisjoint(lost)
    assert landed_at | lost == set(range(1002))


def test_a_broken_record_without_a_topic_for_it_fails_the_job_by_its_name(
    spark, broker, topic, tmp_path
):
    fill(broker, topic, [(T0, b"1"), (T0, b"{")])
    words = ("--value", "json", "--schema", "id bigint")
    with pytest.raises(Refused) as caught:
        run(spark, broker, topic, tmp_path, *words)
    assert str(caught.value).startswith(f"{topic}-1 at offset 0: ")
    assert str(caught.value).endswith("; --dlq TOPIC sends such records to a topic")


def test_bytes_land_as_json_by_day(spark, broker, topic, tmp_path):
    fill(broker, topic, [(T0, b"\x00\xff"), (T0 + 24 * HOUR_MS, b"b")])
    words = ("--format", "json", "--codec", "gzip", "--partition-by", "day")
    assert run(spark, broker, topic, tmp_path, *words) == {"landed": 2}
    (first,) = (tmp_path / "lake" / "date=2023-11-14").glob("*.json.gz")
    rows = ds.dataset(first.parent, format="json").to_table().to_pylist()
    assert [(row["value"], row["offset"], row["topic"]) for row in rows] == [("AP8=", 0, topic)]
    assert len(list((tmp_path / "lake" / "date=2023-11-15").glob("*.json.gz"))) == 1


def test_a_delta_table_takes_each_batch_once(spark, broker, topic, tmp_path):
    from deltalake import DeltaTable

    frames.fill(broker, topic, 30, 20)
    words = ("--format", "delta", "--partition-by", "hour", "--max-offsets", "20")
    assert run(spark, broker, topic, tmp_path, *words) == {"landed": 50}
    lake = tmp_path / "lake"
    assert delta_places(lake) == [(0, n) for n in range(30)] + [(1, n) for n in range(20)]
    version = DeltaTable(lake).version()
    # As if it had been killed between the table's commit and Spark's own, in the last batch.
    commits = tmp_path / "checkpoint" / "landed" / "commits"
    for name in ("2", ".2.crc"):
        (commits / name).unlink()
    run(spark, broker, topic, tmp_path, *words)
    assert DeltaTable(lake).version() == version
    assert len(delta_places(lake)) == 50
    frames.fill(broker, topic, 5, start=30)
    assert run(spark, broker, topic, tmp_path, *words) == {"landed": 5}
    assert len(set(delta_places(lake))) == len(delta_places(lake)) == 55
    stats = pa.table(DeltaTable(lake).get_add_actions(flatten=True))
    assert set(stats["partition.hour"].to_pylist()) == {"22"}
    assert sum(stats["num_records"].to_pylist()) == 55
    assert max(stats["max.offset"].to_pylist()) == 34


def delta_places(path: Path) -> list[tuple[int, int]]:
    from deltalake import DeltaTable

    found = DeltaTable(path).to_pyarrow_table()
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def test_what_a_killed_run_has_left_is_gone_after_the_next(spark, broker, topic, tmp_path):
    frames.fill(broker, topic, 6)
    words = ("--max-offsets", "2", "--partition-by", "day")
    assert run(spark, broker, topic, tmp_path, *words) == {"landed": 6}
    # As if it had been killed in its last batch: one file is in no list, and one is incomplete.
    at = tmp_path / "checkpoint" / "landed" / "commits"
    log = tmp_path / "lake" / "_spark_metadata"
    for name in (at / "2", at / ".2.crc", log / "2", log / ".2.crc"):
        name.unlink()
    day = tmp_path / "lake" / "date=2023-11-14"
    half = day / "part-00000-6b5c343a-dc8e-41ac-8c8d-49efe6669979.c000.zstd.parquet"
    half.write_bytes(b"PAR1")
    mine = day / "mine.parquet"
    mine.write_bytes(next(day.glob("part-*")).read_bytes())
    # The last batch is repeated, and no other follows.
    run(spark, broker, topic, tmp_path, *words)
    assert not half.exists()
    mine.unlink()
    assert places(tmp_path / "lake") == [(0, n) for n in range(6)]


def test_no_file_goes_while_a_batch_is_under_way(tmp_path):
    lake, checkpoint = LocalStore(str(tmp_path / "lake")), LocalStore(str(tmp_path / "at"))
    file = "part-00000-6b5c343a-dc8e-41ac-8c8d-49efe6669979.c000.zstd.parquet"
    for store, path in (
        (lake, file),
        (lake, "_spark_metadata/0"),
        (checkpoint, "commits/0"),
        (checkpoint, "offsets/0"),
        (checkpoint, "offsets/1"),
    ):
        store.write(path, "v1")
    assert leftovers.remove_leftovers(lake, checkpoint) == 0
    checkpoint.write("commits/1", "v1")
    assert leftovers.remove_leftovers(lake, checkpoint) == 1
    assert [entry.name for entry in lake.entries("")] == ["_spark_metadata"]


def test_a_time_is_read_of_whatever_says_it(spark):
    of_type = {
        "'1700000000000'": ("string", T0),
        "'2023-11-14T22:13:20Z'": ("string", T0),
        "'2023-11-14 22:13:20'": ("string", T0),
        "'2023-11-14T23:13:20.001+01:00'": ("string", T0 + 1),
        "'soon'": ("string", None),
        "'9223372036854775807'": ("string", None),
        "1700000000000L": ("long", T0),
        "1.7e12D": ("double", T0),
        "9223372036854775807L": ("long", None),
        "CAST(NULL AS BIGINT)": ("long", None),
        "TIMESTAMP'2023-11-14T22:13:20Z'": ("timestamp", T0),
        "DATE'2023-11-14'": ("date", T0 - T0 % (24 * HOUR_MS)),
    }
    times = [f"unix_millis({time_sql(said, kind)})" for said, (kind, _) in of_type.items()]
    (found,) = spark.range(1).selectExpr(*times).collect()
    wanted = [at for _, at in of_type.values()]
    assert dict(zip(of_type, found, strict=True)) == dict(zip(of_type, wanted, strict=True))
