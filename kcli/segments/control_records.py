"""Control records as in Kafka's dump-log: transaction markers, and KRaft's own as JSON.

Pure: bytes in, text out.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import struct
import uuid
from typing import Any

from kserver.errors import ProtocolError  # before kio, which has to be imported there first
from kserver.wire.batch import Record

# isort: split
from kio.serial import entity_reader
from kio.serial.errors import SerialError

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")

_MARKERS = {0: "ABORT", 1: "COMMIT"}
# Control type: prefix of its JSON, and kio's schema of its value.
_MESSAGES = {
    2: ("LeaderChange:", "leader_change_message"),
    3: ("SnapshotHeader", "snapshot_header_record"),
    4: ("SnapshotFooter", "snapshot_footer_record"),
    5: ("KRaftVersion", "k_raft_version_record"),
    6: ("KRaftVoters", "voters_record"),
}


def text(record: Record) -> str:
    """Return `endTxnMarker: COMMIT coordinatorEpoch: 0`, or `SnapshotHeader {...}` and so on."""
    value = record.value or b""
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind in _MARKERS:
            return f"endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {_MARKER.unpack(value)[1]}"
        if kind not in _MESSAGES:
            return f"controlType: UNKNOWN({kind})"
        introduction, schema = _MESSAGES[kind]
        # Each of these messages begins with its own version.
        module = importlib.import_module(f"kio.schema.{schema}.v{int.from_bytes(value[:2])}")
        message, _ = entity_reader(getattr(module, module.__all__[-1]))(value, 0)
    except (struct.error, SerialError, ImportError) as error:
        raise ProtocolError(f"a broken control record at offset {record.offset}") from error
    return f"{introduction} {json.dumps(_plain(message), separators=(',', ':'))}"


def _plain(value: Any) -> Any:
    """Convert a kio entity to JSON's own types, with the schema's camelCase names."""
    if dataclasses.is_dataclass(value):
        fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {_camel(name): _plain(content) for name, content in fields}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"no JSON for {type(value).__name__}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
