"""Lines of input as records: cut out of a stream of bytes, then into headers, key and value.

Pure: bytes in, records out.

A line is the bytes up to a newline, of any kind and length; a carriage return before the newline
belongs to it.  Bytes are never decoded, so that what is sent is what came in; only the names of
headers are text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Unreadable(Exception):
    """A line, or a setting of the reader, that makes no sense; the text says why."""


class Line(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class LineSplitter:
    """Cuts a stream into lines; a line over `limit_bytes` is given as its first bytes alone.

    A line that has not ended is kept, but never more of it than one byte over the limit, so that
    input without a newline costs no more memory; what is too long stays too long to be sent.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` ends."""
        lines = data.split(b"\n")
        last = lines.pop()
        if lines and self._pieces:
            self._keep(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
        if last:
            self._keep(last)
        if b"\r" in data or (lines and lines[0].endswith(b"\r")):
            return [line.removesuffix(b"\r") for line in lines]
        return lines

    def end(self) -> list[bytes]:
        """The last line, where the input did not end with a newline."""
        last = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return [last.removesuffix(b"\r")] if last else []

    def _keep(self, piece: bytes) -> None:
        room = self._limit + 1 - self._size
        if room > 0:
            self._pieces.append(piece[:room])
            self._size += min(len(piece), room)


class LineReader:
    """Kafka's LineMessageReader: `headers TAB key TAB value`, as far as they are asked for.

    Raises Unreadable for separators that cannot be told apart.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        def separator(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._parses_key = _is_true(properties, "parse.key")
        self._parses_headers = _is_true(properties, "parse.headers")
        self._ignores_errors = _is_true(properties, "ignore.error")
        self._key_separator = separator("key.separator", "\t")
        self._headers_delimiter = separator("headers.delimiter", "\t")
        self._headers_separator = separator("headers.separator", ",")
        self._header_key_separator = separator("headers.key.separator", ":")
        marker = properties.get("null.marker")
        self._null = None if marker is None else marker.encode()
        self._check()
        try:
            self._between_headers = re.compile(self._headers_separator)
        except re.error as error:
            raise Unreadable(f"headers.separator is no pattern: {error}") from None

    def _check(self) -> None:
        delimiter = ("headers.delimiter", self._headers_delimiter)
        separator = ("headers.separator", self._headers_separator)
        within = ("headers.key.separator", self._header_key_separator)
        null = ("null.marker", self._null)
        key = ("key.separator", self._key_separator)
        of_headers = [(delimiter, separator), (delimiter, within), (separator, within)]
        of_null = [(null, key), (null, separator), (null, delimiter), (null, within)]
        for (first, one), (second, other) in of_headers + of_null:
            if one == other:
                raise Unreadable(f"{first} and {second} may not be equal")

    @property
    def is_plain(self) -> bool:
        """Whether each line is a value, as it is."""
        return not (self._parses_key or self._parses_headers or self._null is not None)

    def read(self, line: bytes, number: int) -> Line:
        """One line, the `number`th of the input; Unreadable where a separator is missing."""
        headers = key = None
        at = 0
        if self._parses_headers:
            found = self._part(line, at, self._headers_delimiter, "headers delimiter", number)
            if found is not None:
                headers, at = found
        if self._parses_key:
            found = self._part(line, at, self._key_separator, "key separator", number)
            if found is not None:
                key, at = found
        return Line(
            self._or_null(line[at:]),
            None if key is None else self._or_null(key),
            () if headers is None or headers == self._null else self._headers(headers, number),
        )

    def _part(
        self, line: bytes, at: int, separator: bytes, name: str, number: int
    ) -> tuple[bytes, int] | None:
        """What stands before the separator, and where the rest begins; None: not found."""
        end = line.find(separator, at)
        if end >= 0:
            return line[at:end], end + len(separator)
        if self._ignores_errors:
            return None
        raise Unreadable(f"No {name} found on line number {number}: '{_text(line)}'")

    def _headers(self, part: bytes, number: int) -> tuple[tuple[str, bytes | None], ...]:
        pairs = self._between_headers.split(part)
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()
        return tuple(self._header(pair, number) for pair in pairs)

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        key, separator, value = pair.partition(self._header_key_separator)
        if not separator:
            if self._ignores_errors:
                return _text(pair), None
            raise Unreadable(
                f"No header key separator found in pair '{_text(pair)}' on line number {number}"
            )
        if key == self._null:
            raise Unreadable(
                f"Header keys should not be equal to the null marker '{_text(key)}' as they can't "
                "be null"
            )
        return _text(key), self._or_null(value)

    def _or_null(self, part: bytes) -> bytes | None:
        return None if part == self._null else part


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
