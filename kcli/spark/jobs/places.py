"""Bounds of a range of records, as in --start and --end of jobs.

    earliest, latest                 all records, at that end
    -2h  -30m  -7d                   relative to now
    2026-01-31T06:00Z  2026-01-31    a time; without a zone in UTC
    1700000000000                    a time in ms since 1970
    {"orders":{"0":23,"1":-2}}       offsets

Pure: texts in, values out; the present time is passed in.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from kcli.command.options import refuse
from kcli.spark.options import Offsets, checkpoint_of, read_offsets
from kserver.errors import ConfigError

_AGO = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EXAMPLES = '-2h, 2026-01-31T06:00Z, a time in ms since 1970, or {"topic":{"0":23}}'


@dataclass(frozen=True)
class Place:
    """A time, offsets, or neither, which means all records."""

    time_ms: int | None = None
    offsets: Offsets | None = None


EVERYTHING = Place()
START, END = "--start", "--end"
_ALL = {START: "earliest", END: "latest"}


def parse_place(text: str | None, option: str, now_ms: int) -> Place:
    """Parse a bound. Raises click's UsageError with the option."""
    text = "" if text is None else text.strip()
    if text in ("", _ALL[option]):
        return EVERYTHING
    if text.startswith("{"):
        try:
            return Place(offsets=read_offsets(text, option))
        except ConfigError as error:
            refuse(str(error))
    if (match := _AGO.fullmatch(text)) is not None:
        return Place(time_ms=now_ms - int(match[1]) * _UNIT_MS[match[2]])
    if re.fullmatch(r"[0-9]{9,18}", text):
        return Place(time_ms=int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        refuse(f"option {option} must be {_EXAMPLES}, not {text!r}")
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return Place(time_ms=round(time.timestamp() * 1000))


def reading(start: Place, end: Place) -> dict[str, str]:
    """Return the bounds as options of the data source, for a batch.

    A partition without a record as late as the start's time has none in the range.
    """
    options = {}
    if start.time_ms is not None:
        options["startingTimestamp"] = str(max(start.time_ms, 0))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if start.offsets is not None:
        options["startingOffsets"] = offsets_text(start.offsets)
    if end.time_ms is not None:
        options["endingTimestamp"] = str(max(end.time_ms, 0))
    if end.offsets is not None:
        options["endingOffsets"] = offsets_text(end.offsets)
    return options


def offsets_text(offsets: Offsets) -> str:
    return json.dumps(checkpoint_of(offsets))
