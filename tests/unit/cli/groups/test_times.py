from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.groups.times import duration_ms, to_epoch_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.002Z", 1002),
        ("1970-01-01T01:00:00.000+01", 0),
        ("1970-01-01T01:30:00.000+01:30", 0),
        ("1969-12-31T23:59:59.999", -1),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:01", 60_000),
    ],
)
def test_a_time_is_of_utc_unless_it_has_a_zone(text, ms):
    assert to_epoch_ms(text) == ms


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.integers(-18 * 60, 18 * 60).map(lambda m: timezone(timedelta(minutes=m))),
)
def test_the_zone_makes_no_other_time_of_it(time, zone):
    time = time.replace(microsecond=time.microsecond // 1000 * 1000)
    try:
        there = time.astimezone(zone)
    except OverflowError:
        return
    text = there.isoformat(timespec="milliseconds")
    assert datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=to_epoch_ms(text)) == time


@pytest.mark.parametrize(
    ("text", "why"),
    [("2020-01-01 00:00", "does not contain a 'T'"), ("Tuesday", 'Unparseable date: "Tuesday"')],
)
def test_what_is_no_time_is_refused_in_kafkas_words(text, why):
    with pytest.raises(ValueError, match=why):
        to_epoch_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H", 3_600_000),
        ("PT1M", 60_000),
        ("PT0S", 0),
        ("PT1.5S", 1500),
        ("PT1,25S", 1250),
        ("P1DT2H3M4.005S", 93_784_005),
        ("-PT1M", -60_000),
        ("PT-1M", -60_000),
        ("-PT-1M", 60_000),
        ("pt1m", 60_000),
        ("P2DT-24H", 86_400_000),
    ],
)
def test_a_duration_is_what_java_reads(text, ms):
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1D", "P1H", "PT1D", "P1DT", "5m", "P1D "])
@pytest.mark.parametrize("huge", ["", "PT" + "9" * 30 + "H"])
def test_what_java_does_not_read_is_refused(text, huge):
    with pytest.raises(ValueError, match="Text cannot be parsed to a Duration"):
        duration_ms(huge or text)
