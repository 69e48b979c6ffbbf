"""Peer: one connection to another broker, with pipelined requests and agreed versions.

    peer = await Peer.connect("localhost", 9092, PeerOptions(client_id="k"))
    new = versions.request(ApiKey.METADATA, peer.version(ApiKey.METADATA))
    answer = await peer.call(new(topics=None))

A connection opens with ApiVersions (KIP-35, KIP-511).  A broker responds in the order of the
requests, so the requests in flight form a queue, and one timer watches its head.  On any failure
(the broker closes, is late, or sends malformed bytes) the connection ends, and every request in
flight fails with the same error.  The caller has to reconnect.

Errors: OSError (including Disconnected and TimeoutError) if the connection failed, ProtocolError
for malformed bytes, KafkaError if no version suits both ends.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from kserver import __version__
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.wire import codec, versions
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import versions_of

Buffer: TypeAlias = bytes | bytearray | memoryview


# One read takes up to this size; smaller responses are cut out of it.
READ_BYTES = 1 << 16
# Memory for a longer response is allocated at once up to this size, and beyond only as its bytes
# arrive, so that a false length costs the sender bandwidth, but not this process memory.
TRUSTED_BYTES = 1 << 22
# Smaller parts are joined into one write; larger ones are written separately.
JOIN_BYTES = 1 << 15
# glibc returns freed memory at once, and each of its pages costs a fault when it is allocated
# again: three quarters of the time to receive 1 MB.  Once a block of this size was freed,
# untouched, it keeps twice as much (mallopt(3): M_MMAP_THRESHOLD adjusts itself, up to 32 MB).
KEPT_BYTES = 31 << 20

_LENGTH = struct.Struct(">i")
_REQUEST_HEAD = struct.Struct(">ihhih")
_RESPONSE_HEAD = struct.Struct(">ih")


@functools.cache
def _teach_malloc() -> None:
    """Run once: a second block of this size would be in malloc's kept memory, and would be
    zeroed."""
    bytes(KEPT_BYTES)


ANY_VERSION = 1 << 15
"""Higher than any version."""


class Disconnected(ConnectionError):
    """The connection ended before the response; whether the request took effect is unknown."""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """Limits of a connection: times in milliseconds, sizes in bytes.

    A buffer size of -1 leaves the socket's default.
    """

    client_id: str = "k"
    setup_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    max_idle_ms: int = 540_000
    max_in_flight: int = 100
    max_response_bytes: int = 1 << 28
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


@dataclass(slots=True)
class _Call:
    correlation_id: int
    api_key: int
    deadline: float
    response: asyncio.Future[memoryview]


async def addresses_of(host: str) -> list[str]:
    """Return the addresses of a host name.  Raises OSError."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in infos]


