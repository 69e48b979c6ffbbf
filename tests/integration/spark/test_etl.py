"""Test the job etl: SQL and Python transformations, windows, dead letters, exactly-once writes."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from kcli.command.options import Refused
from kcli.spark import jobs
from kcli.spark.jobs.etl import transformed
from kcli.spark.jobs.spark_errors import refusing_spark_errors
from tests.support.brokers import append, create_topic, stored
from tests.support.frames import T0, refusal

SCHEMA = "at timestamp, status int"


def fill(broker, topic: str, *values: str | bytes | None, at: int = T0) -> None:
    texts = [value.encode() if isinstance(value, str) else value for value in values]
    append(broker.address, topic, [(at, b"k%d" % n, text, ()) for n, text in enumerate(texts)])


def hit(minute: int, second: int, status: int) -> str:
    return json.dumps({"at": f"2026-01-31T06:{minute:02}:{second:02}Z", "status": status})


def etl(spark, broker, topic: str, where: Path, *words: str):
    """Run the job in this session; return its status and each query's totals."""
    given = jobs.read(
        "etl",
        [
            *("--topics", topic, "--bootstrap-server", broker.address, "--quiet"),
            *("--checkpoint", str(where / "checkpoint"), *words),
        ],
    )
    return transformed(spark, given)


def written(broker, topic: str) -> list:
    return [r for batch in stored(broker, topic) if not batch.is_control for r in batch.records()]


def test_windows_of_json_are_counted_once_and_written_when_they_are_over(
    spark, broker, topic, tmp_path
):
    to = create_topic(broker.address, f"{topic}-counts")
    dead = create_topic(broker.address, f"{topic}-dead")
    query = tmp_path / "per_minute.sql"
    query.write_text(
        "SELECT date_format(window(at, '1 minute').start, 'HH:mm') AS key, status,\n"
        "    count(*) AS hits, max(offset) AS last\n"
        "FROM records GROUP BY window(at, '1 minute'), status;\n"
    )
    words = ["--value", "json", "--schema", SCHEMA, "--watermark", "at:1m", "--sql", f"@{query}"]
    words += ["--to", f"topic:{to}", "--exactly-once", "--dlq", dead]
    fill(broker, topic, hit(0, 1, 200), hit(0, 59, 200), hit(0, 2, 500), "no json", hit(1, 5, 200))
    status, totals = etl(spark, broker, topic, tmp_path, *words)
    assert (status, written(broker, to)) == (0, [])
    # Ends the first two minutes; later records of these minutes are too late.
    fill(broker, topic, hit(3, 0, 200))
    _, totals = etl(spark, broker, topic, tmp_path, *words)
    assert totals["rows"].observed == {"rows": 3}
    fill(broker, topic, hit(0, 30, 200), "[]")
    etl(spark, broker, topic, tmp_path, *words)
    found = {(r.key, json.dumps(json.loads(r.value))) for r in written(broker, to)}
    assert found == {
        (b"06:00", '{"status": 200, "hits": 2, "last": 1}'),
        (b"06:00", '{"status": 500, "hits": 1, "last": 2}'),
        (b"06:01", '{"status": 200, "hits": 1, "last": 4}'),
    }
    assert len(written(broker, to)) == 3
    letters = [(r.key, r.value, dict(r.headers)) for r in written(broker, dead)]
    assert [letter[:2] for letter in letters] == [(b"k3", b"no json"), (b"k1", b"[]")]
    headers = {name: text.decode() for name, text in letters[0][2].items()}
    assert headers.pop("k.dlq.reason").startswith("not JSON: ")
    assert headers == {
        "k.dlq.topic": topic,
        "k.dlq.partition": "0",
        "k.dlq.offset": "3",
        "k.dlq.timestamp": str(T0),
    }


FUNCTION = """
from pyspark.sql import functions as f

def level(value):
    return value and value.split(" ")[0]

def errors(records):
    cut = f.udf(level)
    return records.select("*", cut("value").alias("level")).where("level <> 'INFO'")
"""


