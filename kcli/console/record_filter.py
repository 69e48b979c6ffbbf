"""--grep: a filter of printed records.

Pure: values in, a verdict out.

    PATTERN           the key, the value, or a header's value matches somewhere
    k:PATTERN         the key
    v:PATTERN         the value
    hk:PATTERN        the name of a header
    hv:PATTERN        the value of a header
    h:NAME=PATTERN    the value of a header of that name
    !TERM             records that TERM does not match

Patterns are regular expressions in Java's dialect, over the bytes as they are; (?i) in front
ignores the case of ASCII letters. A null matches nothing. Of several terms all must match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kcli.patterns.java_patterns import PatternError, compiled_for_bytes
from kserver.wire.records import Row

Test = Callable[[Row], bool]

_FIELDS = ("k", "v", "hk", "hv", "h")


class MalformedTerm(Exception):
    """An invalid term; the text has the reason."""


class RecordFilter:
    """Selects the records that match all `terms`.  Raises MalformedTerm."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._tests = [_test(term) for term in terms]

    def matches(self, row: Row) -> bool:
        return all(test(row) for test in self._tests)


def _test(term: str) -> Test:
    if term.startswith("!"):
        other = _test(term[1:])
        return lambda row: not other(row)
    field, colon, rest = term.partition(":")
    if not colon or field not in _FIELDS:
        field, rest = "", term
    name, equals, pattern = rest.partition("=")
    if field == "h" and not equals:
        raise MalformedTerm(f"'{term}' is not like h:NAME=PATTERN")
    try:
        search = compiled_for_bytes(pattern if field == "h" else rest).search
    except PatternError as error:
        raise MalformedTerm(str(error)) from None

    def found(contents: Iterable[bytes | None]) -> bool:
        return any(data is not None and search(data) is not None for data in contents)

    # A row is (offset, timestamp, key, value, headers).
    match field:
        case "k":
            return lambda row: found((row[2],))
        case "v":
            return lambda row: found((row[3],))
        case "hk":
            return lambda row: found(n.encode() for n, _ in row[4])
        case "hv":
            return lambda row: found(v for _, v in row[4])
        case "h":
            return lambda row: found(v for n, v in row[4] if n == name)
    return lambda row: found((row[2], row[3], *(v for _, v in row[4])))
