"""Subscriptions by pattern: RE2 regular expressions, matched against whole topic names.

RE2 (Kafka: re2j) takes time linear in the name's length.  With Python's own `re`, any member could
block the broker with a pattern that backtracks.  RE2 is imported when the first pattern is used.

Pure: values only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kserver.errors import ErrorCode, KafkaError

MAX_PATTERN_BYTES = 1 << 20
"""Memory limit of a compiled pattern; larger ones are rejected."""


def check_pattern(pattern: str) -> None:
    """Raises KafkaError with INVALID_REGULAR_EXPRESSION."""
    _compiled(pattern)


def matching(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that match.  Raises KafkaError with INVALID_REGULAR_EXPRESSION."""
    matches = _compiled(pattern).fullmatch
    return frozenset(topic for topic in topics if matches(topic))


def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
        ) from None
