"""Test that the job audit finds planted differences between topics and their landed records."""

from __future__ import annotations

import json

import pytest
from deltalake import write_deltalake

from kcli.client import Blocking, Producer
from kcli.client.admin.admin import Admin, ConfigChange, ConfigOp, ResourceType
from kcli.command.options import Refused
from kcli.spark.jobs.audit import SHAPE
from kcli.spark.jobs.audit_queries import RECORD, Audit, audited
from kcli.spark.jobs.audit_windows import HOUR_MS
from kcli.spark.jobs.landed_files import landed
from kcli.spark.jobs.places import Place
from tests.support.brokers import append, create_topic, stored
from tests.support.frames import T0, delete_before, made_anew, of
from tests.support.spark_jobs import job

HOURS = ("22", "23", "00")
"""Hours of T0 and of the two hours after it."""


def fill(broker, topic: str, partition: int = 0, hours: int = len(HOURS)) -> None:
    """Append ten records in each hour."""
    for hour in range(hours):
        base = T0 + hour * HOUR_MS
        records = [(base + n, b"k%d" % n, b"%d" % n, ()) for n in range(10)]
        append(broker.address, topic, records, partition)


def fill_as_cleaned(broker, topic: str) -> None:
    """Append records at every second offset, like a compacted topic."""
    settings = {"bootstrap.servers": broker.address, "transactional.id": topic}
    with Blocking(Producer, settings) as producer:
        producer.init_transactions()
        for _ in range(5):
            producer.begin_transaction()
            producer.send(topic, b"v", key=b"k", timestamp=T0, partition=0).result()
            producer.commit_transaction()


def land(spark, broker, topics: str, path, where: str, shift: int = 0) -> None:
    frame = of(spark.read, broker, topics).load().where(where)
    moved = frame.withColumn("offset", frame["offset"] + shift)
    moved.write.mode("append").parquet(str(path))


def audit(spark, broker, topics: str, path, **changes):
    """Return the findings by topic and hour."""
    source = {"kafka.bootstrap.servers": broker.address, "subscribe": topics}
    settings = {"format": "parquet", "window_ms": HOUR_MS, "overdue_ms": 0}
    findings = audited(spark, Audit(source, **{"paths": (str(path),)} | settings | changes))
    return {(found.topic, found.window[11:13]): found for found in findings}


def test_what_was_planted_is_found_and_what_is_all_right_is_told_apart(
    spark, broker, topic, tmp_path
):
    whole, gappy, slow, old, aside, cleaned, strange = topics = [
        create_topic(broker.address, f"{topic}-{name}", partitions=1 + (name == "whole"))
        for name in ("whole", "gappy", "slow", "old", "aside", "cleaned", "strange")
    ]
    for name in (whole, gappy, slow, old, aside):
        fill(broker, name)
    fill(broker, whole, partition=1, hours=1)
    for name in (cleaned, strange):
        fill_as_cleaned(broker, name)
    with Blocking(Admin, {"bootstrap.servers": broker.address}) as admin:
        change = ConfigChange("cleanup.policy", ConfigOp.SET, "compact")
        admin.incremental_alter_configs({(ResourceType.TOPIC, cleaned): [change]})
    wanted = ",".join(topics)
    landed_in, late = tmp_path / "landed", tmp_path / "late"
    dlq = create_topic(broker.address, f"{topic}-dlq")
    says = {"topic": aside, "partition": 0, "offset": 6, "timestamp": T0 + 6}
    dead = tuple((f"k.dlq.{name}", str(said).encode()) for name, said in says.items())
    # Of gappy, offsets 3, 14 and 15 are missing, and 2 and 27 are duplicates. Of slow, offsets
    # above 14 have not landed. Of aside, one record is late and one is a dead letter. Of the last
    # two topics, offsets between their records have landed too.
    land(
        spark,
        broker,
        wanted,
        landed_in,
        f"case topic when '{gappy}' then offset not in (3, 14, 15) when '{slow}' then offset < 15"
        f" when '{old}' then offset <> 18 when '{cleaned}' then offset <> 4"
        f" when '{aside}' then offset not in (5, 6, 7) else true end",
    )
    land(spark, broker, gappy, landed_in, "offset in (2, 27)")
    land(spark, broker, f"{cleaned},{strange}", landed_in, "offset in (2, 6)", shift=1)
    land(spark, broker, aside, late, "offset = 5")
    append(broker.address, dlq, [(T0, None, b"6", dead), (T0, None, b"own", ())])
    delete_before(broker, old, 12)
    paths = (str(landed_in), str(late))
    found = audit(spark, broker, wanted, landed_in, paths=paths, dlq=dlq)

    def hours(name: str, *fields: str) -> list:
        values = [[getattr(found[name, hour], field) for field in fields] for hour in HOURS]
        return values if len(fields) > 1 else [value for (value,) in values]

    assert hours(whole, "broker", "landed") == [[20, 20], [10, 10], [10, 10]]
    assert hours(whole, "differs") == [False] * 3
    assert hours(gappy, "missing", "duplicates") == [[1, 1], [2, 0], [0, 1]]
    assert hours(gappy, "broker", "landed") == [[10, 10], [10, 8], [10, 11]]
    assert hours(slow, "waiting") == [0, 5, 10]
    assert hours(slow, "differs") == [False] * 3
    assert hours(old, "broker", "landed", "aged_out") == [[0, 10, 10], [8, 9, 2], [10, 10, 0]]
    assert hours(old, "missing") == [0, 1, 0]
    assert hours(aside, "landed", "missing") == [[9, 1], [10, 0], [10, 0]]
    one = found[cleaned, "22"]
    assert (one.broker, one.landed, one.missing, one.aged_out, one.extra) == (5, 6, 1, 2, 0)
    one = found[strange, "22"]
    assert (one.broker, one.landed, one.missing, one.aged_out, one.extra) == (5, 7, 0, 0, 2)


