"""Encoding of requests and responses: headers by hand, bodies by kio.

Pure: bytes and values only.

A request's header has version 1, or 2 (with tagged fields) if its version is flexible; a
response's has version 0 or 1 likewise.  The response of ApiVersions always has header version 0,
so that a client of any age can read it (KIP-511).  Frames are read without their length prefix,
and written with it.
"""

from __future__ import annotations

import functools
import io
import struct
from typing import Any, NamedTuple

from kserver.errors import ProtocolError  # before kio, as kserver.errors controls its first import
from kserver.wire import varint
from kserver.wire.api_key import ApiKey
from kserver.wire.guard import guard

# isort: split
import kio.index
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

API_VERSIONS = int(ApiKey.API_VERSIONS)

# First flexible version of each key that has both kinds; test_codec checks it against kio's
# schemas.
_FIRST_FLEXIBLE = {
    0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 18: 3,
    19: 5, 20: 4, 21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2, 31: 2,
    32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 2, 38: 2, 39: 2, 40: 2, 41: 2, 42: 2, 43: 2, 44: 1,
    48: 1, 49: 1, 53: 1, 54: 1,
}  # fmt: skip
_NEVER_FLEXIBLE = {17, 47}
# Messages in wire/control, which kio lacks: name, newest version, first flexible version.  They
# are listed here so that clients need not import its classes.
_CONTROL = {
    4: ("LeaderAndIsr", 7, 4),
    5: ("StopReplica", 4, 2),
    6: ("UpdateMetadata", 8, 6),
    7: ("ControlledShutdown", 3, 3),
}

_NO_VERSIONS: frozenset[int] = frozenset()
_FLEXIBLE = {
    key: frozenset(v for v in schema_name_map[name] if v >= _FIRST_FLEXIBLE.get(key, 0))
    for key, name in api_key_map.items()
    if key not in _NEVER_FLEXIBLE
} | {key: frozenset(range(first, last + 1)) for key, (_, last, first) in _CONTROL.items()}
_NAMES = {key: name.title().replace("_", "") for key, name in api_key_map.items()} | {
    key: name for key, (name, _, _) in _CONTROL.items()
}

_REQUEST_HEADER = struct.Struct(">hhih")
_REQUEST_HEAD = struct.Struct(">ihhih")
_RESPONSE_HEADER = struct.Struct(">i")
_RESPONSE_HEAD = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def api_name(key: int) -> str:
    """Return Kafka's name of an API, such as "Produce"."""
    return _NAMES.get(key) or f"api key {key}"


@functools.cache
def versions_of(api_key: int) -> tuple[int, int]:
    """Return the lowest and the highest known version; (0, -1) for an unknown key."""
    if api_key in _CONTROL:
        return 0, _CONTROL[api_key][1]
    if api_key not in api_key_map:
        return 0, -1
    schemas = schema_name_map[api_key_map[api_key]]
    return min(schemas), max(schemas)


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a version has tagged fields and compact lengths (KIP-482); False if
    unknown."""
    return version in _FLEXIBLE.get(api_key, _NO_VERSIONS)


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Return the header, and the position of the body.

    For an unknown version, only the fields that both header versions share are read, which is
    enough to respond with UNSUPPORTED_VERSION.
    """
    try:
        key, version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame)
        at = 10
        client_id = None
        if size >= 0:
            at += size
            client_id = str(frame[10:at], "utf-8")
            if at > len(frame):
                raise ProtocolError("truncated client id")
        if version in _FLEXIBLE.get(key, _NO_VERSIONS):
            at = at + 1 if frame[at] == 0 else varint.skip_tagged_fields(frame, at)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a broken request header: {error}") from error
    # The named tuple's own constructor takes twice as long.
    return tuple.__new__(RequestHeader, (key, version, correlation_id, client_id)), at


def read_request(header: RequestHeader, frame: memoryview, body_offset: int) -> Any:
    """Decode a request's body as kio's dataclass of that key and version."""
    return _request_reader(header.api_key, header.api_version)(frame, body_offset)


def read_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """Return correlation id and body of a response to a request of `api_key` and `version`."""
    if len(frame) < _RESPONSE_HEADER.size:
        raise ProtocolError("a response without a header")
    (correlation_id,) = _RESPONSE_HEADER.unpack_from(frame)
    at = _RESPONSE_HEADER.size
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        at = varint.skip_tagged_fields(frame, at)
    return correlation_id, _response_reader(api_key, version)(frame, at)


def write_response(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    """Return the complete frame, with its length prefix."""
    out = io.BytesIO()
    out.write(bytes(_RESPONSE_HEAD.size))
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        out.write(b"\x00")
    entity_writer(type(response))(out, response)
    _RESPONSE_HEAD.pack_into(out.getbuffer(), 0, out.tell() - 4, correlation_id)
    return out.getvalue()


def write_request(request: Any, correlation_id: int, client_id: str | None) -> bytes:
    """Return the complete frame, with its length prefix."""
    name = b"" if client_id is None else client_id.encode()
    key, version = request.__api_key__, request.__version__
    out = io.BytesIO()
    out.write(bytes(_REQUEST_HEAD.size))
    out.write(name)
    if is_flexible(key, version):
        out.write(b"\x00")
    entity_writer(type(request))(out, request)
    size = -1 if client_id is None else len(name)
    _REQUEST_HEAD.pack_into(out.getbuffer(), 0, out.tell() - 4, key, version, correlation_id, size)
    return out.getvalue()


@functools.cache
def request_type(api_key: int, version: int) -> Any:
    """Return kio's dataclass of a request; its module is imported at the first call.

    Raises ProtocolError for a key or version that kio does not have.
    """
    try:
        return kio.index.load_request_schema(api_key, version)
    except kio.index.KioIndexError as error:
        raise ProtocolError(f"{api_name(api_key)} has no version {version}") from error


@functools.cache
def response_type(api_key: int, version: int) -> Any:
    """Return kio's dataclass of a response, like `request_type`."""
    try:
        return kio.index.load_response_schema(api_key, version)
    except kio.index.KioIndexError as error:
        raise ProtocolError(f"{api_name(api_key)} has no version {version}") from error


class _MessageReader:
    """Decoder of the messages of one type."""

    __slots__ = ("_guard", "_read")

    def __init__(self, cls: Any) -> None:
        self._guard = guard(cls)
        self._read = entity_reader(cls)

    def __call__(self, frame: memoryview, at: int) -> Any:
        try:
            frame, at = self._guard(frame, at)
            return self._read(frame.toreadonly(), at)[0]
        except (SerialError, ValueError, OverflowError, IndexError, struct.error) as error:
            raise ProtocolError(f"a broken message: {error}") from error


@functools.cache
def _request_reader(api_key: int, version: int) -> _MessageReader:
    return _MessageReader(request_type(api_key, version))


@functools.cache
def _response_reader(api_key: int, version: int) -> _MessageReader:
    return _MessageReader(response_type(api_key, version))
