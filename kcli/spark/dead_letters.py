"""Dead letters: what a record says in its headers that could not be read, or written, as it was.

    k.dlq.reason       why
    k.dlq.topic        where it was to be written, or was read from
    k.dlq.partition    and at which place there
    k.dlq.offset       where it was read
    k.dlq.timestamp    and its time there, in ms since 1970
    k.dlq.attempts     how often it was sent back since
    k.dlq.redriven     of a record that is no letter but a receipt: the place, as 0:17, in the topic
                       of dead letters of the one that was sent back

Key, value and all other headers are the record's own; values of headers are text.  A record that is
dead once more gets new ones in the place of the old, but keeps its attempts.  Where the sink had to
leave out some of a record (letters.py), it says so too.

Pure: texts of SQL for frames with a column headers.
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
"""The mark of a letter that is not the whole record."""
MOST_REASON = 500
"""Characters."""


def marked_sql(
    *,
    reason: str,
    topic: str,
    partition: str,
    offset: str,
    timestamp: str = "timestamp",
    headers: str = "headers",
) -> str:
    """The headers of a dead letter, of a record that was read; what is given are expressions."""
    told = {
        REASON: f"substring({reason}, 1, {MOST_REASON})",
        TOPIC: topic,
        PARTITION: partition,
        OFFSET: offset,
        TIMESTAMP: f"unix_millis({timestamp})",
    }
    new = ", ".join(_header_sql(name, value) for name, value in told.items())
    attempts = f"h.key = '{ATTEMPTS}'"
    return f"concat({_kept(headers, attempts)}, array({new}))"


def said_sql(name: str, headers: str = "headers") -> str:
    """What a header says, as text; null where there is none."""
    named = f"filter({headers}, h -> h.key = '{name}')"
    return f"CAST(try_element_at({named}, 1).value AS STRING)"


def place_sql() -> list[str]:
    """Where the record of a letter was: topic, partition, offset and timestamp, as columns; null
    for what is not told, or is none."""
    return [
        f"{said_sql(TOPIC)} AS topic",
        f"try_cast({said_sql(PARTITION)} AS INT) AS partition",
        f"try_cast({said_sql(OFFSET)} AS BIGINT) AS offset",
        f"timestamp_millis(try_cast({said_sql(TIMESTAMP)} AS BIGINT)) AS timestamp",
    ]


def is_cut_sql(headers: str = "headers") -> str:
    """Whether a letter is less than the record was."""
    return f"coalesce(exists({headers}, h -> h.key IN {CUT}), false)"


def sent_back_sql(attempts: str, headers: str = "headers") -> str:
    """The headers of a dead letter that is sent back: its own, and how often that was."""
    return f"concat({_kept(headers, 'false')}, array({_header_sql(ATTEMPTS, attempts)}))"


def receipt_sql(partition: str, offset: str) -> str:
    """The headers of the receipt of a letter that lay there."""
    place = f"concat({partition}, ':', {offset})"
    return f"array({_header_sql(REDRIVEN, place)})"


def _header_sql(name: str, value: str) -> str:
    return f"struct('{name}' AS key, CAST(CAST({value} AS STRING) AS BINARY) AS value)"


def _kept(headers: str, also: str) -> str:
    """A record's own headers, and of the others those for which `also` holds."""
    empty = "CAST(array() AS array<struct<key:string,value:binary>>)"
    own = f"NOT startswith(h.key, '{PREFIX}')"
    return f"filter(coalesce({headers}, {empty}), h -> {own} OR {also})"
