"""A client of ZooKeeper's protocol that sends any request, valid or not."""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

from kserver.zookeeper_server.jute import (
    NOTIFICATION_XID,
    PING_XID,
    ConnectRequest,
    ConnectResponse,
    MultiHeader,
    OpCode,
    Reader,
    ReplyHeader,
    WatcherEvent,
    ZooKeeperRequestHeader,
    encode,
    frame,
)

PATIENCE_S = 60


class Reply(NamedTuple):
    xid: int
    zxid: int
    err: int
    reader: Reader

    def record(self, kind: Any) -> Any:
        assert self.err == 0, self.err
        return self.reader.record(kind)

    def results(self, **kinds: Any) -> list[Any]:
        """Return the results of a multi: each has its header, and `kinds` by the number of its
        type.
        """
        found = []
        while not (header := self.reader.record(MultiHeader)).done:
            kind = kinds.get(f"t{header.type}".replace("-", "_"))
            found.append((header, self.reader.record(kind) if kind else None))
        return found


class RawClient:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.session = ConnectResponse(0, 0, 0, None)
        self._xid = 0

    def connect(
        self,
        session: int = 0,
        password: bytes = bytes(16),
        timeout_ms: int = 60_000,
        last_zxid: int = 0,
        end: bytes = b"\0",
    ) -> RawClient:
        """Open a session; `end` says whether a read-only server is acceptable."""
        request = ConnectRequest(0, last_zxid, timeout_ms, session, password)
        body = encode(request) + end
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        reader = self.read()
        self.session = reader.record(ConnectResponse)
        assert reader.remaining == len(end)
        return self

    def send(self, kind: int, *records: Any, xid: int | None = None) -> int:
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.socket.sendall(frame(ZooKeeperRequestHeader(xid, kind), *records))
        return xid

    def reply(self) -> Reply:
        """Return the next response that is not an event."""
        reader = self.read()
        header = reader.record(ReplyHeader)
        assert header.xid != NOTIFICATION_XID
        return Reply(*header, reader)

    def event(self) -> WatcherEvent:
        reader = self.read()
        header = reader.record(ReplyHeader)
        assert header.xid == NOTIFICATION_XID, header
        return reader.record(WatcherEvent)

    def call(self, kind: int, *records: Any) -> Reply:
        xid = self.send(kind, *records)
        reply = self.reply()
        assert reply.xid == xid
        return reply

    def ping(self) -> Reply:
        self.send(OpCode.PING)
        reply = self.reply()
        assert reply.xid == PING_XID
        return reply

    def read(self) -> Reader:
        (size,) = struct.unpack(">i", self._exactly(4))
        return Reader(self._exactly(size))

    def is_cut_off(self) -> bool:
        """Wait for either; return whether the server closes the connection without sending data."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the server closed")
            data += part
        return data
