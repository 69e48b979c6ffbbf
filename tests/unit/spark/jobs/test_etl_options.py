"""What etl is told, and columns as the records that a topic takes."""

from __future__ import annotations

import pytest

from kcli.spark.jobs.etl_options import Target, packed, target, watermark
from kserver.errors import ConfigError


def test_rows_go_to_a_topic_to_files_or_to_the_console():
    assert target("topic:counts") == Target("topic", "counts")
    assert target("parquet:s3a://lake/c") == Target("parquet", "s3a://lake/c")
    assert target("json:/lake/c") == Target("json", "/lake/c")
    assert target("console") == Target("console")
    for text in ("counts", "topic:", "orc:/lake", "console:x", ""):
        with pytest.raises(ConfigError, match="--to must be topic:NAME, parquet:DIRECTORY"):
            target(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at:10m", ("at", "10 minutes")),
        ("at 10 minutes", ("at", "10 minutes")),
        (" event.at : 90 s ", ("event.at", "90 seconds")),
        ("at:500ms", ("at", "500 milliseconds")),
        ("at 1 hour", ("at", "1 hours")),
        ("at:2d", ("at", "2 days")),
    ],
)
def test_a_watermark_is_a_column_and_a_time(text, expected):
    assert watermark(text) == expected


@pytest.mark.parametrize("text", ["at", "at:", "at:m", "10m", "at:10w", "at:-1m", "a b:10m"])
def test_what_is_no_watermark_is_refused(text):
    with pytest.raises(ConfigError, match="--watermark must be COLUMN:TIME, such as at:10m"):
        watermark(text)


def test_columns_that_are_not_the_records_own_become_its_value_as_json():
    assert packed({"minute": "timestamp", "key": "string", "a`b": "bigint"}) == [
        "`key`",
        "to_json(struct(`minute`, `a``b`)) AS value",
    ]


def test_a_value_stands_for_itself_and_other_columns_are_passed_over():
    own = {"headers": "array<...>", "timestamp": "timestamp", "topic": "string"}
    assert packed({"value": "binary", "offset": "bigint", **own}) == [
        "`topic`",
        "`headers`",
        "`timestamp`",
        "`value`",
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("string", "`key`"),
        ("binary", "`key`"),
        ("bigint", "CAST(`key` AS STRING) AS `key`"),
        ("timestamp", "CAST(`key` AS STRING) AS `key`"),
        ("struct<start:timestamp,end:timestamp>", "to_json(`key`) AS `key`"),
        ("array<int>", "to_json(`key`) AS `key`"),
    ],
)
def test_keys_and_values_of_any_type_are_written_as_text(kind, expected):
    assert packed({"key": kind, "value": "string"})[0] == expected
    assert packed({"value": kind}) == [expected.replace("key", "value")]


def test_what_has_nothing_for_a_value_is_refused():
    with pytest.raises(ConfigError, match="none of the columns key, topic can be the value"):
        packed({"key": "string", "topic": "string"})
