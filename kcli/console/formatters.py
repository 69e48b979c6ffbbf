"""Formatters of Kafka's console consumer: consumed records as bytes.

Pure: values in, bytes out.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from kcli.console.encodings import Encoding, NotEncodable
from kcli.console.formatter import Formatter, Unprintable

if TYPE_CHECKING:
    from kcli.client.consumer.consumer import FetchedBatch, Record

Show = Callable[[bytes], bytes]

_PACKAGES = ("org.apache.kafka.tools.consumer.", "kafka.tools.", "")
_SERIALIZATION = "org.apache.kafka.common.serialization."


class UnknownClass(Exception):
    """An unknown formatter or deserializer."""


class DefaultFormatter:
    """Kafka's DefaultMessageFormatter: the configured columns in a fixed order; key and value in an
    encoding, if one is given.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        key_encoding: Encoding | None = None,
        value_encoding: Encoding | None = None,
    ) -> None:
        def shown(name: str, default: str = "false") -> bool:
            return properties.get(f"print.{name}", default).strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._timestamp = shown("timestamp")
        self._partition = shown("partition")
        self._offset = shown("offset")
        self._delivery = shown("delivery")
        self._epoch = shown("epoch")
        self._headers = shown("headers")
        self._key = shown("key")
        self._value = shown("value", "true")
        self._between = text("key.separator", "\t")
        self._end = text("line.separator", "\n")
        self._between_headers = text("headers.separator", ",")
        self._null = text("null.literal", "null")
        self._show_key = _deserializer(properties, "key.deserializer")
        self._show_value = _deserializer(properties, "value.deserializer")
        self._key_encoding = key_encoding
        self._value_encoding = value_encoding
        self._show_header = _deserializer(properties, "headers.deserializer")
        self._is_plain = not any(
            (
                self._timestamp,
                self._partition,
                self._offset,
                self._delivery,
                self._epoch,
                self._headers,
                self._key,
                self._show_value is not None,
                self._value_encoding is not None,
            )
        )

    def lines(self, batch: FetchedBatch) -> bytes:
        """Format all records of a batch. Raises Unprintable."""
        if not self._is_plain:
            return b"".join([self.line(batch, record) for record in batch.records])
        if not self._value:
            return b""
        null = self._null
        values = [null if (value := row[3]) is None else value for row in batch.rows]
        # For a separator at the end; adding it to the joined bytes would copy them.
        values.append(b"")
        return self._end.join(values)

    def line(self, batch: FetchedBatch, record: Record) -> bytes:
        """Format one record, with its line separator; nothing if no column is configured."""
        offset, timestamp, key, value, headers = record
        columns: list[bytes] = []
        if self._timestamp:
            kind = b"LogAppendTime" if batch.timestamp_type else b"CreateTime"
            columns.append(b"%b:%d" % (kind, timestamp))
        if self._partition:
            columns.append(b"Partition:%d" % batch.partition)
        if self._offset:
            columns.append(b"Offset:%d" % offset)
        if self._delivery:
            columns.append(b"Delivery:NOT_PRESENT")
        if self._epoch:
            columns.append(b"Epoch:NOT_PRESENT")
        if self._headers:
            shown = [b"%b:%b" % (n.encode(), self._text(v, self._show_header)) for n, v in headers]
            columns.append(self._between_headers.join(shown) if shown else b"NO_HEADERS")
        if self._key:
            columns.append(self._text(_encoded(key, self._key_encoding), self._show_key))
        if self._value:
            columns.append(self._text(_encoded(value, self._value_encoding), self._show_value))
        return self._between.join(columns) + self._end if columns else b""

    def _text(self, data: bytes | None, show: Show | None) -> bytes:
        content = self._null if data is None else data
        return content if show is None else show(content)


def _encoded(data: bytes | None, encoding: Encoding | None) -> bytes | None:
    if data is None or encoding is None:
        return data
    try:
        return encoding.shown(data)
    except NotEncodable as error:
        raise Unprintable(str(error)) from None


class NoOpFormatter:
    """Kafka's NoOpMessageFormatter: prints nothing."""

    def lines(self, batch: FetchedBatch) -> bytes:
        return b""

    def line(self, batch: FetchedBatch, record: Record) -> bytes:
        return b""


