"""One connection that speaks the protocol by hand: any API in any version, well formed or not.

    with WireClient(broker.address) as client:
        answer = client.call(3, 12, topics=[{"name": "a"}], allow_auto_topic_creation=False)

Nested entities are given as dicts. Omitted fields get the schema's default, else the type's zero;
fields that a version does not have are omitted.
"""

from __future__ import annotations

import datetime
import socket
import struct
from collections.abc import Mapping
from typing import Any

from kserver.wire import versions
from kserver.wire.codec import read_response, write_request
from kserver.wire.control import ControlMessage, read_control_response

_SIZE = struct.Struct(">i")


class WireClient:
    """A blocking client; a response that takes longer than `timeout_s` raises TimeoutError."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str | None = "wire",
        timeout_s: float = 30,
        source: str = "",
    ) -> None:
        """Connect, from the address `source` if given."""
        host, _, port = address.rpartition(":")
        self._client_id = client_id
        self._socket = socket.create_connection((host, int(port)), timeout_s, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def call(self, api_key: int, version: int, /, **fields: Any) -> Any:
        """Send a request, and return the response as kio's entity."""
        correlation_id = self.send(api_key, version, **fields)
        return self.receive(api_key, version, correlation_id)

    def call_control(self, request: ControlMessage, version: int) -> Any:
        """As `call`, for one of the messages that kio does not have, in a flexible version."""
        self._send_flexible(request.api_key, version, request.encode(version))
        return read_control_response(request, version, memoryview(self.receive_frame()))

    def call_bytes(self, api_key: int, version: int, body: bytes) -> Any:
        """As `call`, for a flexible version's request with the given body."""
        self._send_flexible(api_key, version, body)
        return self.receive(api_key, version, self._correlation_id)

    def _send_flexible(self, api_key: int, version: int, body: bytes) -> None:
        self._correlation_id += 1
        head = struct.pack(">hhihx", api_key, version, self._correlation_id, -1)
        self.send_bytes(_SIZE.pack(len(head) + len(body)) + head + body)

    def send(self, api_key: int, version: int, /, **fields: Any) -> int:
        """Send a request, and return its correlation id."""
        self._correlation_id += 1
        request = build(versions.request(api_key, version), fields)
        self.send_bytes(write_request(request, self._correlation_id, self._client_id))
        return self._correlation_id

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        answered, entity = read_response(api_key, version, memoryview(self.receive_frame()))
        assert answered == correlation_id, f"answer {answered} to request {correlation_id}"
        return entity

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Return the next response without its length. Raises ConnectionError at the end of the
        stream.
        """
        (size,) = _SIZE.unpack(self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError(f"the broker closed the connection after {len(data)} bytes")
            data += chunk
        return bytes(data)

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection; return False if it sends data instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def milliseconds(number: int) -> datetime.timedelta:
    """Return kio's type of a duration on the wire."""
    return datetime.timedelta(milliseconds=number)


def build(shape: Any, fields: Mapping[str, Any]) -> Any:
    """Return an entity of this shape; nested entities are given as dicts."""
    return shape(**{name: _value(getattr(shape, name), value) for name, value in fields.items()})


def _value(shape: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return build(shape, value)
    if isinstance(value, list | tuple):
        return tuple(_value(shape, one) for one in value)
    return value
