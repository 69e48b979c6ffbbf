"""The network of a simulation: hosts by name, ordered connections with seeded delays, cuts.

Code runs on the host that `with host("broker-1"):` names. So do the tasks that it starts, the
servers' protocols, and all their callbacks. A connection behaves as TCP seen through asyncio's
transports, for `Protocol` and `BufferedProtocol`: bytes arrive in order, late, and cut into other
pieces than they were written in; a full pipe calls `pause_writing`.

    cut(a, b), heal(a, b)   bytes and connection attempts between two hosts wait until it is healed
    bind(a, port)           connections before a listens there wait, as in a kernel's backlog
    cut_one_way(a, b)       packets from a do not reach b; no connections either way
    slow(a, b, 0.2)         bytes between the two take that many seconds in the mean
    refuse(a, b)            a accepts no connections, from b or from any host, until accept(a, b)
    reset(a, b)             their connections break, at both ends
    kill(a)                 a's process has died: its ends are silent, the other ends see a reset
    power_off(a), power_on(a)   the same, and the other ends see nothing until the machine is back
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import errno
import os
import zlib
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.loop import SimLoop

KEY_BYTES = 6
"""Bytes of a request with its length and API key."""
MEAN_DELAY_S = 0.0005
SPLIT_CHANCE = 0.1
HIGH_WATER_BYTES = 64 * 1024
CONNECT_RETRIES_S = (1, 2, 4, 8, 16, 32, 64)
"""Seconds at which TCP repeats the first segment of a connection without a response."""

HOST: contextvars.ContextVar[str] = contextvars.ContextVar("host", default="client")
_HERE = frozenset({None, "", "0.0.0.0", "::", "127.0.0.1", "localhost"})


@contextlib.contextmanager
def host(name: str) -> Iterator[None]:
    """Run all that is started inside on this host."""
    token = HOST.set(name)
    try:
        yield
    finally:
        HOST.reset(token)


class Network:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._bound: dict[tuple[str, int], asyncio.Event] = {}
        self._transports: dict[SimTransport, None] = {}
        self._cuts: set[tuple[str, str]] = set()
        """Pairs of sender and receiver that are cut."""
        self._dark: set[str] = set()
        self._delays_s: dict[frozenset[str], float] = {}
        self._refused: set[tuple[str, str | None]] = set()
        self._ports = 40_000
        self.on_send: Callable[[str, str, bytes], None] | None = None
        """Called for all that is written with the sender, the receiver, and the first KEY_BYTES."""

    @contextlib.contextmanager
    def bind(self, name: str, port: int) -> Iterator[None]:
        bound = self._bound[name, port] = asyncio.Event()
        try:
            yield
        finally:
            if self._bound.get((name, port)) is bound:
                self._let_in((name, port))

    def _let_in(self, address: tuple[str, int]) -> None:
        """Let the waiting connections find a server, or none."""
        bound = self._bound.pop(address, None)
        if bound is not None:
            bound.set()

    def cut(self, a: str, b: str) -> None:
        self.loop.trace.add("cut", a, b)
        self._cuts |= {(a, b), (b, a)}

    def cut_one_way(self, a: str, b: str) -> None:
        self.loop.trace.add("cut one way", a, b)
        self._cuts.add((a, b))

    def heal(self, a: str, b: str) -> None:
        self.loop.trace.add("heal", a, b)
        self._cuts -= {(a, b), (b, a)}
        for transport in self._between(a, b):
            transport.wire.resume()
            transport.peer.wire.resume()  # the other end may have closed meanwhile

    def slow(self, a: str, b: str, mean_s: float | None) -> None:
        """Set the mean delay between two hosts; None: the default."""
        self.loop.trace.add("slow", a, b, mean_s)
        if mean_s is None:
            self._delays_s.pop(frozenset((a, b)), None)
        else:
            self._delays_s[frozenset((a, b))] = mean_s

    def reset(self, a: str, b: str) -> None:
        self.loop.trace.add("reset", a, b)
        for transport in self._between(a, b):
            transport.lose(_reset_error())

    def kill(self, name: str) -> None:
        self.loop.trace.add("kill", name)
        for address in [address for address in self._servers if address[0] == name]:
            del self._servers[address]
        for address in [address for address in self._bound if address[0] == name]:
            self._let_in(address)
        for transport in [t for t in self._transports if t.host == name]:
            transport.vanish()

    def power_off(self, name: str) -> None:
        self.kill(name)
        self._dark.add(name)

    def power_on(self, name: str) -> None:
        self._dark.discard(name)

    def close(self, name: str) -> None:
        """Reset the connections that other hosts opened to this one, at both ends."""
        for accepted in [t for t in self._transports if t.host == name and t.here in self._servers]:
            accepted.lose(_reset_error())
            accepted.peer.lose(_reset_error())

    def refuse(self, name: str, of: str | None = None) -> None:
        self.loop.trace.add("refuse", name, of)
        self._refused.add((name, of))

    def accept(self, name: str, of: str | None = None) -> None:
        self.loop.trace.add("accept", name, of)
        self._refused.discard((name, of))

    def is_cut(self, a: str, b: str) -> bool:
        """Return whether packets of `a` do not reach `b`."""
        return (a, b) in self._cuts or a in self._dark or b in self._dark

    def delay(self, a: str, b: str) -> float:
        mean_s = self._delays_s.get(frozenset((a, b)), MEAN_DELAY_S)
        return self.loop.random.expovariate(1 / mean_s)

    def listen(self, factory: Callable[[], Any], name: str | None, port: int) -> SimServer:
        address = (_resolve(name), port or self._free_port())
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = self._servers[address] = SimServer(self, factory, address)
        self._let_in(address)
        return server

    async def connect(
        self, factory: Callable[[], Any], name: str | None, port: int
    ) -> tuple[SimTransport, Any]:
        here, there = HOST.get(), _resolve(name)
        await asyncio.sleep(self.delay(here, there) + self.delay(there, here))
        for wait_s in CONNECT_RETRIES_S:
            if not self.is_cut(here, there) and not self.is_cut(there, here):
                break
            await asyncio.sleep(wait_s)
        else:
            raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {there}:{port}")
        bound = self._bound.get((there, port))
        if bound is not None and not self._is_refused(here, there):
            await bound.wait()
        server = self._servers.get((there, port))
        if server is None or self._is_refused(here, there):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {there}:{port}")
        self.loop.trace.add("connect", here, there, port)
        near, far = (here, self._free_port()), (there, port)
        client = SimTransport(self, factory(), near, far, contextvars.copy_context())
        context = server.context.copy()
        accepted = SimTransport(self, None, far, near, context)
        client.peer, accepted.peer = accepted, client
        self._transports |= {client: None, accepted: None}

        def accept() -> None:
            accepted.protocol = server.factory()
            accepted.protocol.connection_made(accepted)

        if self.loop.is_paused(there):  # the kernel of a paused host accepts for it
            self.loop.call_soon(accept, context=context)
        else:
            context.run(accept)
        client.protocol.connection_made(client)
        return client, client.protocol

    def _is_refused(self, here: str, there: str) -> bool:
        return bool(self._refused & {(there, None), (there, here)})

    def forget(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    def close_server(self, server: SimServer) -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    def connections(self, a: str, besides: Collection[str]) -> int:
        """Return the number of connection ends at `a`, not counting those to the hosts in
        `besides`.
        """
        return sum(t.host == a and t.peer.host not in besides for t in self._transports)

    def _between(self, a: str, b: str) -> list[SimTransport]:
        return [t for t in self._transports if {t.host, t.peer.host} == {a, b}]

    def _free_port(self) -> int:
        self._ports += 1
        return self._ports


def _resolve(name: str | None) -> str:
    return HOST.get() if name in _HERE else str(name)


class SimServer(asyncio.AbstractServer):
    def __init__(
        self, network: Network, factory: Callable[[], Any], address: tuple[str, int]
    ) -> None:
        self.address = address
        self.factory = factory
        self.context = contextvars.copy_context()
        self.sockets = (SimpleNamespace(getsockname=lambda: address),)
        self._network = network

    def close(self) -> None:
        self.sockets = ()
        self._network.close_server(self)

    def is_serving(self) -> bool:
        return bool(self.sockets)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        assert self.is_serving()

    async def serve_forever(self) -> None:
        try:
            await self._network.loop.create_future()
        finally:
            self.close()

    async def wait_closed(self) -> None:
        pass


class SimTransport(asyncio.Transport):
    """One end of a connection; `wire` carries its data to `peer`."""

    peer: SimTransport

    def __init__(
        self,
        network: Network,
        protocol: Any,
        here: tuple[str, int],
        there: tuple[str, int],
        context: contextvars.Context,
    ) -> None:
        super().__init__({"sockname": here, "peername": there})
        self.network = network
        self.protocol = protocol
        self.here = here
        self.host = here[0]
        self.context = context
        self.wire = _Wire(self)
        self.closing = False
        self.reading = True
        self._paused_writer = False
        self._limits = (HIGH_WATER_BYTES // 4, HIGH_WATER_BYTES)

    def write(self, data: Any) -> None:
        if self.closing or not data:
            return
        if self.network.on_send is not None:
            self.network.on_send(self.host, self.peer.host, bytes(data[:KEY_BYTES]))
        self.wire.send(bytes(data))
        self._pause_if_full()

    def _pause_if_full(self) -> None:
        if self.wire.size_bytes > self._limits[1] and not self._paused_writer:
            self._paused_writer = True
            self.protocol.pause_writing()

    def sent(self) -> None:
        """Handle that the wire has delivered some data to the other side."""
        if self._paused_writer and self.wire.size_bytes <= self._limits[0]:
            self._paused_writer = False
            if not self.closing:
                self.context.run(self.protocol.resume_writing)

    def receive(self, data: bytes) -> bytes:
        """Pass data to the protocol; return the rest that it could not take before it paused or
        closed.
        """
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return b""
        while data and self.reading and not self.closing:
            buffer = memoryview(self.protocol.get_buffer(len(data))).cast("B")
            taken = min(len(buffer), len(data))
            assert taken, "get_buffer returned no room"
            buffer[:taken] = data[:taken]
            del buffer
            self.protocol.buffer_updated(taken)
            data = data[taken:]
        return data

    def receive_eof(self) -> None:
        if not self.protocol.eof_received():
            self.close()

    def write_eof(self) -> None:
        self.wire.send(_EOF)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        """Close the connection after the buffered data was sent."""
        if not self.closing:
            self.wire.send(_EOF)
            self.lose(None)

    def abort(self) -> None:
        if not self.closing:
            self.vanish()
            self.network.loop.call_soon(self.protocol.connection_lost, None, context=self.context)

    def lose(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            self.network.forget(self)
            self.network.loop.call_soon(self.protocol.connection_lost, error, context=self.context)

    def vanish(self) -> None:
        """End without a callback to this end's protocol; the other end sees a reset."""
        self.closing = True
        self.network.forget(self)
        self.wire.reset()

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        if not self.reading:
            self.reading = True
            self.peer.wire.resume()

    def is_reading(self) -> bool:
        return self.reading and not self.closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = HIGH_WATER_BYTES if high is None else high
        self._limits = (high // 4 if low is None else low, high)
        self._pause_if_full()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def get_write_buffer_size(self) -> int:
        return self.wire.size_bytes

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol


_EOF = b""


class _Wire:
    """One direction: data that was written and has not arrived, with its earliest times
    of arrival.
    """

    def __init__(self, sender: SimTransport) -> None:
        self.size_bytes = 0
        self._sender = sender
        self._queue: collections.deque[tuple[float, bytes]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_due = 0.0

    def send(self, data: bytes) -> None:
        network = self._sender.network
        self._last_due = max(self._last_due, network.loop.time() + self._delay())
        self._queue.append((self._last_due, data))
        self.size_bytes += len(data)
        self.resume()

    def reset(self) -> None:
        """Send a reset, which overtakes all data under way."""
        network = self._sender.network
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = network.loop.call_later(
            self._delay(), self._deliver_reset, context=self._sender.peer.context
        )

    def _delay(self) -> float:
        return self._sender.network.delay(self._sender.host, self._sender.peer.host)

    def resume(self) -> None:
        if self._timer is None and self._queue:
            receiver = self._sender.peer
            self._timer = self._sender.network.loop.call_at(
                self._queue[0][0], self._deliver, context=receiver.context
            )

    def _deliver(self) -> None:
        self._timer = None
        sender, receiver, network = self._sender, self._sender.peer, self._sender.network
        if network.is_cut(sender.host, receiver.host) or not receiver.reading:
            return  # resumed by the heal or the reader
        due, data = self._queue.popleft()
        if receiver.closing:
            self.size_bytes -= len(data)
            if data:  # the receiver has closed: TCP answers with a reset
                network.loop.call_later(self._delay(), sender.lose, _reset_error())
        elif data == _EOF:
            network.loop.trace.add("eof", sender.host, receiver.host)
            receiver.receive_eof()
        else:
            if len(data) > 1 and network.loop.random.random() < SPLIT_CHANCE:
                size = network.loop.random.randrange(1, len(data))
                self._queue.appendleft((due, data[size:]))
                data = data[:size]
            network.loop.trace.add("bytes", sender.host, receiver.host, len(data), zlib.crc32(data))
            rest = receiver.receive(data)
            self.size_bytes -= len(data) - len(rest)
            if rest and not receiver.closing:
                self._queue.appendleft((due, rest))
        sender.sent()
        self.resume()

    def _deliver_reset(self) -> None:
        sender, receiver, network = self._sender, self._sender.peer, self._sender.network
        if network.is_cut(sender.host, receiver.host):
            self._timer = network.loop.call_later(1, self._deliver_reset)
        else:
            network.loop.trace.add("lost", sender.host, receiver.host)
            receiver.lose(_reset_error())


def _reset_error() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