_FORMATTERS: dict[str, Callable[[Mapping[str, str]], Formatter]] = {
    "DefaultMessageFormatter": DefaultFormatter,
    # It only adds a log line, which Kafka's tools hide.
    "LoggingMessageFormatter": DefaultFormatter,
    "NoOpMessageFormatter": lambda properties: NoOpFormatter(),
    "OffsetsMessageFormatter": lambda properties: _of_coordinator("of_offsets"),
    "GroupMetadataMessageFormatter": lambda properties: _of_coordinator("of_group_metadata"),
    "TransactionLogMessageFormatter": lambda properties: _of_coordinator("of_transaction_log"),
}


def _of_coordinator(kind: str) -> Formatter:
    from kcli.console import coordinator_formatters  # loaded only if requested

    new_formatter: Callable[[], Formatter] = getattr(coordinator_formatters, kind)
    return new_formatter()


def formatter(name: str, properties: Mapping[str, str]) -> Formatter:
    """Return the formatter by the name of Kafka's class, old or new. Raises UnknownClass."""
    for package in _PACKAGES:
        new_formatter = _FORMATTERS.get(name.removeprefix(package))
        if new_formatter is not None:
            return new_formatter(properties)
    raise UnknownClass(f"{name} is not a formatter that k has; it has {', '.join(_FORMATTERS)}")


def _deserializer(properties: Mapping[str, str], key: str) -> Show | None:
    """Return the deserializer by the name of Kafka's class; None if none is configured."""
    name = properties.get(key)
    if name is None:
        return None
    short = name.removeprefix(_SERIALIZATION).removesuffix("Deserializer")
    if short in _SIZES:
        return _number(name.rpartition(".")[2], *_SIZES[short])
    if short in _TEXTS:
        return _TEXTS[short]
    names = ", ".join(sorted(f"{short_name}Deserializer" for short_name in (*_SIZES, *_TEXTS)))
    raise UnknownClass(f"{name} is not a deserializer that k has; it has {names}")


def _number(name: str, format: str, show: Callable[..., str]) -> Show:
    layout = struct.Struct(format)

    def shown(data: bytes) -> bytes:
        if len(data) != layout.size:
            raise Unprintable(f"Size of data received by {name} is not {layout.size}")
        return show(*layout.unpack(data)).encode()

    return shown


def _java(text: str) -> str:
    """Return a decimal as Java prints it: 1.0, 0.001, 1.0E7, 1.5E-4."""
    number = Decimal(text)
    sign = "-" if number.is_signed() else ""
    if not number.is_finite():
        return "NaN" if number.is_nan() else f"{sign}Infinity"
    if number == 0:
        return f"{sign}0.0"
    if Decimal("0.001") <= abs(number) < 10**7:
        plain = f"{number:f}"
        return plain if "." in plain else f"{plain}.0"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or 0}E{number.adjusted()}"


def _single(value: float) -> str:
    """Return the shortest decimal that is parsed to the same 32 bits."""
    candidates = (f"{value:.{digits}g}" for digits in range(1, 10))
    packed = struct.pack(">f", value)
    return _java(next((c for c in candidates if struct.pack(">f", float(c)) == packed), str(value)))


def _bytes(data: bytes) -> bytes:
    """Return the text of Kafka's Bytes: bytes that are not visible ASCII, and backslashes, as
    \\xNN.
    """
    return b"".join(
        b"%c" % byte if 0x20 <= byte < 0x7F and byte != 0x5C else b"\\x%02X" % byte for byte in data
    )


_SIZES: dict[str, tuple[str, Callable[..., str]]] = {
    "Short": (">h", str),
    "Integer": (">i", str),
    "Long": (">q", str),
    "Float": (">f", _single),
    "Double": (">d", lambda value: _java(repr(value))),
    "Boolean": (">?", lambda value: str(value).lower()),
}
_TEXTS: dict[str, Show] = {
    "String": lambda data: data.decode(errors="replace").encode(),
    "Bytes": _bytes,
    "UUID": lambda data: _uuid(data.decode(errors="replace")).encode(),
}


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise Unprintable(f"Invalid UUID string: {text}") from None
