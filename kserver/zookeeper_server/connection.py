"""One client's connection: its frames, its session, and its responses in order.

    state        meaning                                    next state
    NEW          nothing was received                       a ConnectRequest: OPENING or OPEN;
                                                            a four-letter word: CLOSED
    OPENING      its session is being written to disk       OPEN
    OPEN         requests are answered                      closeSession, an expired session: CLOSED
    CLOSED       nothing more is read or sent

Requests take effect in the order in which they are received, as ZooKeeper promises. Consecutive
changes wait for the disk together. A read waits for the changes before it, and a change for the
reads before it.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kserver.errors import ProtocolError
from kserver.world.zookeeper import SessionExpired, ZooKeeperError
from kserver.zookeeper_server import acl, words
from kserver.zookeeper_server.jute import (
    MAX_REQUEST_BYTES,
    NOTIFICATION_XID,
    PING_XID,
    AuthPacket,
    ConnectRequest,
    ConnectResponse,
    Err,
    OpCode,
    Reader,
    ReplyHeader,
    WatcherEvent,
    ZooKeeperRequestHeader,
    encode,
    frame,
    multi,
)
from kserver.zookeeper_server.reads import View, read_of
from kserver.zookeeper_server.requests import (
    ZnodeChange,
    change_of,
    code_of,
    failures,
    responses_of,
)
from kserver.zookeeper_server.sessions import PASSWORD_BYTES
from kserver.zookeeper_server.store import ChangeNodes, CloseSession, Done

if TYPE_CHECKING:
    from kserver.zookeeper_server.server import ZooKeeperServer

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
MAX_WAITING = 1000
"""Maximum number of pending requests of a client; beyond it, its socket is not read."""
MAX_UNSENT_BYTES = 64 << 20
"""Maximum of unsent response bytes; a client that exceeds it is disconnected."""


class ConnectionState(enum.Enum):
    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(slots=True)
class _Slot:
    """A pending request."""

    arrived_s: float
    start: Callable[[_Slot], None] | None
    """Submits a change; None for a read."""
    respond: Callable[[], None] | None
    """Sends the response; None for a change that is being written."""


class ZooKeeperConnection(asyncio.Protocol):
    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._running: deque[_Slot] = deque()
        """Changes that are being written to disk."""
        self._waiting: deque[_Slot] = deque()
        """Requests behind them; the first is a read that waits for the changes."""
        self._is_draining = False
        self._knows_read_only = True
        self.state = ConnectionState.NEW
        self.session = 0
        self.timeout_ms = 0
        self.identities: list[acl.Identity] = []
        self.host, self.port = "", 0
        self.requests = self.responses = 0

    @property
    def waiting(self) -> int:
        return len(self._running) + len(self._waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.host, self.port = transport.get_extra_info("peername")[:2]
        self.identities.append(acl.Identity("ip", self.host))
        if not self._server.admit(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = ConnectionState.CLOSED
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._read()

    def close(self) -> None:
        """Close once all is sent."""
        self.state = ConnectionState.CLOSED
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self.state = ConnectionState.CLOSED
        if self._transport is not None:
            self._transport.abort()

    def reset_figures(self) -> None:
        self.requests = self.responses = 0

    def notify(self, event: WatcherEvent) -> None:
        self._send(frame(ReplyHeader(NOTIFICATION_XID, -1, Err.OK), event))

    def opened(self, password: bytes) -> None:
        """Send the ConnectResponse for the session, which is open now."""
        if self.state is ConnectionState.OPENING:
            self._connected(self.timeout_ms, self.session, password)
            self.state = ConnectionState.OPEN
            asyncio.get_running_loop().call_soon(self._read)

    def refused(self) -> None:
        """Refuse the requested session, which has ended."""
        self._connected(0, 0, bytes(PASSWORD_BYTES))
        self.close()

    def _connected(self, timeout_ms: int, session: int, password: bytes) -> None:
        body = encode(ConnectResponse(0, timeout_ms, session, password))
        if self._knows_read_only:
            body += b"\0"
        self._send(_LENGTH.pack(len(body)) + body)

    def _read(self) -> None:
        """Handle every complete frame; with too many pending requests the rest is kept for
        later.
        """
        at = 0
        data = self._received
        try:
            while (
                self.state in (ConnectionState.NEW, ConnectionState.OPEN)
                and self.waiting < MAX_WAITING
            ):
                if len(data) - at < _LENGTH.size:
                    break
                (size,) = _LENGTH.unpack_from(data, at)
                if self.state is ConnectionState.NEW and (word := words.word(size)) is not None:
                    self._send(self._server.word(word).encode())
                    self.close()
                    break
                if not 0 <= size <= MAX_REQUEST_BYTES:
                    raise ProtocolError(f"a frame of {size} bytes")
                if len(data) - at - _LENGTH.size < size:
                    break
                at += _LENGTH.size + size
                self._frame(bytes(data[at - size : at]))
        except ProtocolError as error:
            self._server.complain(self, error)
            self.close()
        del data[:at]
        self._flow()

    def _flow(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        # An incomplete frame is read to its end, however many requests are pending.
        if self.waiting >= MAX_WAITING or len(self._received) > MAX_REQUEST_BYTES + 4:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _frame(self, data: bytes) -> None:
        reader = Reader(data)
        if self.state is ConnectionState.NEW:
            request = reader.record(ConnectRequest)
            # Clients before ZooKeeper 3.4 neither send nor expect the read-only flag.
            self._knows_read_only = reader.remaining > 0
            self.state = ConnectionState.OPENING
            self._server.connect(self, request)
            return
        header = reader.record(ZooKeeperRequestHeader)
        self.requests += 1
        self._server.received(self)
        if header.type == OpCode.AUTH:
            self._authenticate(header.xid, reader.record(AuthPacket))
        elif header.type == OpCode.SASL:
            # The response would be to a token that was not evaluated; the client only learns that
            # it failed.
            self._queue(None, partial(self._fail_authentication, header.xid))
        elif header.type == OpCode.CLOSE_SESSION:
            self._queue(partial(self._close_session, header.xid), None)
        else:
            self._request(header, reader)

    def _request(self, header: ZooKeeperRequestHeader, reader: Reader) -> None:
        try:
            change = change_of(header.type, reader, self.identities)
            read = read_of(header.type, reader) if change is None else None
        except ProtocolError:
            self._queue(
                None, lambda: self._reply(header.xid, self._server.zxid, Err.MARSHALLING_ERROR)
            )
            return
        if change is not None:
            self._queue(partial(self._change, header.xid, change), None)
            return
        assert read is not None
        # A ping is answered with ZooKeeper's xid for it, whatever its own xid.
        xid = PING_XID if read.type == OpCode.PING else header.xid
        view = View(
            self._server.store.tree,
            self._server.watches,
            self,
            tuple(self.identities),
            lambda: self._server.store.ephemerals(self.session),
            self.notify,
        )

        def respond() -> None:
            zxid = self._server.zxid
            try:
                if not self._server.is_open(self.session):
                    raise SessionExpired
                records = view.response(read)
            except ZooKeeperError as error:
                self._reply(xid, zxid, code_of(error))
            else:
                self._reply(xid, zxid, Err.OK, *records)

        self._queue(None, respond)

    def _authenticate(self, xid: int, packet: AuthPacket) -> None:
        if packet.scheme == "digest":
            try:
                identity = acl.digest((packet.auth or b"").decode())
            except UnicodeDecodeError:
                pass
            else:
                if identity not in self.identities:
                    self.identities.append(identity)
                self._queue(None, lambda: self._reply(xid, 0, Err.OK))
                return
        if packet.scheme == "ip":
            self._queue(None, lambda: self._reply(xid, 0, Err.OK))
            return
        self._queue(None, partial(self._fail_authentication, xid))

    def _fail_authentication(self, xid: int) -> None:
        self._reply(xid, 0, Err.AUTH_FAILED)
        self.close()

    def _change(self, xid: int, change: ZnodeChange, slot: _Slot) -> None:
        def done(done: Done) -> None:
            slot.respond = partial(self._changed, xid, change, done)
            self._drain()

        ops = [each.op for each in change.operations]
        guard = acl.guard(tuple(self.identities))
        if not self._server.is_open(self.session):
            done(Done(self._server.zxid, error=SessionExpired()))
        elif not ops:
            done(Done(self._server.zxid))
        else:
            self._server.store.submit(ChangeNodes(self.session, ops, done, guard))

    def _changed(self, xid: int, change: ZnodeChange, done: Done) -> None:
        error = done.error
        if error is not None and (not change.is_multi or isinstance(error, SessionExpired)):
            self._reply(xid, done.zxid, code_of(error))
        elif error is not None:
            self._reply(xid, done.zxid, Err.OK, *multi(failures(change, error)))
        else:
            results = responses_of(change, done.results, done.stats)
            records = multi(results) if change.is_multi else [results[0][1]]
            self._reply(xid, done.zxid, Err.OK, *records)

    def _close_session(self, xid: int, slot: _Slot) -> None:
        def done(done: Done) -> None:
            slot.respond = partial(self._session_closed, xid, done.zxid)
            self._server.ended(self.session)
            self._drain()

        if self._server.end(self.session):
            self._server.store.submit(CloseSession(self.session, done))
        else:
            done(Done(self._server.zxid))

    def _session_closed(self, xid: int, zxid: int) -> None:
        self._reply(xid, zxid, Err.OK)
        self.close()

    def _queue(
        self, start: Callable[[_Slot], None] | None, respond: Callable[[], None] | None
    ) -> None:
        self._waiting.append(_Slot(self._server.now_s(), start, respond))
        self._drain()

    def _drain(self) -> None:
        """Send the responses that are ready, and submit the changes that are not behind a read."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self.state is ConnectionState.OPEN and self._step():
                pass
        finally:
            self._is_draining = False
        if (
            self._received
            and self.waiting < MAX_WAITING // 2
            and self.state is ConnectionState.OPEN
        ):
            asyncio.get_running_loop().call_soon(self._read)

    def _step(self) -> bool:
        """Take one step; return whether there was one."""
        if self._running and self._running[0].respond is not None:
            self._respond(self._running.popleft())
        elif self._waiting and self._waiting[0].start is not None:
            slot = self._waiting.popleft()
            self._running.append(slot)
            assert slot.start is not None
            slot.start(slot)
        elif self._waiting and not self._running:
            self._respond(self._waiting.popleft())
        else:
            return False
        return True

    def _respond(self, slot: _Slot) -> None:
        assert slot.respond is not None
        try:
            slot.respond()
        except Exception:
            # A bug affects this client only, not all of them.
            log.exception("a request from %s:%d failed", self.host, self.port)
            self.abort()
        self._server.on_response(slot.arrived_s)

    def _reply(self, xid: int, zxid: int, err: Err, *records: tuple[Any, ...]) -> None:
        self.responses += 1
        self._send(frame(ReplyHeader(xid, zxid, err), *records))

    def _send(self, data: bytes) -> None:
        if self.state is ConnectionState.CLOSED or self._transport is None:
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.abort()
