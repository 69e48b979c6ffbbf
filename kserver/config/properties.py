r"""Java's .properties syntax: parsing and rendering.

Pure: text in, entries out.

    # comment            ! comment
    key = value          key: value          key value          key
    key = a value that \
          goes on        leading blanks of the next line are dropped
    a\ key\:\=\u00e9     escaped blanks, separators, \t \n \r \f, and UTF-16 code units

Parsed like java.util.Properties.load.  A later entry of the same key replaces an earlier one,
which is up to the caller.  Files are UTF-8, with or without a byte order mark, and otherwise
Latin-1 (Java's encoding).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kserver.errors import ConfigError


class PropertyEntry(NamedTuple):
    key: str
    value: str
    line: int
    """Line on which the entry starts, from 1."""


def decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse(text: str) -> list[PropertyEntry]:
    """Return all entries in order.  Raises ConfigError, with the line, for a malformed \\u
    escape."""
    entries = []
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        try:
            entries.append(PropertyEntry(_unescape(raw_key), _unescape(raw_value), number))
        except ValueError as error:
            raise ConfigError(f"line {number}: {error}") from None
    return entries


def render(values: Mapping[str, str]) -> str:
    """Return text that `parse` reads as these entries; ASCII only, one line per entry."""
    return "".join(f"{_escape(k, KEY_ESCAPED)}={_escape_value(v)}\n" for k, v in values.items())


BLANKS = " \t\f"
LINE_END = re.compile(r"\r\n|\r|\n")
# An unescaped separator: blanks, with at most one = or : among them.
SEPARATOR = re.compile(rf"[{BLANKS}]*[=:][{BLANKS}]*|[{BLANKS}]+")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
KEY_ESCAPED = re.compile(r"[\\ \t\n\r\f=:#!]|[^ -~]")
VALUE_ESCAPED = re.compile(r"[\\\t\n\r\f]|[^ -~]")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are not blank or comments, joined with their continuations, with the number
    of the first."""
    joined, start = "", 0
    for number, natural in enumerate(LINE_END.split(text), 1):
        line = natural.lstrip(BLANKS)
        if not joined:
            start = number
            if not line or line[0] in "#!":
                continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if goes_on else line
        if joined and not goes_on:
            yield start, joined
            joined = ""
    if joined:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line):
        if separator := SEPARATOR.match(line, at):
            return line[:at], line[separator.end() :]
        at += 2 if line[at] == "\\" else 1
    return line, ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def unescaped(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise ValueError("Malformed \\uxxxx encoding.")
        return CONTROL.get(code, code)

    units = ESCAPE.sub(unescaped, text)
    # A character beyond U+FFFF consists of two UTF-16 code units.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape_value(value: str) -> str:
    escaped = _escape(value, VALUE_ESCAPED)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape(text: str, special: re.Pattern[str]) -> str:
    return special.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    names = {meant: code for code, meant in CONTROL.items()}
    if character in names:
        return "\\" + names[character]
    if " " <= character <= "~":
        return "\\" + character
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i] << 8 | data[i + 1]:04x}" for i in range(0, len(data), 2))
