"""Envelopes: a whole record as one JSON object on a line, or as one msgpack map.

Pure: records in, bytes out, and back.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k",
     "value": "v", "headers": [{"key": "h", "value": "x"}]}

    topic       the record's topic
    partition
    offset      not read: the broker assigns a new one
    timestamp   ms since 1970; null or -1: none in output, now in input
    key, value  null is null
    headers     in order, perhaps with duplicate names; a header's value may be null

Missing fields are null, or empty. In JSON, bytes that are UTF-8 are a string, and others are
{"base64": "/wA="}; in msgpack they are bin, and str is read as its UTF-8.

The output of `kcat -J` is read too: `payload`, `ts`, and headers as one list of names and values.
Its `tstype` and `broker` are ignored, as is an offset. Any other field is refused, so that a
misspelt one loses no data.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

import msgpack

from kcli.console.incoming import Incoming, Unreadable
from kserver.model import NO_TIMESTAMP

if TYPE_CHECKING:
    from kcli.client.consumer.consumer import FetchedBatch
    from kserver.wire.records import Row

_OF_KCAT = {"payload": "value", "ts": "timestamp"}
_UNREAD = {"offset", "tstype", "broker"}
_FIELDS = ("topic", "partition", "timestamp", "key", "value", "headers")
_OURS = {*_FIELDS, "offset"}
_OF_HEADER = {"key", "value"}
_JSON_BLANKS = " \t\r\n"
_decode_json = json.JSONDecoder().raw_decode

# Names and values of headers, and the names of the fields, besides a key and a value.
ENVELOPE_BYTES = 4096
# A control character takes six bytes in JSON, as \u0000.
JSON_GROWTH = 6


class JsonFormatter:
    """Records as lines of JSON."""

    def lines(self, batch: FetchedBatch) -> bytes:
        return b"".join(self._lines(batch, batch.rows))

    def line(self, batch: FetchedBatch, record: Row) -> bytes:
        return b"".join(self._lines(batch, [record]))

    def _lines(self, batch: FetchedBatch, rows: Iterable[Row]) -> Iterator[bytes]:
        """Yield the lines, formatted by hand in a third of the time of json with a dictionary."""
        quote = encode_basestring
        place = f'{{"topic": {quote(batch.topic)}, "partition": {batch.partition}, "offset": '
        for offset, timestamp, key, value, headers in rows:
            shown = "[]"
            if headers:
                pairs = [f'{{"key": {quote(n)}, "value": {_json(v)}}}' for n, v in headers]
                shown = f"[{', '.join(pairs)}]"
            time = "null" if timestamp == NO_TIMESTAMP else timestamp
            yield (
                f'{place}{offset}, "timestamp": {time}, "key": {_json(key)}, '
                f'"value": {_json(value)}, "headers": {shown}}}\n'
            ).encode()


class MsgpackFormatter:
    """Records as msgpack maps, one after the other."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer()

    def lines(self, batch: FetchedBatch) -> bytes:
        return b"".join([self.line(batch, row) for row in batch.rows])

    def line(self, batch: FetchedBatch, record: Row) -> bytes:
        offset, timestamp, key, value, headers = record
        packed: bytes = self._packer.pack(
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "offset": offset,
                "timestamp": None if timestamp == NO_TIMESTAMP else timestamp,
                "key": key,
                "value": value,
                "headers": [{"key": n, "value": v} for n, v in headers],
            }
        )
        return packed


def _json(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64": "{binascii.b2a_base64(data, newline=False).decode()}"}}'


def from_json(line: bytes) -> Incoming:
    """Return the record of a line. Raises Unreadable."""
    try:
        # A file may begin with a byte order mark, and files may be concatenated.
        text = line.decode("utf-8-sig").strip(_JSON_BLANKS)
        value, end = _decode_json(text)
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError):
        raise Unreadable(
            "it is not JSON: a number is too long, or the nesting is too deep"
        ) from None
    if end != len(text):
        raise Unreadable(f"it is not JSON: Extra data at character {end + 1}")
    if not isinstance(value, dict):
        raise Unreadable("it is not a JSON object")
    return from_map(value)


def from_map(fields: Mapping[Any, Any]) -> Incoming:
    """Return the record of an envelope's fields. Raises Unreadable."""
    if not fields.keys() <= _OURS:
        fields = _rename_fields(fields)
    get = fields.get
    topic = get("topic")
    if topic is not None:
        _name("topic", topic)
    headers = get("headers")
    return Incoming(
        _bytes("value", get("value")),
        _bytes("key", get("key")),
        () if headers is None or headers == [] else tuple(_headers(headers)),
        _number("partition", get("partition")),
        _timestamp(get("timestamp")),
        topic,
    )


def _rename_fields(fields: Mapping[Any, Any]) -> dict[str, Any]:
    """Rename kcat's fields to ours."""
    result: dict[str, Any] = {}
    for name, content in fields.items():
        field = _OF_KCAT.get(name, name)
        if field in result:
            raise Unreadable(f"it has both {field} and {name}")
        if field in _FIELDS:
            result[field] = content
        elif name not in _UNREAD:
            raise Unreadable(f"it has a field {name!r}; fields are {', '.join(_FIELDS)}")
    return result


def _bytes(name: str, content: object) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return _utf8(name, content)
    match content:
        case {"base64": str(text), **others} if not others:
            try:
                return binascii.a2b_base64(text, strict_mode=True)
            except ValueError:
                raise Unreadable(f"{name} is not base64") from None
    raise Unreadable(f'{name} is neither a string, null, nor {{"base64": ...}}')


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Unreadable(f"{name} has half of a surrogate pair") from None


def _number(name: str, content: object) -> int | None:
    if content is None or type(content) is int:
        return content
    raise Unreadable(f"{name} is not a whole number")


def _timestamp(content: object) -> int | None:
    """Return the timestamp; -1 stands for none in kcat, as in Kafka's batches."""
    timestamp = _number("timestamp", content)
    return None if timestamp == NO_TIMESTAMP else timestamp


def _headers(content: object) -> Iterator[tuple[str, bytes | None]]:
    if not isinstance(content, list):
        raise Unreadable("headers are not a list")
    if not isinstance(content[0], dict):
        if len(content) % 2:
            raise Unreadable("headers are a list with a name that has no value")
        for name, value in zip(content[::2], content[1::2], strict=True):
            yield _name("a header's key", name), _bytes("a header's value", value)
        return
    for header in content:
        if not isinstance(header, dict) or not header.keys() <= _OF_HEADER:
            raise Unreadable('a header is not like {"key": ..., "value": ...}')
        name = _name("a header's key", header.get("key"))
        yield name, _bytes("a header's value", header.get("value"))


def _name(what: str, content: object) -> str:
    if not isinstance(content, str):
        raise Unreadable(f"{what} is not a string")
    _utf8(what, content)
    return content
