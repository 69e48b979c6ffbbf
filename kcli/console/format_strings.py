"""-f: a record as a format string prints it, with the letters of kcat and rpk.

Pure: values in, bytes out.

    %t            topic                         both
    %p  %o        partition, offset             both
    %k  %K        key, its length               both
    %v  %s        value                         rpk, kcat
    %V  %S        length of the value           rpk, kcat
    %d  %T        timestamp, epoch ms           rpk, kcat; in rpk %T is the length of the topic
    %h            headers: a=1,b=2              kcat
    %h{%k=%v;}    each header, by a format      rpk
    %H            how many headers              rpk
    %e            leader epoch                  rpk
    %%  %{  %}    a percent sign, braces        both, rpk, rpk

    %10o          ten columns at least, on the right; %-10o on the left; %010o with zeros
    %k{hex}       in an encoding: hex, base64, short, integer, long
    \\n \\t \\r \\\\ \\xNN

A null prints as `null`, which is empty unless null.literal says otherwise, and its length is -1.
Nothing ends a record but what the format says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kcli.console.encodings import ENCODINGS, Encoding, NotEncodable
from kcli.console.formatter import Unprintable
from kserver.wire.batch import Record

if TYPE_CHECKING:
    from kcli.client.consumer.consumer import FetchedBatch

Number = Callable[["FetchedBatch", Record], int]
Text = Callable[["FetchedBatch", Record], bytes | None]


class MalformedFormat(Exception):
    """An invalid format string; the text has the reason."""


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_NUMBERS: dict[str, Number] = {
    "p": lambda batch, record: batch.partition,
    "o": lambda batch, record: record.offset,
    "d": lambda batch, record: record.timestamp,
    "T": lambda batch, record: record.timestamp,
    "K": lambda batch, record: _length(record.key),
    "V": lambda batch, record: _length(record.value),
    "S": lambda batch, record: _length(record.value),
    "H": lambda batch, record: len(record.headers),
    "e": lambda batch, record: batch.leader_epoch,
}
_TEXTS: dict[str, Text] = {
    "t": lambda batch, record: batch.topic.encode(),
    "k": lambda batch, record: record.key,
    "v": lambda batch, record: record.value,
    "s": lambda batch, record: record.value,
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}
_TOKEN = re.compile(
    r"%(?P<align>-?)(?P<width>[0-9]{0,4})(?P<letter>[a-zA-Z%{}])(?P<brace>\{)?"
    r"|\\x(?P<hex>[0-9a-fA-F]{2})"
    r"|\\(?P<escape>[ntr\\])"
    r"|(?P<plain>[^%\\]+)",
    re.DOTALL,
)


class FormatString:
    """Formats records. Raises MalformedFormat."""

    def __init__(self, text: str, null: bytes = b"") -> None:
        self._null = null
        self._values: list[Number | Callable[[FetchedBatch, Record], bytes]] = []
        self._template = b""
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise MalformedFormat(f"'{text[at : at + 2]}' at character {at + 1} of -f")
            at = match.end()
            modifier = None
            if match["brace"]:
                at = _closing(text, at)
                modifier = text[match.end() : at - 1]
            self._add(match, modifier)

    def lines(self, batch: FetchedBatch) -> bytes:
        """Format all records of a batch. Raises Unprintable."""
        return b"".join([self.line(batch, record) for record in batch.records])

    def line(self, batch: FetchedBatch, record: Record) -> bytes:
        return self._template % tuple([value(batch, record) for value in self._values])

    def _add(self, match: re.Match[str], modifier: str | None) -> None:
        if match["plain"] is not None:
            self._template += match["plain"].encode()
        elif match["escape"] is not None:
            self._template += _ESCAPES[match["escape"]]
        elif match["hex"] is not None:
            self._template += bytes.fromhex(match["hex"]).replace(b"%", b"%%")
        elif match["letter"] in "%{}":
            self._template += match["letter"].replace("%", "%%").encode()
        elif match["letter"] in _NUMBERS:
            if modifier is not None:
                raise MalformedFormat(f"%{match['letter']} is a number and takes no {{...}}")
            self._template += f"%{match['align']}{match['width']}d".encode()
            self._values.append(_NUMBERS[match["letter"]])
        else:
            self._template += b"%b"
            width = int(match["width"] or 0)
            text = self._text(match["letter"], modifier)
            self._values.append(_pad(text, width, bool(match["align"])) if width else text)

    def _text(self, letter: str, modifier: str | None) -> Callable[[FetchedBatch, Record], bytes]:
        null = self._null
        if letter == "h":
            return self._headers(modifier)
        if (content := _TEXTS.get(letter)) is None:
            raise MalformedFormat(f"%{letter} is not a letter of -f")
        if modifier is not None:
            return _encoded(content, _encoding(modifier), null)
        return lambda batch, record: null if (data := content(batch, record)) is None else data

    def _headers(self, modifier: str | None) -> Callable[[FetchedBatch, Record], bytes]:
        """Format each header as a record of its name and value."""
        between = b"," if modifier is None else b""
        each = FormatString("%k=%v" if modifier is None else modifier, self._null)

        def shown(batch: FetchedBatch, record: Record) -> bytes:
            pairs = [record._replace(key=n.encode(), value=v) for n, v in record.headers]
            return between.join([each.line(batch, pair) for pair in pairs])

        return shown


def _closing(text: str, at: int) -> int:
    """Return the position after the brace that closes the one before `at`."""
    depth = 1
    for brace in re.compile(r"%?[{}]").finditer(text, at):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return brace.end()
    raise MalformedFormat(f"the brace at character {at} of -f is not closed")


def _encoding(name: str) -> Encoding:
    if name not in ENCODINGS:
        raise MalformedFormat(
            f"{{{name}}} is not an encoding; encodings are {', '.join(ENCODINGS)}"
        )
    return ENCODINGS[name]


def _encoded(
    content: Text, encoding: Encoding, null: bytes
) -> Callable[[FetchedBatch, Record], bytes]:
    def shown(batch: FetchedBatch, record: Record) -> bytes:
        data = content(batch, record)
        try:
            return null if data is None else encoding.shown(data)
        except NotEncodable as error:
            raise Unprintable(str(error)) from None

    return shown


def _pad(
    text: Callable[[FetchedBatch, Record], bytes], width: int, on_the_left: bool
) -> Callable[[FetchedBatch, Record], bytes]:
    """Pad to `width` characters of UTF-8."""

    def shown(batch: FetchedBatch, record: Record) -> bytes:
        data = text(batch, record)
        blanks = b" " * (width - len(data.decode(errors="replace")))
        return data + blanks if on_the_left else blanks + data

    return shown
