"""Serializers and deserializers: from values to bytes, and back.

Pure: values in, values out.

Any function of one value works: `lambda value: json.dumps(value).encode()`, `json.loads`. Null is
None both ways and is not passed to them. Kafka's own are known by their Java names, as in
key.serializer: those of strings, numbers, booleans, UUIDs and bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypedDict
from uuid import UUID

Serializer: TypeAlias = Callable[[Any], bytes | None]
Deserializer: TypeAlias = Callable[[bytes], Any]

PACKAGE = "org.apache.kafka.common.serialization."


def pass_through(data: Any) -> Any:
    """Return bytes as they are."""
    return data


def _boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"{data!r} is neither true nor false")
    return data == b"\1"


def _refuse_non_null(data: object) -> None:
    raise ValueError("only null can be void")


def _uuid_to_bytes(id: UUID) -> bytes:
    return str(id).encode()


def _struct_codec(format: str) -> tuple[Serializer, Deserializer]:
    """Return functions that pack and unpack a number; struct checks its size."""
    packer = struct.Struct(format)
    return packer.pack, lambda data: packer.unpack(data)[0]


_KINDS: Mapping[str, tuple[Serializer, Deserializer]] = {
    "ByteArray": (pass_through, pass_through),
    "ByteBuffer": (pass_through, pass_through),
    "Bytes": (pass_through, pass_through),
    # Like Java's String, replace invalid UTF-8.
    "String": (str.encode, lambda data: data.decode(errors="replace")),
    "Short": _struct_codec(">h"),
    "Integer": _struct_codec(">i"),
    "Long": _struct_codec(">q"),
    "Float": _struct_codec(">f"),
    "Double": _struct_codec(">d"),
    "Boolean": (lambda value: b"\1" if value else b"\0", _boolean),
    "UUID": (_uuid_to_bytes, lambda data: UUID(data.decode())),
    "Void": (_refuse_non_null, _refuse_non_null),
}


class Serializers(TypedDict):
    """Arguments of a Producer."""

    key_serializer: Serializer
    value_serializer: Serializer


class Deserializers(TypedDict):
    """Arguments of a Consumer."""

    key_deserializer: Deserializer
    value_deserializer: Deserializer


BYTES_OUT: Serializers = {"key_serializer": pass_through, "value_serializer": pass_through}
BYTES_IN: Deserializers = {"key_deserializer": pass_through, "value_deserializer": pass_through}
"""Arguments for code that handles bytes, in a client whose configuration may name others."""

SERIALIZERS: Mapping[str, Serializer] = {
    f"{PACKAGE}{kind}Serializer": write for kind, (write, _) in _KINDS.items()
}
DESERIALIZERS: Mapping[str, Deserializer] = {
    f"{PACKAGE}{kind}Deserializer": read for kind, (_, read) in _KINDS.items()
}
