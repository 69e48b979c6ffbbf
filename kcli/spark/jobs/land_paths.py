"""SQL expressions of landed rows: their time, their directories, and whether they are late.

Pure: options in, expressions out, for a session in UTC.

    --event-time NAME, A.B       a field of the decoded value
    --event-time header:NAME     the text of a header
    --partition-by day           date=2026-11-22/
    --partition-by hour          date=2026-11-22/hour=05/
    --late-path --late-after     rows whose record was written this long after their hour or day

Whether a row is late depends only on its own columns, and so does whether it can be decoded. So
each row goes to one destination, the same one in every query and every run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

EVENT_TIME = "_event_time"
"""The column that the directories are made of; it is not landed."""
HEADER = "header:"

PARTITIONS: Mapping[str, Mapping[str, str]] = {
    "day": {"date": f"date_format({EVENT_TIME}, 'yyyy-MM-dd')"},
    "hour": {
        "date": f"date_format({EVENT_TIME}, 'yyyy-MM-dd')",
        "hour": f"date_format({EVENT_TIME}, 'HH')",
    },
}
"""The columns of the directories, by the value of --partition-by."""
_WINDOW_US = {"hour": 3_600_000_000, "day": 86_400_000_000}

CODECS = {
    "parquet": ("none", "snappy", "gzip", "lz4", "zstd"),
    "json": ("none", "gzip", "bzip2"),
    "delta": ("none", "snappy", "gzip", "lz4", "zstd"),
}
"""By format."""
DEFAULT_CODEC = {"parquet": "zstd", "json": "none", "delta": "zstd"}

_FIELD = re.compile(r"[^.`\s]+(\.[^.`\s]+)*")
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The bounds of the years 1 and 9999 of dates."""


def is_field(event_time: str) -> bool:
    """Whether it is header:NAME, or names separated by dots."""
    if event_time.startswith(HEADER):
        return len(event_time) > len(HEADER)
    return _FIELD.fullmatch(event_time) is not None


def source_of_time(event_time: str) -> str:
    """Return the expression of --event-time."""
    if event_time.startswith(HEADER):
        name = text_sql(event_time.removeprefix(HEADER))
        return f"CAST(try_element_at(filter(headers, h -> h.key = {name}), -1).value AS STRING)"
    return "data." + ".".join(f"`{part}`" for part in event_time.split("."))


def time_sql(source: str, type: str) -> str:
    """Convert an expression of this type to a time: a time or a date as it is, a number as ms since
    1970, a text as either. Null if it is invalid.
    """
    if type in ("timestamp", "timestamp_ntz", "date"):
        return f"CAST({source} AS TIMESTAMP)"
    number = f"try_cast({source} AS BIGINT)"
    in_years = f"{number} BETWEEN {_FIRST_MS} AND {_LAST_MS}"
    time = f"CASE WHEN {in_years} THEN timestamp_millis({number}) END"
    return f"coalesce({time}, try_to_timestamp({source}))" if type == "string" else time


def late_sql(partition_by: str, late_after_s: float) -> str:
    """Return whether its hour or day had ended `late_after_s` before the record was written."""
    begin = f"unix_micros(date_trunc('{partition_by.upper()}', {EVENT_TIME}))"
    end = f"{begin} + {_WINDOW_US[partition_by] + round(late_after_s * 1_000_000)}"
    return f"unix_micros(timestamp) >= {end}"


def undecoded_sql(remedy: str) -> str:
    """Return an expression that fails the query with the record and the reason."""
    message = (
        f"concat(topic, '-', partition, ' at offset ', offset, ': ', reason, {text_sql(remedy)})"
    )
    return f"raise_error({message})"


def text_sql(text: str) -> str:
    """Return a text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
