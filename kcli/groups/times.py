"""Points in time and durations, in the syntax of Kafka's options.

    to_epoch_ms("2026-01-31T09:05:07.042+01:00")     milliseconds since 1970
    duration_ms("P1DT2H")                            milliseconds, as java.time.Duration parses it

Pure: text in, numbers out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_PARTS = ("days", "hours", "minutes", "seconds")
_EPOCH = datetime.fromtimestamp(0, UTC)


def to_epoch_ms(text: str) -> int:
    """Parse `2026-01-31T09:05:07.042`, in UTC unless a zone follows. Raises ValueError with Kafka's
    text.
    """
    if "T" not in text:
        raise ValueError(
            "Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'Unparseable date: "{text}"') from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def duration_ms(text: str) -> int:
    """Parse ISO 8601's `PnDTnHnMn.nS`, of which each part may have a sign. Raises ValueError with
    Java's text.
    """
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {name: match[name] for name in _PARTS if match[name]}
    if match is None or not parts or (match["time"] or "").upper() == "T":
        raise ValueError("Text cannot be parsed to a Duration")
    numbers = {name: float(part.replace(",", ".")) for name, part in parts.items()}
    try:
        length = timedelta(**numbers)
    except OverflowError:
        raise ValueError("Text cannot be parsed to a Duration") from None
    ms = length // timedelta(milliseconds=1)
    return -ms if match["sign"] == "-" else ms