def test_a_function_in_a_file_is_run_by_the_executors_too_and_records_keep_what_they_had(
    spark, broker, topic, tmp_path
):
    to = create_topic(broker.address, f"{topic}-to", partitions=2, max_message_bytes=1000)
    dead = create_topic(broker.address, f"{topic}-dead")
    (tmp_path / "etl_levels.py").write_text(FUNCTION)
    large = f"ERROR {'x' * 2000}"
    fill(broker, topic, "INFO a", "ERROR b", None, "WARN c", large)
    words = ["--value", "string", "--py", f"{tmp_path}/etl_levels.py:errors", "--to", f"topic:{to}"]
    _, totals = etl(spark, broker, topic, tmp_path, *words, "--dlq", dead)
    assert totals["rows"].observed == {"rows": 3}
    (letter,) = written(broker, dead)
    assert (letter.key, letter.value) == (b"k4", large.encode())
    assert dict(letter.headers)["k.dlq.topic"] == to.encode()
    found = [(r.key, r.value, r.timestamp) for r in written(broker, to)]
    assert found == [(b"k1", b"ERROR b", T0), (b"k3", b"WARN c", T0)]


def test_files_that_a_killed_run_has_left_are_gone_after_the_next(spark, broker, topic, tmp_path):
    words = ["--value", "json", "--schema", SCHEMA, "--sql", "SELECT status FROM records"]
    words += ["--to", f"json:{tmp_path / 'out'}"]
    for n in range(2):
        fill(broker, topic, hit(0, n, n))
        etl(spark, broker, topic, tmp_path, *words)
    # As if it had been killed in its second batch: a file exists that is in no list.
    commits, log = (
        tmp_path / "checkpoint" / "rows" / "commits",
        tmp_path / "out" / "_spark_metadata",
    )
    for name in (commits / "1", commits / ".1.crc", log / "1", log / ".1.crc"):
        name.unlink()
    _, totals = etl(spark, broker, topic, tmp_path, *words)
    assert totals["rows"].observed == {"rows": 1}
    lines = [line for path in (tmp_path / "out").glob("*.json") for line in path.open()]
    assert sorted(json.loads(line)["status"] for line in lines) == [0, 1]


def test_to_files_a_value_that_cannot_be_decoded_fails_the_job_where_nobody_takes_it(
    spark, broker, topic, tmp_path
):
    schema = "status int, offset string"
    words = ["--value", "json", "--schema", schema, "--to", f"json:{tmp_path / 'out'}"]
    sql = "SELECT status, offset, record.offset AS own, topic, timestamp AS written FROM records"
    words += ["--sql", sql]
    fill(broker, topic, hit(0, 1, 200), '{"status": 404, "offset": "far"}')
    etl(spark, broker, topic, tmp_path, *words)
    lines = [line for path in (tmp_path / "out").glob("*.json") for line in path.open()]
    first, second = sorted(map(json.loads, lines), key=lambda row: row["status"])
    written_at = {row.pop("written") for row in (first, second)}
    assert [datetime.fromisoformat(time).timestamp() for time in written_at] == [T0 / 1000]
    assert first == {"status": 200, "own": 0, "topic": topic}
    assert second == {"status": 404, "offset": "far", "own": 1, "topic": topic}
    fill(broker, topic, "{")
    why = refusal(lambda: etl(spark, broker, topic, tmp_path, *words))
    assert f"{topic}-0 at offset 2: not JSON: " in why
    assert "; --dlq TOPIC sends such records to a topic" in why


def test_a_query_that_is_wrong_is_told_in_one_line(spark, broker, topic, tmp_path):
    words = ["--to", "console", "--sql", "SELECT nothing FROM records"]
    with (
        pytest.raises(Refused, match=r"^A column.* `nothing` cannot be resolved"),
        refusing_spark_errors(),
    ):
        etl(spark, broker, topic, tmp_path, *words)
