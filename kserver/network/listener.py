"""Listening sockets: accept connections, enforce limits, and close idle connections.

Limits (Kafka: network/SocketServer.scala, ConnectionQuotas): `max.connections` for the broker,
`max.connections.per.ip` with overrides per address.  A connection over a limit is closed at once,
before reading from it.  Above `max.connection.creation.rate`, accepting pauses.  A connection from
an address above its connection_creation_rate is closed only when that address may connect again, so
that it does not retry at once.

A client that sends a request slower than RECEIVED_BYTES_A_SECOND, after RECEIVE_GRACE_S, is
disconnected: its bytes, however slow, would keep the connection from being idle.  A client that
does not read its responses is disconnected after `connections.max.idle.ms`, as in Kafka: a consumer
may take minutes to process its records.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kserver.errors import RAISE_OPEN_FILES
from kserver.model import Endpoint
from kserver.network.connection import SHUTDOWN, Connection
from kserver.network.conversation import Buffers, Dispatch
from kserver.network.quota import ConnectionRates
from kserver.network.stream import StreamConnection
from kserver.world import process_resources
from kserver.world.disk import Disk

log = logging.getLogger(__name__)

ACCEPTED_A_TURN = 64
SWEEPS_PER_IDLE_LIMIT = 10
FINISH_LIMIT_S = 2.0
RECEIVE_GRACE_S = 60.0
RECEIVED_BYTES_A_SECOND = 1024
SWEEP_S = 10.0
COUNTED_EVERY_S = 1.0
TURNED_AWAY_AT_ONCE = 100
"""Maximum number of rejected connections that are kept open until their address may retry."""
REFUSALS_LOG_INTERVAL_S = 10.0


class AnyConnection(Protocol):
    address: str
    last_active_s: float
    """Loop time when bytes were last received or, after waiting, sent."""

    def finish(self) -> None: ...
    def receiving(self) -> tuple[int, int]: ...
    def throttle(self, for_ms: int) -> None: ...
    def close(self, reason: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections; in the units of the configs of the same names."""

    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    max_frame_bytes: int
    max_request_bytes: int
    """Maximum for all connections together; -1 for no limit."""
    send_buffer_bytes: int
    receive_buffer_bytes: int
    backlog: int


OpenSession = Callable[[Endpoint, AnyConnection], Dispatch]