def test_a_start_leaves_out_what_is_before_it_and_a_late_topic_is_a_gap(
    spark, broker, topic, tmp_path
):
    fill(broker, topic)
    land(spark, broker, topic, tmp_path, "offset not in (3, 25) and offset < 28")
    start = Place(time_ms=T0 + HOUR_MS)
    overdue_ms = (T0 // HOUR_MS + 3) * HOUR_MS
    found = audit(spark, broker, topic, tmp_path, start=start, overdue_ms=overdue_ms)
    assert [(hour, one.missing) for (_, hour), one in found.items()] == [("23", 0), ("00", 3)]
    # Also if the broker has none of it left and the dead-letter topic does not exist.
    delete_before(broker, topic, 30)
    found = audit(spark, broker, topic, tmp_path, start=start, dlq=f"{topic}-dead")
    assert [(hour, one.aged_out) for (_, hour), one in found.items()] == [("23", 10), ("00", 7)]


def test_what_landed_of_a_topic_that_was_created_again_is_not_taken_for_the_new_records(
    spark, broker, topic, tmp_path
):
    """Both are in one window with equal counts, so only their timestamps differ."""
    fill(broker, topic, hours=1)
    land(spark, broker, topic, tmp_path, "offset < 4")
    made_anew(broker, topic)
    append(broker.address, topic, [(T0 + 100 + n, None, b"new", ()) for n in range(10)])
    land(spark, broker, topic, tmp_path, "offset >= 4")
    (found,) = audit(spark, broker, topic, tmp_path).values()
    assert (found.broker, found.landed) == (10, 10)
    assert (found.missing, found.extra, found.duplicates) == (4, 4, 0)
    land(spark, broker, topic, tmp_path, "offset < 4")
    (found,) = audit(spark, broker, topic, tmp_path).values()
    assert (found.missing, found.extra, found.duplicates) == (0, 0, 4)


def test_what_has_landed_is_read_from_every_format_and_refused_where_it_is_not(
    spark, broker, topic, tmp_path
):
    fill(broker, topic, hours=1)
    records = of(spark.read, broker, topic).load().cache()
    expected = sorted(records.select(*RECORD).collect())
    records.write.json(str(tmp_path / "json"))
    records.write.partitionBy("topic").parquet(str(tmp_path / "parquet"))
    for name in ("delta", "delta of ü #1"):
        write_deltalake(str(tmp_path / name), records.toArrow(), partition_by=["topic"])
    for name in ("json", "parquet", "delta", "delta of ü #1"):
        found = landed(spark, str(tmp_path / name), name.split()[0], RECORD)
        assert sorted(found.collect()) == expected
    for format, told in (
        ("parquet", "contains no files in the format parquet"),
        ("delta", "contains no Delta table"),
    ):
        with pytest.raises(Refused, match=told):
            landed(spark, str(tmp_path / "none"), format, RECORD)
    with pytest.raises(Refused, match="has no column tone, only key, value, "):
        landed(spark, str(tmp_path / "delta"), "delta", [*RECORD, "tone"])


def test_from_cron_a_gap_is_told_reported_and_is_the_status(broker, topic, tmp_path, spark):
    reports = create_topic(broker.address, f"{topic}-reports")
    fill(broker, topic)
    land(spark, broker, topic, tmp_path, "offset <> 14")
    words = f"audit --topics {topic} --path {tmp_path} --fail-on-gap --report-topic {reports}"
    done = job(*words.split(), "--bootstrap-server", broker.address, "-o", "jsonl")
    assert done.returncode == 3, done.stderr
    (line,) = done.stdout.splitlines()
    (sent,) = (r for batch in stored(broker, reports) for r in batch.records())
    assert (sent.key, sent.value) == (topic.encode(), line.encode())
    row = json.loads(line)
    assert row.pop("schema") == SHAPE.id
    assert tuple(row) == SHAPE.names
    assert (row["window"], row["broker"], row["missing"]) == ("2023-11-14T23:00Z", 10, 1)
