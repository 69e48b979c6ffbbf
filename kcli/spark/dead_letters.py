"""Dead letters: the headers of a record that could not be read, or written.

    k.dlq.reason       the reason
    k.dlq.topic        the topic that it was to be written to, or was read from
    k.dlq.partition    its partition there
    k.dlq.offset       its offset, if it was read
    k.dlq.timestamp    its timestamp there, in ms since 1970
    k.dlq.attempts     how often it was sent back since
    k.dlq.redriven     of a receipt, which is not a letter: the place, as 0:17, of the letter that
                       was sent back, in the dead letter topic

Key, value and all other headers are the record's own; values of these headers are text. A record
that fails again gets new ones in place of the old, but keeps its attempts. If the sink had to omit
a part of the record (letters.py), headers report that too.

Pure: SQL texts for frames with a column headers.
"""

from __future__ import annotations

PREFIX = "k.dlq."
NAMES = ("reason", "topic", "partition", "offset", "timestamp", "attempts", "redriven")
REASON, TOPIC, PARTITION, OFFSET, TIMESTAMP, ATTEMPTS, REDRIVEN = (
    f"{PREFIX}{name}" for name in NAMES
)
CUT = VALUE_LENGTH, KEY_LENGTH, HEADERS_COUNT = (
    f"{PREFIX}value.length",
    f"{PREFIX}key.length",
    f"{PREFIX}headers.count",
)
"""Headers of a letter that does not have the whole record."""
MAX_REASON_LENGTH = 500
"""Maximum length in characters."""


def letter_headers_sql(
    *,
    reason: str,
    topic: str,
    partition: str,
    offset: str,
    timestamp: str = "timestamp",
    headers: str = "headers",
) -> str:
    """Return the headers of a dead letter of a record that was read; arguments are expressions."""
    letter_headers = {
        REASON: f"substring({reason}, 1, {MAX_REASON_LENGTH})",
        TOPIC: topic,
        PARTITION: partition,
        OFFSET: offset,
        TIMESTAMP: f"unix_millis({timestamp})",
    }
    new = ", ".join(_header_sql(name, value) for name, value in letter_headers.items())
    attempts = f"h.key = '{ATTEMPTS}'"
    return f"concat({_other_headers(headers, attempts)}, array({new}))"


def header_value_sql(name: str, headers: str = "headers") -> str:
    """Return a header's value as text; null if it is missing."""
    matches = f"filter({headers}, h -> h.key = '{name}')"
    return f"CAST(try_element_at({matches}, 1).value AS STRING)"


def place_sql() -> list[str]:
    """Return the place of a letter's record: topic, partition, offset and timestamp, as columns;
    null if a header is missing or invalid.
    """
    return [
        f"{header_value_sql(TOPIC)} AS topic",
        f"try_cast({header_value_sql(PARTITION)} AS INT) AS partition",
        f"try_cast({header_value_sql(OFFSET)} AS BIGINT) AS offset",
        f"timestamp_millis(try_cast({header_value_sql(TIMESTAMP)} AS BIGINT)) AS timestamp",
    ]


def is_cut_sql(headers: str = "headers") -> str:
    """Return whether a letter has only a part of the record."""
    return f"coalesce(exists({headers}, h -> h.key IN {CUT}), false)"


def returned_headers_sql(attempts: str, headers: str = "headers") -> str:
    """Return the headers of a dead letter that is sent back: its own, and its attempts."""
    return f"concat({_other_headers(headers, 'false')}, array({_header_sql(ATTEMPTS, attempts)}))"


def receipt_sql(partition: str, offset: str) -> str:
    """Return the headers of the receipt of a letter at this place."""
    place = f"concat({partition}, ':', {offset})"
    return f"array({_header_sql(REDRIVEN, place)})"


def _header_sql(name: str, value: str) -> str:
    return f"struct('{name}' AS key, CAST(CAST({value} AS STRING) AS BINARY) AS value)"


def _other_headers(headers: str, also: str) -> str:
    """Return a record's own headers, and those others for which `also` holds."""
    empty = "CAST(array() AS array<struct<key:string,value:binary>>)"
    own = f"NOT startswith(h.key, '{PREFIX}')"
    return f"filter(coalesce({headers}, {empty}), h -> {own} OR {also})"