class Listeners:
    """All listeners of a broker, and their connections."""

    def __init__(
        self,
        limits: ConnectionLimits,
        rates: ConnectionRates,
        disk: Disk,
        open_session: OpenSession,
    ) -> None:
        self._rates = rates
        self.configure(limits)
        self._disk = disk
        self._open_session = open_session
        self._buffers = Buffers(limits.max_request_bytes)
        self._sockets: list[tuple[socket.socket, Endpoint]] = []
        self._servers: list[asyncio.Server] = []
        # Dicts, for their order: behaviour must not depend on hashes.
        self._connections: dict[AnyConnection, str] = {}
        """Name of the listener of each connection."""
        self._by_address: Counter[str] = Counter()
        self.accept_counts: Counter[str] = Counter()
        """Number of connections ever accepted by each listener, by name."""
        self._begun: dict[AnyConnection, tuple[int, float]] = {}
        """Connections seen within a request: the request's number, and the loop time when first
        seen."""
        self._turned_away: set[socket.socket] = set()
        self._descriptors = 0
        """Maximum number of connections that the open-files limit allows, when last computed."""
        self._count_again_s = 0.0
        self._refusals = 0
        self._next_refusals_log_s = 0.0
        self._empty: asyncio.Event | None = None
        """Set when the last connection closes after `stop_reading`."""

    def __len__(self) -> int:
        return len(self._connections)

    def by_listener(self) -> Mapping[str, int]:
        """Return the number of open connections of each listener that ever had one."""
        return dict.fromkeys(self.accept_counts, 0) | Counter(self._connections.values())

    def configure(self, limits: ConnectionLimits) -> None:
        """Apply new limits; existing connections stay, whatever their number."""
        self._limits = limits
        self._rates.limit = limits.max_connection_creation_rate

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Bind the address, and return the endpoint with its real port.  Raises OSError naming it.

        Clients that connect before `accept` wait in the backlog.
        """
        host = endpoint.host or None
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise _unusable(endpoint, error) from error
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._limits.receive_buffer_bytes > 0:
                # Accepted sockets inherit it; setting it after accept is too late for the window.
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer_bytes
                )
            sock.bind(address)
            sock.listen(self._limits.backlog)
        except OSError as error:
            sock.close()
            raise _unusable(endpoint, error) from error
        port = sock.getsockname()[1]
        bound = Endpoint(endpoint.listener, endpoint.protocol, endpoint.host, port)
        self._sockets.append((sock, bound))
        return bound

    def accept(self) -> None:
        """Accept clients on every bound address."""
        loop = asyncio.get_running_loop()
        for sock, bound in self._sockets:
            loop.add_reader(sock.fileno(), self._accept, loop, sock, bound)

    def drop(self, name: str) -> None:
        """Close a listener, and its connections."""
        loop = asyncio.get_running_loop()
        for entry in [entry for entry in self._sockets if entry[1].listener == name]:
            loop.remove_reader(entry[0].fileno())
            entry[0].close()
            self._sockets.remove(entry)
        for connection in [c for c, through in self._connections.items() if through == name]:
            connection.close(f"listener {name} was closed")

    async def open_stream(self, endpoint: Endpoint) -> None:
        """Listen through asyncio's transports (the simulated network)."""
        loop = asyncio.get_running_loop()

        def connection() -> StreamConnection:
            return StreamConnection(
                loop,
                lambda connection_: self._open_session(endpoint, connection_),
                max_frame_bytes=self._limits.max_frame_bytes,
                buffers=self._buffers,
                disk=self._disk,
                on_open=lambda connection_: self._admit(connection_, endpoint.listener),
                on_close=self._forget,
            )

        self._servers.append(
            await loop.create_server(connection, endpoint.host or None, endpoint.port)
        )

    async def run(self) -> None:
        """Close connections that are idle too long or send too slowly, while the broker runs.

        As in Kafka, a request that waits for longer than `connections.max.idle.ms` does not keep
        its connection open.
        """
        loop = asyncio.get_running_loop()
        limit_s = self._limits.connections_max_idle_ms / 1000
        if limit_s <= 0:
            limit_s = float("inf")
        while True:
            await asyncio.sleep(min(limit_s / SWEEPS_PER_IDLE_LIMIT, SWEEP_S))
            now_s = loop.time()
            for connection in list(self._connections):
                if connection.last_active_s < now_s - limit_s:
                    connection.close("idle")
                elif self._is_too_slow(connection, now_s):
                    connection.close("a request that does not come")

    def _is_too_slow(self, connection: AnyConnection, now_s: float) -> bool:
        request_count, size = connection.receiving()
        if size == 0:
            self._begun.pop(connection, None)
            return False
        before, since_s = self._begun.get(connection, (-1, now_s))
        if before != request_count:
            self._begun[connection] = (request_count, now_s)
            return False
        return size < (now_s - since_s - RECEIVE_GRACE_S) * RECEIVED_BYTES_A_SECOND

    def stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for sock, _ in self._sockets:
            loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        for server in self._servers:
            server.close()
        self._servers.clear()

    def stop_reading(self) -> None:
        """Accept no more connections and read no more requests; close each connection once its
        requests are answered."""
        self.stop_accepting()
        self._empty = asyncio.Event()
        for connection in list(self._connections):
            connection.finish()

    async def finish(self) -> None:
        """Wait until `stop_reading` has closed every connection, for at most FINISH_LIMIT_S.

        An idempotent producer retries requests without a response, and a restarted broker knows
        only the last batch of each producer: an earlier one would look out of order.
        """
        if self._connections and self._empty is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINISH_LIMIT_S):
                    await self._empty.wait()
        self.close()

    def close(self) -> None:
        self.stop_accepting()
        for sock in self._turned_away:
            sock.close()
        self._turned_away.clear()
        for connection in list(self._connections):
            connection.close(SHUTDOWN)

    def _accept(
        self, loop: asyncio.AbstractEventLoop, listening: socket.socket, endpoint: Endpoint
    ) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                # The listener stays readable: without a pause this turn would repeat at once.
                log.warning("connection refused: %s; %s", error.strerror, RAISE_OPEN_FILES)
                loop.remove_reader(listening.fileno())
                loop.call_later(1.0, self._listen_again, loop, listening, endpoint)
                return
            self._take(loop, sock, address[0], endpoint)
            wait_ms = self._rates.let_in(int(loop.time() * 1000))
            if wait_ms:
                loop.remove_reader(listening.fileno())
                loop.call_later(wait_ms / 1000, self._listen_again, loop, listening, endpoint)
                return

    def _listen_again(
        self, loop: asyncio.AbstractEventLoop, listening: socket.socket, endpoint: Endpoint
    ) -> None:
        if (listening, endpoint) in self._sockets:
            loop.add_reader(listening.fileno(), self._accept, loop, listening, endpoint)

    def _take(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        address: str,
        endpoint: Endpoint,
    ) -> None:
        if not (self._has_room(address) and self._has_descriptors(loop, sock, address)):
            sock.close()
            return
        wait_ms = self._rates.refuses_ms(address, int(loop.time() * 1000))
        if wait_ms:
            self._turn_away(loop, sock, address, wait_ms)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer_bytes)
        self._add(
            Connection(
                loop,
                sock,
                address,
                lambda made: self._open_session(endpoint, made),
                max_frame_bytes=self._limits.max_frame_bytes,
                buffers=self._buffers,
                disk=self._disk,
                on_close=self._forget,
            ),
            endpoint.listener,
        )

    def _has_room(self, address: str) -> bool:
        limits = self._limits
        per_address = limits.max_connections_per_ip_overrides.get(
            address, limits.max_connections_per_ip
        )
        if len(self._connections) >= limits.max_connections:
            self._refused(address, "max.connections")
            return False
        if self._by_address[address] >= per_address:
            self._refused(address, "max.connections.per.ip")
            return False
        return True

    def _has_descriptors(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: str
    ) -> bool:
        """Whether a connection leaves enough descriptors to the logs.

        Counted at most once per second, and not while many are free: a new descriptor is always the
        lowest free number.
        """
        most = process_resources.most_files()
        if sock.fileno() < most // 2:
            return True
        now_s = loop.time()
        if now_s >= self._count_again_s:
            self._count_again_s = now_s + COUNTED_EVERY_S
            self._descriptors = len(self._connections) + self._disk.files_left()
        if len(self._connections) < self._descriptors:
            return True
        self._refused(address, f"the limit of {most} open files (ulimit -n, LimitNOFILE=)")
        return False

    def _turn_away(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: str, wait_ms: int
    ) -> None:
        self._refused(address, "connection_creation_rate")
        if len(self._turned_away) >= TURNED_AWAY_AT_ONCE:
            sock.close()
            return
        self._turned_away.add(sock)

        def close() -> None:
            self._turned_away.discard(sock)
            sock.close()

        loop.call_later(wait_ms / 1000, close)

    def _refused(self, address: str, limit: str) -> None:
        """Log refusals at intervals only: a refused client may retry as fast as it can."""
        self._refusals += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_refusals_log_s:
            log.warning(
                "connection from %s refused: %s reached (%d refused since the last such line)",
                address,
                limit,
                self._refusals,
            )
            self._refusals = 0
            self._next_refusals_log_s = now_s + REFUSALS_LOG_INTERVAL_S

    def _admit(self, connection: StreamConnection, listener: str) -> bool:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        if not self._has_room(connection.address) or self._rates.refuses_ms(
            connection.address, now_ms
        ):
            return False
        self._add(connection, listener)
        return True

    def _add(self, connection: AnyConnection, listener: str) -> None:
        self._connections[connection] = listener
        self.accept_counts[listener] += 1
        self._by_address[connection.address] += 1

    def _forget(self, connection: AnyConnection, reason: str) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._begun.pop(connection, None)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        if not self._connections and self._empty is not None:
            self._empty.set()
        if reason and reason not in ("idle", SHUTDOWN):
            log.info("connection from %s closed: %s", connection.address, reason)


def _unusable(endpoint: Endpoint, error: OSError) -> OSError:
    reason = error.strerror or str(error)
    return OSError(error.errno, f"listener {endpoint} cannot be opened: {reason}")


def own_name() -> str:
    """Return the host name advertised if none is configured (Java: getCanonicalHostName)."""
    return socket.getfqdn()
