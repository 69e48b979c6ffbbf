"""--start and --end of jobs: texts into times, offsets, or all there is."""

from __future__ import annotations

import json

import pytest
from click import UsageError

from kcli.spark.jobs.places import EVERYTHING, Place, parse_place, reading
from kcli.spark.options import AllPartitions, batch_options
from kserver.model import TopicPartition

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("-2h", NOW_MS - 2 * HOUR_MS),
        ("-1d", NOW_MS - 24 * HOUR_MS),
        ("-90s", NOW_MS - 90_000),
        ("-5ms", NOW_MS - 5),
        ("1699999999999", 1_699_999_999_999),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-15T00:13:20.250+02:00", NOW_MS + 250),
        ("2023-11-14", NOW_MS - 22 * HOUR_MS - 13 * 60_000 - 20_000),
    ],
)
def test_a_time_is_absolute_or_so_long_ago(text, time_ms):
    assert parse_place(text, "--start", NOW_MS) == Place(time_ms=time_ms)


def test_all_there_is_is_said_by_its_end_or_not_at_all():
    for text, option in ((None, "--start"), ("earliest", "--start"), ("latest", "--end")):
        assert parse_place(text, option, NOW_MS) == EVERYTHING
    for text, option in (("latest", "--start"), ("earliest", "--end")):
        with pytest.raises(UsageError, match=f"option {option} must be .*, not '{text}'"):
            parse_place(text, option, NOW_MS)


def test_offsets_are_those_of_the_data_source():
    found = parse_place('{"t":{"0":5,"1":-2}}', "--start", NOW_MS)
    assert found.offsets == {TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}
    with pytest.raises(UsageError, match="option --end has no partition 'x'"):
        parse_place('{"t":{"x":5}}', "--end", NOW_MS)


@pytest.mark.parametrize("text", ["2h", "-2w", "yesterday", "12", "2023-13-01", "-h"])
def test_what_is_no_place_is_refused_with_examples(text):
    with pytest.raises(UsageError, match=r"option --start must be -2h, 2026-01-31T06:00Z, .*, not"):
        parse_place(text, "--start", NOW_MS)


def test_the_data_source_takes_what_is_made_of_them():
    source = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    told = reading(Place(time_ms=-5), Place(offsets={TopicPartition("t", 0): 9}))
    assert told["startingTimestamp"] == "0"
    assert json.loads(told["endingOffsets"]) == {"t": {"0": 9}}
    read = batch_options(source | told)
    assert read.start.or_latest
    assert read.start.times == 0
    assert read.end.offsets == {TopicPartition("t", 0): 9}
    everything = batch_options(source | reading(EVERYTHING, EVERYTHING))
    assert everything.start == AllPartitions(-2)
    assert everything.end == AllPartitions(-1)
