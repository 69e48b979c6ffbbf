"""Lines of input as records: split from a stream of bytes, then into headers, key and value.

Pure: bytes in, records out.

A line is the bytes up to a newline, of any kind and length; a carriage return before the newline
belongs to the newline. Bytes are never decoded, so they are sent as they are; only the names of
headers are text.

    timestamp TAB partition TAB headers TAB key TAB value

The columns are those of Kafka's LineMessageReader (headers, key, value) and two of our own, as
Kafka's console consumer prints them: `CreateTime:1700000000000` or the number alone, and
`Partition:3` or the number alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kcli.console.encodings import Encoding, NotEncodable
from kcli.console.incoming import Incoming, TooLarge, Unreadable
from kcli.patterns.java_patterns import PatternError, compiled_for_bytes, split

_TIMESTAMP = re.compile(rb"(?:(?:CreateTime|LogAppendTime):)?([0-9]{1,19})")
_NO_TIMESTAMP = (b"CreateTime:-1", b"NO_TIMESTAMP")
"""Timestamps of records without one, as printed by the consoles of Kafka and of older releases."""
_PARTITION = re.compile(rb"(?:Partition:)?([0-9]{1,10})")


class LineSplitter:
    """Splits a stream into lines; a line over `limit_bytes` is truncated.

    An incomplete line is kept, but at most one byte more than the limit, so that input without a
    newline needs no more memory; a truncated line is still too long to be sent.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
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
        """Return the last line, if the input did not end with a newline."""
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
    """Reads the configured columns of a line; key and value in an encoding, if one is given.

    Raises Unreadable if separators are ambiguous.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        key_encoding: Encoding | None = None,
        value_encoding: Encoding | None = None,
    ) -> None:
        def separator(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._key_encoding = key_encoding
        self._value_encoding = value_encoding
        self._parses_timestamp = _is_true(properties, "parse.timestamp")
        self._parses_partition = _is_true(properties, "parse.partition")
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
            self._between_headers = compiled_for_bytes(self._headers_separator.decode())
        except PatternError as error:
            raise Unreadable(f"headers.separator {error}") from None

    def _check(self) -> None:
        delimiter = ("headers.delimiter", self._headers_delimiter)
        separator = ("headers.separator", self._headers_separator)
        within = ("headers.key.separator", self._header_key_separator)
        null = ("null.marker", self._null)
        key = ("key.separator", self._key_separator)
        of_headers = [(delimiter, separator), (delimiter, within), (separator, within)]
        of_null = [(null, key), (null, separator), (null, delimiter), (null, within)]
        for (first, text), (second, other_text) in of_headers + of_null:
            if text == other_text:
                raise Unreadable(f"{first} and {second} may not be equal")

    @property
    def is_plain(self) -> bool:
        """Whether each line is a value, as it is."""
        return not (
            self._parses_timestamp
            or self._parses_partition
            or self._parses_headers
            or self._parses_key
            or self._null is not None
            or self._value_encoding is not None
        )

    def read(self, line: bytes, number: int) -> Incoming:
        """Decode the `number`th line of the input. Raises Unreadable if a separator is missing."""
        headers = key = timestamp = partition = None
        at = 0
        if self._parses_timestamp:
            part = self._part(line, at, self._key_separator, "timestamp's separator", number)
            if part is not None:
                text, at = part
                if text not in _NO_TIMESTAMP:
                    timestamp = _number(_TIMESTAMP, text, "timestamp", number)
        if self._parses_partition:
            part = self._part(line, at, self._key_separator, "partition's separator", number)
            if part is not None:
                text, at = part
                partition = _number(_PARTITION, text, "partition", number)
        if self._parses_headers:
            part = self._part(line, at, self._headers_delimiter, "headers delimiter", number)
            if part is not None:
                headers, at = part
        if self._parses_key:
            part = self._part(line, at, self._key_separator, "key separator", number)
            if part is not None:
                key, at = part
        try:
            return Incoming(
                self._decoded(line[at:], self._value_encoding),
                None if key is None else self._decoded(key, self._key_encoding),
                () if headers is None or headers == self._null else self._headers(headers, number),
                partition,
                timestamp,
            )
        except NotEncodable as error:
            raise Unreadable(f"line {number}: {error}") from None

    def _part(
        self, line: bytes, at: int, separator: bytes, name: str, number: int
    ) -> tuple[bytes, int] | None:
        """Return the part before the separator, and the position after it; None if it is not
        found.
        """
        end = line.find(separator, at)
        if end >= 0:
            return line[at:end], end + len(separator)
        if self._ignores_errors:
            return None
        raise Unreadable(f"No {name} found on line number {number}: '{_text(line)}'")

    def _headers(self, part: bytes, number: int) -> tuple[tuple[str, bytes | None], ...]:
        pairs = split(self._between_headers, part)
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

    def _decoded(self, part: bytes, encoding: Encoding | None) -> bytes | None:
        if part == self._null:
            return None
        return part if encoding is None else encoding.read(part)

    def _or_null(self, part: bytes) -> bytes | None:
        return None if part == self._null else part


# How much longer than its bytes a line may be: hex takes two characters for one byte.
TEXT_GROWTH = 2


class Lines:
    """Lines as input; a line that is too long to be sent is truncated."""

    unit = "line"

    def __init__(self, reader: LineReader, max_request_bytes: int) -> None:
        self._limit = TEXT_GROWTH * max_request_bytes
        self._splitter = LineSplitter(self._limit)
        self._reader = reader
        self.is_plain = reader.is_plain
        self.feed = self._splitter.feed
        self.end = self._splitter.end

    def read(self, piece: bytes, number: int) -> Incoming:
        if len(piece) > self._limit:
            raise TooLarge
        return self._reader.read(piece, number)


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _number(pattern: re.Pattern[bytes], text: bytes, what: str, number: int) -> int:
    match = pattern.fullmatch(text)
    if match is None:
        raise Unreadable(f"'{_text(text)}' on line number {number} is not a valid {what}")
    return int(match[1])


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