class Peer(asyncio.BufferedProtocol):
    """One connection, open from `connect` until `closed`.

    `versions` maps the API keys that the broker offers to its (lowest, highest) version,
    `features` the cluster's finalized features to their levels, as of `features_epoch` (KIP-584).
    """

    def __init__(self, host: str, port: int, options: PeerOptions) -> None:
        self.host = host
        self.port = port
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.closed: asyncio.Future[None]
        self._options = options
        self._client_id = options.client_id.encode()
        self._loop = asyncio.get_running_loop()
        _teach_malloc()
        self.closed = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._calls: deque[_Call] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._correlation_id = 0
        self._is_paused = False
        self._failure: Exception | None = None
        self._used_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._read = memoryview(bytearray(READ_BYTES))
        self._start = self._end = 0
        self._large: bytearray | None = None
        self._large_size = self._large_filled = 0

    @classmethod
    async def connect(cls, host: str, port: int, options: PeerOptions | None = None) -> Peer:
        """Connect to the first of the host's addresses that answers, and agree on versions."""
        options = options or PeerOptions()
        peer = cls(host, port, options)
        try:
            async with asyncio.timeout(options.setup_timeout_ms / 1000):
                await peer._loop.create_connection(lambda: peer, host, port)
                await peer._agree_on_versions()
        except TimeoutError as error:
            peer._fail(error)
            raise TimeoutError(
                f"{peer} did not respond within {options.setup_timeout_ms} ms"
            ) from error
        except BaseException:
            peer.close()
            raise
        return peer

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    # Requests

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._failure is None

    @property
    def timed_out(self) -> bool:
        """Whether the connection has ended because a response was late."""
        return isinstance(self._failure, TimeoutError)

    @property
    def is_writable(self) -> bool:
        return not self._is_paused

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return len(self._calls)

    @property
    def waiting_s(self) -> float:
        """Age of the oldest request in flight, in seconds; 0 if there is none."""
        if not self._calls:
            return 0.0
        sent_s = self._calls[0].deadline - self._options.request_timeout_ms / 1000
        return self._loop.time() - sent_s

    def version(self, api_key: int, at_most: int = ANY_VERSION) -> int:
        """Return the highest version of an API that both ends support.  Raises KafkaError if
        none."""
        lowest, highest = self.versions.get(api_key, (0, -1))
        ours = versions_of(api_key)
        best = min(highest, ours[1], at_most)
        if best < max(lowest, ours[0]):
            offer = f"only versions {lowest} to {highest} of" if highest >= 0 else "no"
            raise KafkaError(
                ErrorCode.unsupported_version, f"{self} has {offer} {codec.api_name(api_key)}"
            )
        return best

    async def call(self, request: Any) -> Any:
        """Send a kio request and wait for its response; waits first if too many requests are in
        flight."""
        api_key, version = request.__api_key__, request.__version__
        while len(self._calls) >= self._options.max_in_flight and self.is_open:
            await self._turn()
        correlation_id = self._next_correlation_id()
        frame = codec.write_request(request, correlation_id, self._options.client_id)
        response = await self._send(api_key, correlation_id, (frame,))
        return codec.read_response(api_key, version, response)[1]

    def send(
        self, api_key: int, version: int, body: Sequence[Buffer]
    ) -> asyncio.Future[memoryview]:
        """Send an encoded body; the response is its frame, starting with the correlation id.

        Does not wait, and does not limit the requests in flight: both are up to the caller.
        """
        correlation_id = self._next_correlation_id()
        head = self._head(api_key, version, correlation_id, body)
        return self._send(api_key, correlation_id, (head, *body))

    def post(self, api_key: int, version: int, body: Sequence[Buffer]) -> None:
        """Send a request that has no response (Produce with acks=0)."""
        self._write((self._head(api_key, version, self._next_correlation_id(), body), *body))

    async def writable(self) -> None:
        """Wait until the socket accepts more; only needed for `post`, as others wait for
        responses."""
        while self._is_paused and self.is_open:
            await self._turn()

    async def drained(self) -> None:
        """Wait until the socket has accepted everything written, or the connection has ended.

        `close` drops the rest, so requests sent by `post` would be lost.
        """
        if self._transport is None or self._failure is not None:
            return
        self._transport.set_write_buffer_limits(high=0)
        await self.writable()
        self._transport.set_write_buffer_limits()

    def close(self) -> None:
        """End the connection; requests in flight fail with Disconnected."""
        self._fail(Disconnected(f"the connection to {self} was closed"))

    # Writing

    async def _turn(self) -> None:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake()

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _head(
        self, api_key: int, version: int, correlation_id: int, body: Sequence[Buffer]
    ) -> bytes:
        client_id = self._client_id
        tags = b"\0" if codec.is_flexible(api_key, version) else b""
        size = 10 + len(client_id) + len(tags) + sum(map(len, body))
        fixed = _REQUEST_HEAD.pack(size, api_key, version, correlation_id, len(client_id))
        return fixed + client_id + tags

    def _send(
        self, api_key: int, correlation_id: int, parts: Sequence[Buffer]
    ) -> asyncio.Future[memoryview]:
        self._write(parts)
        deadline = self._used_at + self._options.request_timeout_ms / 1000
        response = self._loop.create_future()
        self._calls.append(_Call(correlation_id, api_key, deadline, response))
        if self._timer is None:
            self._watch_until(deadline)
        return response

    def _write(self, parts: Sequence[Buffer]) -> None:
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None, "connect() hands out connected peers only"
        self._used_at = self._loop.time()
        if sum(map(len, parts)) <= JOIN_BYTES:
            self._transport.write(b"".join(parts))
            return
        for part in parts:
            self._transport.write(part)

    # Reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._failure is not None:
            self._transport.abort()
            return
        raw = transport.get_extra_info("socket")
        for option, size in (
            (socket.SO_SNDBUF, self._options.send_buffer_bytes),
            (socket.SO_RCVBUF, self._options.receive_buffer_bytes),
        ):
            if size > 0 and raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, option, size)

    def get_buffer(self, sizehint: int) -> memoryview:
        if (large := self._large) is None:
            return self._read[self._end :]
        filled = self._large_filled
        if filled == len(large):
            large += bytes(min(self._large_size - filled, filled))
        return memoryview(large)[filled:]

    def buffer_updated(self, nbytes: int) -> None:
        self._used_at = self._loop.time()
        try:
            if self._large is None:
                self._end += nbytes
                self._cut_frames()
            else:
                self._large_filled += nbytes
                if self._large_filled == self._large_size:
                    frame = memoryview(self._large).toreadonly()
                    self._large = None
                    self._on_response(frame)
        except ProtocolError as error:
            self._fail(error)

    def eof_received(self) -> None:
        self._fail(Disconnected(f"{self} closed the connection"))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(Disconnected(f"the connection to {self} was lost: {error or 'closed'}"))
        if not self.closed.done():
            self.closed.set_result(None)

    def _cut_frames(self) -> None:
        """Handle every complete frame in the read buffer, and make room for the next."""
        read, start, end = self._read, self._start, self._end
        while end - start >= 4:
            (size,) = _LENGTH.unpack_from(read, start)
            if not 4 <= size <= self._options.max_response_bytes:
                raise ProtocolError(
                    f"{self} announced a response of {size} bytes"
                    f" (limit {self._options.max_response_bytes}):"
                    " check that it is a Kafka listener"
                )
            if end - start - 4 < size:
                if size + 4 > READ_BYTES:
                    self._start_large(size, read[start + 4 : end])
                    start = end
                break
            frame = memoryview(bytes(read[start + 4 : start + 4 + size]))
            start += 4 + size
            self._on_response(frame)
        # Copied through bytes: the two ranges may overlap.
        read[: end - start] = bytes(read[start:end])
        self._start, self._end = 0, end - start

    def _start_large(self, size: int, first: memoryview) -> None:
        large = bytearray(min(size, TRUSTED_BYTES))
        large[: len(first)] = first
        self._large, self._large_size, self._large_filled = large, size, len(first)

    def _on_response(self, frame: memoryview) -> None:
        if not self._calls:
            raise ProtocolError(f"{self} sent a response without a request")
        call = self._calls[0]
        (correlation_id,) = _LENGTH.unpack_from(frame)
        if correlation_id != call.correlation_id:
            raise ProtocolError(
                f"{self} answered request {correlation_id} before {call.correlation_id}"
            )
        self._calls.popleft()
        if not call.response.done():
            call.response.set_result(frame)
        self._wake()

    # Closing

    def _fail(self, error: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif not self.closed.done():
            self.closed.set_result(None)
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.response.done():
                call.response.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _watch_until(self, deadline: float) -> None:
        """Set the timer for `deadline` or earlier, as an earlier request may be late or the
        connection idle."""
        now = self._loop.time()
        soonest_ms = min(self._options.request_timeout_ms, self._options.max_idle_ms)
        self._timer = self._loop.call_at(min(deadline, now + soonest_ms / 1000), self._watch)

    def _watch(self) -> None:
        """Timer: fail if the oldest request is late, close if the connection is idle for too
        long."""
        now = self._loop.time()
        if self._calls:
            call = self._calls[0]
            if call.deadline <= now:
                name = codec.api_name(call.api_key)
                limit = self._options.request_timeout_ms
                self._fail(TimeoutError(f"{self} did not respond to {name} within {limit} ms"))
                return
            self._watch_until(call.deadline)
            return
        deadline = self._used_at + self._options.max_idle_ms / 1000
        if deadline <= now:
            self.close()
            return
        self._watch_until(deadline)

    # Versions

    async def _agree_on_versions(self) -> None:
        """Send ApiVersions in the newest version; a broker that does not know it responds in v0
        with those that it supports."""
        version = versions_of(ApiKey.API_VERSIONS)[1]
        while True:
            new = versions.request(ApiKey.API_VERSIONS, version)
            request = new(client_software_name="k", client_software_version=__version__)
            correlation_id = self._next_correlation_id()
            frame = codec.write_request(request, correlation_id, self._options.client_id)
            response = await self._send(ApiKey.API_VERSIONS, correlation_id, (frame,))
            if len(response) < _RESPONSE_HEAD.size:
                raise ProtocolError(f"{self} sent a truncated ApiVersions response")
            code = _RESPONSE_HEAD.unpack_from(response)[1]
            unsupported = code == ErrorCode.unsupported_version
            _, entity = codec.read_response(
                ApiKey.API_VERSIONS, 0 if unsupported else version, response
            )
            offered = {k.api_key: (k.min_version, k.max_version) for k in entity.api_keys}
            if not unsupported:
                break
            lower = min(offered.get(ApiKey.API_VERSIONS, (0, 0))[1], version - 1)
            if lower < 0:
                raise ProtocolError(f"{self} refuses ApiVersions in every version")
            version = lower
        if entity.error_code != ErrorCode.none:
            raise KafkaError(entity.error_code, f"{self} refuses ApiVersions")
        self.versions = offered
        finalized = getattr(entity, "finalized_features", ())
        self.features = {feature.name: feature.max_version_level for feature in finalized}
        self.features_epoch = getattr(entity, "finalized_features_epoch", -1)
