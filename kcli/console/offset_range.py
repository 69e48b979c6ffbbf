"""Where to read from and up to, in the grammar of rpk's --offset.

Pure: text and the time in, places out.

    start  oldest  earliest    from the first record that is there
    end  newest  latest        what comes from now on
    47  47:                    from offset 47
    +5                         from five offsets after the first
    -10                        the last ten records of each partition, and what comes
    10:20  10-20               from offset 10 up to 20, which is not read
    :20                        from the start up to offset 20, which is not read
    47:end  +5:end  -10:end    up to what is the end now
    :end                       all that is there now
    @TIME  @TIME:              from the first record that is not older
    @TIME:TIME                 up to the first that is not older than the second time
    @:TIME  @TIME:end          from the start; up to what is the end now

    TIME    1700000000000      milliseconds since 1970 (13 digits)
            1700000000         seconds since 1970 (10 digits)
            2026-11-21         a day; without a zone times are UTC
            2026-11-21T17:30   and a time: seconds, fractions and a zone (Z, +01:00) may follow
            -10m               so long ago: 3ms, 10s, 9m, 1h, 2d, 1h30m, 1.5h
            1h                 as the second time so long after the first, if that is no duration;
                               else so long after now

A stop beyond the end stands for the end.  As in rpk but for -10: rpk goes back ten offsets, which
are fewer records where compaction or transactions have left gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

LAST_OFFSET = (1 << 63) - 1


class Malformed(Exception):
    """An invalid range of offsets; the text has the reason."""


class Edge(Enum):
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Exact:
    offset: int


@dataclass(frozen=True, slots=True)
class AfterStart:
    """The offset `offsets` after the first existing one."""

    offsets: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last `records` records, whatever gaps are between them."""

    records: int


@dataclass(frozen=True, slots=True)
class Since:
    """The first record that is not older than a time in ms since 1970."""

    time_ms: int


Start = Edge | Exact | AfterStart | Last | Since
Stop = Edge | Exact | Since


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range to read; `stop` is exclusive, None reads new records too."""

    start: Start
    stop: Stop | None = None


_WORDS = {
    "start": Edge.START,
    "oldest": Edge.START,
    "earliest": Edge.START,
    "end": Edge.END,
    "newest": Edge.END,
    "latest": Edge.END,
}
_OFFSETS = re.compile(r"(?P<start>[+-]?[0-9]+)?(?:(?P<to>[:-])(?P<stop>[0-9]+|end)?)?")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+"
_ISO = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_TIME = rf"{_ISO}|[0-9]{{13}}|[0-9]{{10}}|{_DURATION}"
_TIMES = re.compile(rf"@(?P<start>{_TIME})?(?::(?P<stop>{_TIME}|end)?)?")
_PART = re.compile(r"([0-9.]+)(ms|s|m|h|d)")


def parse(text: str, now_ms: int) -> OffsetRange:
    """Parse a range; `now_ms` is the time that durations are relative to."""
    if (word := _WORDS.get(text.lower())) is not None:
        return OffsetRange(word)
    if text.startswith("@"):
        return _between_times(text, now_ms)
    match = _OFFSETS.fullmatch(text)
    if match is None or not text.strip(":-"):
        raise Malformed("it is not an offset, a range or a time")
    start = Edge.START if match["start"] is None else _start(match["start"])
    if match["to"] == "-" and (match["stop"] in (None, "end") or not isinstance(start, Exact)):
        raise Malformed("a range with a hyphen has an offset on both sides")
    stop = None if match["stop"] is None else _stop(match["stop"])
    if isinstance(start, Exact) and isinstance(stop, Exact) and stop.offset <= start.offset:
        raise Malformed(f"{stop.offset} is not after {start.offset}")
    return OffsetRange(start, stop)


def _start(text: str) -> Start:
    number = _offset(text.lstrip("+-"))
    match text[0]:
        case "+":
            return AfterStart(number)
        case "-":
            if not number:
                raise Malformed("the last 0 records are none; to wait for new ones say end")
            return Last(number)
    return Exact(number)


def _stop(text: str) -> Stop:
    return Edge.END if text == "end" else Exact(_offset(text))


def _offset(text: str) -> int:
    if len(text) > len(str(LAST_OFFSET)) or int(text) > LAST_OFFSET:
        raise Malformed("the offset is too large")
    return int(text)


def _between_times(text: str, now_ms: int) -> OffsetRange:
    match = _TIMES.fullmatch(text)
    if match is None or not text.strip("@:"):
        raise Malformed("a time is like @-10m, @1700000000000, or @2026-11-21T17:30:00Z")
    start: Start = Edge.START
    counted_from = now_ms
    if match["start"] is not None:
        start = Since(_time_ms(match["start"], now_ms))
        if not re.fullmatch(_DURATION, match["start"]):
            counted_from = start.time_ms
    stop: Stop | None = None
    if match["stop"] is not None:
        stop = Edge.END
        if match["stop"] != "end":
            stop = Since(_time_ms(match["stop"], counted_from))
            if isinstance(start, Since) and stop.time_ms <= start.time_ms:
                raise Malformed("the second time is not after the first")
    return OffsetRange(start, stop)


def _time_ms(text: str, counted_from_ms: int) -> int:
    if text.isdigit():
        return int(text) if len(text) == 13 else int(text) * 1000
    if re.fullmatch(_DURATION, text):
        parts = [(float(number), unit) for number, unit in _PART.findall(text)]
        length_ms = round(sum(number * _UNIT_MS[unit] for number, unit in parts))
        return max(0, counted_from_ms + (-length_ms if text[0] == "-" else length_ms))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Malformed(f"{text} is not a time: {error}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))
