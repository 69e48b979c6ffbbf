from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kcli.perf.dates import formatted

TIME = datetime(2026, 1, 3, 15, 5, 7, 42_999, timezone(timedelta(hours=5, minutes=30), "IST"))


# What Java 17 prints of the same time.
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-01-03 15:05:07:042"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2026-01-03T15:05:07.042+05:30"),
        ("EEE, d MMM yy h:mm a", "Sat, 3 Jan 26 3:05 PM"),
        ("EEEE d. MMMM y G", "Saturday 3. January 2026 AD"),
        ("D u k K Z z", "3 6 15 3 +0530 IST"),
        ("h 'o''clock' ''", "3 o'clock '"),
        ("X XX", "+05 +0530"),
        ("", ""),
    ],
)
def test_a_time_is_written_as_java_writes_it(pattern, text):
    assert formatted(TIME, pattern) == text


def test_midnight_noon_and_utc():
    midnight = datetime(2026, 12, 31, 0, 0, tzinfo=UTC)
    assert formatted(midnight, "H k K h a D XXX") == "0 24 0 12 AM 365 Z"


@pytest.mark.parametrize("pattern", ["b", "yyyy-'T", "XXXX"])
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(ValueError, match=r"Unterminated quote|Illegal pattern character"):
        formatted(TIME, pattern)
