"""Dead letters: a row that cannot be written to its topic, as a record for `dlqTopic`.

Pure: no I/O.

Key, value and headers are kept, after the headers of a dead letter (dead_letters.py): k.dlq.reason,
and k.dlq.topic and k.dlq.partition as in the row. If the record would be too large for the dead
letter topic, these are added:

    k.dlq.value.length   original length of the value, which is truncated
    k.dlq.key.length     likewise of the key
    k.dlq.headers.count  number of the original headers, which are omitted
"""

from __future__ import annotations

from typing import NamedTuple

from kcli.spark.dead_letters import (
    ATTEMPTS,
    HEADERS_COUNT,
    KEY_LENGTH,
    MAX_REASON_LENGTH,
    PARTITION,
    PREFIX,
    REASON,
    TOPIC,
    VALUE_LENGTH,
)
from kcli.spark.rows import NewRow
from kserver.wire.batch import HEADER_SIZE

_OVERHEAD = HEADER_SIZE + 100
_OF_HEADER = 10
Header = tuple[str, bytes | None]


class Letter(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def letter_of(row: NewRow, reason: str, max_bytes: int) -> Letter:
    """Return the letter of a row, within `max_bytes` if its own headers leave room."""
    headers: list[Header] = [(REASON, reason[:MAX_REASON_LENGTH].encode())]
    if row.topic is not None:
        headers.append((TOPIC, row.topic.encode()))
    if row.partition is not None:
        headers.append((PARTITION, b"%d" % row.partition))
    key, value = row.key, row.value
    own = tuple(h for h in row.headers if h[0] == ATTEMPTS or not h[0].startswith(PREFIX))
    room = max_bytes - _OVERHEAD - _size(headers)
    if value is not None and len(value) + len(key or b"") + _size(own) > room:
        headers.append((VALUE_LENGTH, b"%d" % len(value)))
        value = value[: max(0, room - len(key or b"") - _size(own))]
    if key is not None and len(value or b"") + len(key) + _size(own) > room:
        headers.append((KEY_LENGTH, b"%d" % len(key)))
        key = key[: max(0, room - _size(own))]
    if _size(own) > room:
        headers.append((HEADERS_COUNT, b"%d" % len(own)))
        own = ()
    return Letter(key, value, (*headers, *own))


def _size(headers: list[Header] | tuple[Header, ...]) -> int:
    return sum(_OF_HEADER + 4 * len(name) + len(value or b"") for name, value in headers)
