"""Decoders of records for Kafka's dump-log: text, numbers, or JSON of the records of coordinators
and controllers.

Pure: records in, text out.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kcli.segments import foreign_records, kraft_records
from kcli.segments.old_messages import OldRecord
from kserver.errors import ProtocolError
from kserver.group.records import CONSUMERS, GROUP_METADATA, MEMBER_PROTOCOL
from kserver.txn import records as transactions
from kserver.wire import varint
from kserver.wire.batch import Record
from kserver.wire.schema import KeyedRecords, UnknownKind, Values

Decoder = Callable[[Record | OldRecord], tuple[str | None, str | None]]
"""Key and payload; None for one that is not printed."""

DELETED = "<DELETE>"
_FRAME_VERSION = 1
_MEMBER_PARTS = {
    "subscription": MEMBER_PROTOCOL["ConsumerProtocolSubscription"],
    "assignment": MEMBER_PROTOCOL["ConsumerProtocolAssignment"],
}
# Java prints numbers from here on, and below, with an exponent.
_LARGE, _SMALL = 1e7, 1e-3


def plain(key: Callable[[bytes], str], value: Callable[[bytes], str]) -> Decoder:
    def decode(record: Record | OldRecord) -> tuple[str | None, str | None]:
        return (
            None if record.key is None else key(record.key),
            None if record.value is None else value(record.value),
        )

    return decode


def offsets(record: Record | OldRecord) -> tuple[str | None, str | None]:
    return _of_coordinator(record, foreign_records.OFFSETS, _group_shown)


def transaction_log(record: Record | OldRecord) -> tuple[str | None, str | None]:
    return _of_coordinator(record, transactions.RECORDS)


def share_group_state(record: Record | OldRecord) -> tuple[str | None, str | None]:
    return _of_coordinator(record, foreign_records.SHARE_STATE)


def cluster_metadata(record: Record | OldRecord) -> tuple[str | None, str | None]:
    """Decode Kafka's frame: its version, the record's kind and its version, each a varint."""
    data = record.value or b""
    try:
        frame, at = varint.decode_unsigned(data, 0)
        kind, at = varint.decode_unsigned(data, at)
        version, at = varint.decode_unsigned(data, at)
        if frame != _FRAME_VERSION:
            raise ProtocolError(f"unknown frame version {frame}")
        if kind not in kraft_records.KINDS:
            raise ProtocolError(f"unknown record type {kind}")
        schema = kraft_records.KINDS[kind]
        content = schema.as_json(version, schema.decode(version, data[at:]))
    except ProtocolError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", schema.name).upper()
    return None, java_json({"type": name, "version": version, "data": content})


def _of_coordinator(
    record: Record | OldRecord,
    records: KeyedRecords,
    show: Callable[[int, Values], Values] | None = None,
) -> tuple[str | None, str | None]:
    """Decode a coordinator's record; `show` extends the JSON of values of some kinds."""
    if record.key is None:
        raise ProtocolError(f"the record at offset {record.offset} has no key")
    try:
        kind, values = records.decode_key(record.key)
        key_schema, schema = records.kinds[kind]
        key = {"type": str(kind), "data": key_schema.as_json(0, values)}
        if record.value is None:
            return java_json(key), DELETED
        version, values = records.decode_value(kind, record.value)
        content = schema.as_json(version, values)
        if show is not None:
            content = show(kind, content)
        return java_json(key), java_json({"version": str(version), "data": content})
    except UnknownKind as unknown:
        message = f"Unknown record type {unknown.kind} at offset {record.offset}, skipping."
    except ProtocolError as error:
        message = f"Error at offset {record.offset}, skipping. {error}"
    return message, None


def _group_shown(kind: int, content: Values) -> Values:
    """Decode the subscriptions and assignments of consumers in a classic group, if possible."""
    if kind == GROUP_METADATA and content["protocolType"] == CONSUMERS:
        for member in content["members"]:
            for part, schema in _MEMBER_PARTS.items():
                data = base64.b64decode(member[part])
                version = int.from_bytes(data[:2])
                try:
                    member[part] = schema.as_json(version, schema.decode(version, data[2:]))
                except ProtocolError:
                    continue
    return content


def java_json(value: Any) -> str:
    """Return JSON as Kafka's tools write it: no spaces, \\u001B in capitals, numbers as in Java."""
    match value:
        case dict():
            return "{" + ",".join(f"{_text(k)}:{java_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(java_json, value)) + "]"
        case str():
            return _text(value)
        case float():
            return _double(value)
    return json.dumps(value)


def _text(text: str) -> str:
    # Escapes are matched in pairs, so that an escaped backslash before a u is not changed.
    escaped = json.dumps(text, ensure_ascii=False)
    return re.sub(
        r"\\(?:u[0-9a-f]{4}|.)",
        lambda match: f"\\u{match[0][2:].upper()}" if match[0][1] == "u" else match[0],
        escaped,
    )


def _double(number: float) -> str:
    """Format a number as Java's Double.toString."""
    if number == 0 or _SMALL <= abs(number) < _LARGE:
        return repr(number)
    exact = Decimal(repr(number))
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or 0}E{exact.adjusted()}"
