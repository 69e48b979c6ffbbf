"""Words of land and compact: what makes no sense is refused before Spark starts."""

from __future__ import annotations

import shlex
from types import SimpleNamespace

import pytest
from click import UsageError

from kcli.spark import jobs
from kcli.spark.jobs import shared

LAND = "land --topics t --path /x --checkpoint /c"
BY_TIME = f"{LAND} --value json --schema 'at bigint' --event-time at"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("land --topics t --checkpoint /c", "name the directory for rows: --path"),
        ("land --path /x --checkpoint /c", "name topics to read: --topics or --pattern"),
        ("land --topics t --path /x", "--checkpoint DIRECTORY"),
        (f"{LAND} --pattern p", "can't be used with option"),
        (
            f"{LAND} --trigger soon",
            "--trigger must be availableNow, continuous or a time such as 30s",
        ),
        (f"{LAND} --value json", "--value json requires --schema"),
        (f"{LAND} --schema 'a int'", "--schema is for --value json and msgpack"),
        (f"{LAND} --event-time at", "--event-time FIELD requires --value json or msgpack"),
        (f"{LAND} --event-time header:", "--event-time must be a field, such as order.at"),
        (f"{LAND} --late-path /y", "--late-path requires --event-time"),
        (f"{BY_TIME} --late-path /y", "--late-path requires --partition-by"),
        (f"{BY_TIME} --partition-by day --late-path /x/", "are the same directory"),
        (f"{BY_TIME} --late-after 5m", "--late-after requires --late-path"),
        (
            f"{LAND} --format json --codec zstd",
            "--codec for json must be one of none, gzip, bzip2, not zstd",
        ),
        (
            "land --topics t --path /x/a%20b --checkpoint /c --format delta",
            "--path /x/a%20b contains %20, which the deltalake library decodes",
        ),
        (
            f"{BY_TIME} --partition-by day --late-path /late%2f --format delta",
            "--late-path /late%2f contains %2f",
        ),
        ("compact --path /x%20 --format delta", "--path /x%20 contains %20"),
        ("compact", "name the directory of the files: --path"),
        ("compact --path /x --partitions date", "'date' is not like date=2026-11-21"),
        ("compact --path /x --target-mb 0", "--target-mb must be at least 1"),
        ("compact --path /x --codec bzip2", "--codec for parquet cannot be bzip2"),
        ("compact --path /x --vacuum-after 1h", "--vacuum-after is for --format delta"),
    ],
)
def test_words_that_make_no_sense_are_refused(words, told):
    name, *rest = shlex.split(words)
    with pytest.raises(UsageError) as caught:
        jobs.read(name, rest)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        LAND,
        "land --pattern 't.*' --path /x --checkpoint /c --format delta --codec zstd",
        "land --topics t --path /50% --checkpoint /c%20 --format delta",
        "land --topics t --path /a%20b --checkpoint /c",
        f"{LAND} --event-time header:at --partition-by day --late-path /y",
        f"{BY_TIME} --partition-by hour --late-path /y --late-after 5m --dlq d",
        "compact --path /x --format delta --vacuum-after 168h --older-than 2h",
    ],
)
def test_words_that_make_sense_are_read(words):
    name, *rest = shlex.split(words)
    jobs.read(name, rest)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (None, {"availableNow": True}),
        ("availablenow", {"availableNow": True}),
        ("continuous", {"processingTime": "0 seconds"}),
        ("30s", {"processingTime": "30 seconds"}),
        ("500ms", {"processingTime": "500 milliseconds"}),
    ],
)
def test_a_trigger_is_what_spark_takes(text, taken):
    assert shared.trigger(SimpleNamespace(trigger=text)) == taken
