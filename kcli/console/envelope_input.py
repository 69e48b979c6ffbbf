"""Input of envelopes: splits a stream of bytes into pieces, and decodes each piece as a record.

Pure: bytes in, records out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from kcli.console.envelopes import ENVELOPE_BYTES, JSON_GROWTH, from_json, from_map
from kcli.console.incoming import Incoming, TooLarge, Unreadable
from kcli.console.line_reader import LineSplitter


class JsonLinesInput:
    """Lines of JSON; empty lines are skipped."""

    unit = "record"
    is_plain = False

    def __init__(self, max_request_bytes: int) -> None:
        self._limit = JSON_GROWTH * max_request_bytes + ENVELOPE_BYTES
        self._splitter = LineSplitter(self._limit)
        self._line = 0

    def feed(self, data: bytes) -> Sequence[tuple[int, bytes]]:
        return self._numbered(self._splitter.feed(data))

    def end(self) -> Sequence[tuple[int, bytes]]:
        return self._numbered(self._splitter.end())

    def _numbered(self, lines: Sequence[bytes]) -> Sequence[tuple[int, bytes]]:
        first = self._line + 1
        self._line += len(lines)
        return [(n, line) for n, line in enumerate(lines, first) if line and not line.isspace()]

    def read(self, piece: tuple[int, bytes], number: int) -> Incoming:
        at, line = piece
        if len(line) > self._limit:
            raise TooLarge
        try:
            return from_json(line)
        except Unreadable as error:
            raise Unreadable(f"line {at}: {error}") from None


class MsgpackMaps:
    unit = "record"
    is_plain = False

    def __init__(self, max_request_bytes: int) -> None:
        self._limit = max_request_bytes + ENVELOPE_BYTES
        self._unpacker = msgpack.Unpacker(max_buffer_size=2 * self._limit)
        self._fed = 0
        self._complete = 0
        """Bytes fed, and the end of the last complete map."""
        self._broken = False

    def feed(self, data: bytes) -> Sequence[object]:
        values: list[object] = []
        for at in range(0, len(data), self._limit):
            if self._broken:
                break
            part = data[at : at + self._limit]
            self._unpacker.feed(part)
            self._fed += len(part)
            try:
                while True:
                    values.append(self._unpacker.unpack())
                    self._complete = self._unpacker.tell()
            except msgpack.OutOfData:
                if self._fed - self._complete > self._limit:
                    values.append(self._break("it is larger than max.request.size"))
            except (ValueError, msgpack.UnpackException):
                values.append(self._break(f"no msgpack begins at byte {self._complete}"))
        return values

    def end(self) -> Sequence[object]:
        if self._broken or self._complete == self._fed:
            return []
        return [self._break("the input ends within it")]

    def _break(self, why: str) -> Unreadable:
        self._broken = True
        return Unreadable(why)

    def read(self, piece: object, number: int) -> Incoming:
        try:
            if isinstance(piece, Unreadable):
                raise piece
            if not isinstance(piece, dict):
                raise Unreadable("it is not a map")
            return from_map(piece)
        except Unreadable as error:
            raise Unreadable(f"record {number}: {error}") from None
