"""Requests and responses of one connection, without its socket.

Pure: bytes come in, frames go to `dispatch`, responses come out in the order of their requests.
Two classes drive it: `network.connection` over a plain socket, `network.stream` over an asyncio
transport (the simulated network; TLS later).

    state      meaning                                        ends when
    open       frames are dispatched as they arrive
    muted      an exclusive response is pending (a parked     that response completes
               fetch, a request that runs as a task)
    throttled  its client exceeded a quota, and `throttle`    the connection's timer ends
               of the connection was called
    full       more than OUT_LIMIT_BYTES wait to be sent,     the connection has sent them
               or PENDING_LIMIT responses are pending
    finishing  the broker stops: dispatched requests are      all of them are answered, except an
               answered, nothing more is dispatched           exclusive one
    closed     nothing is dispatched, nothing is sent         never

A frame larger than the buffer is read into a buffer of its own, which gets memory page by page as
bytes arrive.  If all such frames together hold queued.max.request.bytes, only the one that began
first is read on until others are answered, so that some frame always completes.

Bytes that arrive in another state than `open` wait in the receive buffer, and when that is full in
the client's socket, which is the backpressure: a client that does not read its responses, or sends
faster than it is served, takes no memory except that buffer.  Reading continues until then, which
detects a client that disconnects while a response is pending.

A frame passed to `dispatch` is a view of the receive buffer, valid only until `dispatch` returns: a
handler must copy data that it keeps.  A response is one of

    bytes                     the whole response
    list of bytes|FileRange   response head and the file ranges of its records, in order
    Pending                   completes later; keeps its place
    None                      no response at all (Produce with acks=0)
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TypeAlias

from kserver.errors import ProtocolError
from kserver.world.disk import FileRange

Part: TypeAlias = bytes | FileRange
ResponseData: TypeAlias = bytes | list[Part]

_LENGTH = struct.Struct(">i")
BUFFER_BYTES = 64 * 1024
OUT_LIMIT_BYTES = 1 << 20
PENDING_LIMIT = 128


class Pending:
    """A response that is not complete yet.

    `exclusive` mutes the connection until it is: the next request is not dispatched before.
    """

    __slots__ = ("_wake", "data", "exclusive", "on_abandoned", "on_complete", "ready")

    def __init__(self, *, exclusive: bool) -> None:
        self.exclusive = exclusive
        self.ready = False
        self.data: ResponseData | None = None
        self.on_complete: Callable[[ResponseData | None], None] | None = None
        """Called with the response when it completes."""
        self.on_abandoned: Callable[[], None] | None = None
        """Called if the connection closes first; the response is no longer needed."""
        self._wake: Callable[[], None] | None = None

    def complete(self, data: ResponseData | None) -> None:
        assert not self.ready
        self.data, self.ready = data, True
        on_complete, wake = self.on_complete, self._wake
        # What waited refers to this object: without the cycle no garbage collection is needed.
        self.on_complete = self.on_abandoned = self._wake = None
        if on_complete is not None:
            on_complete(data)
        if wake is not None:
            wake()

    def when_ready(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def abandon(self) -> None:
        on_abandoned = self.on_abandoned
        self.on_abandoned = self._wake = None
        if on_abandoned is not None and not self.ready:
            on_abandoned()


Response: TypeAlias = ResponseData | Pending | None
Dispatch: TypeAlias = Callable[[memoryview], Response]


def _memory(size: int) -> mmap:
    """Return anonymous memory, which the kernel provides page by page.

    A new connection, or a claimed frame length, takes only address space; only bytes that arrive
    take memory.  Raises ProtocolError if there is none.
    """
    try:
        return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    except OSError as error:
        raise ProtocolError(f"no memory for a request of {size} bytes: {error}") from error


class Buffers:
    """Receive buffers for frames above BUFFER_BYTES.

    Some are kept for reuse: allocating and freeing the pages of 1 MB takes longer than receiving
    it.

    `limit_bytes` (-1 for none) is the total of unanswered bytes of such frames, over all
    connections, above which only the frame that began first is read on.
    """

    SIZE_BYTES = 1 << 20
    KEPT = 8
    KEPT_SIZE_BYTES = 4 << 20

    def __init__(self, limit_bytes: int = -1) -> None:
        self._free: list[mmap] = []
        self._limit_bytes = limit_bytes
        self._receiving: dict[Conversation, None] = {}
        self.held_bytes = 0

    def begin(self, conversation: Conversation) -> None:
        """Register a large frame that is being received."""
        self._receiving[conversation] = None

    def may_receive(self, conversation: Conversation) -> bool:
        if self._limit_bytes < 0 or self.held_bytes < self._limit_bytes:
            return True
        return next(iter(self._receiving), conversation) is conversation

    def end(self, conversation: Conversation) -> None:
        """Unregister a frame that is complete or abandoned; another may now be the first."""
        if conversation in self._receiving:
            del self._receiving[conversation]
            self._resume()

    def release(self, size: int) -> None:
        """Subtract the bytes of an answered frame."""
        self.held_bytes -= size
        self._resume()

    def _resume(self) -> None:
        if self._limit_bytes >= 0:
            for conversation in list(self._receiving):
                if self.may_receive(conversation):
                    conversation.wake()

    def borrow(self, size: int) -> mmap:
        """Return a buffer of at least `size` bytes.  Raises ProtocolError."""
        for at, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(at)
        # An eighth of slack: batches of "1 MB" come in requests a little larger.
        return _memory(max(size, self.SIZE_BYTES + (self.SIZE_BYTES >> 3)))

    def give_back(self, buffer: mmap) -> None:
        if len(buffer) <= self.KEPT_SIZE_BYTES and len(self._free) < self.KEPT:
            self._free.append(buffer)


class Conversation:
    """See the table above.  `wake` is called when a response completes outside of `received`."""

    __slots__ = (
        "_buffers",
        "_dispatch",
        "_end",
        "_held_bytes",
        "_large",
        "_large_end",
        "_large_view",
        "_max_frame_bytes",
        "_pending",
        "_start",
        "_view",
        "_wake",
        "closed",
        "finishing",
        "held_back",
        "muted",
        "out",
        "out_bytes",
        "request_count",
        "throttled",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        max_frame_bytes: int,
        buffers: Buffers,
        wake: Callable[[], None],
    ) -> None:
        self._dispatch = dispatch
        self._max_frame_bytes = max_frame_bytes
        self._buffers = buffers
        self._wake = wake
        self._view = memoryview(_memory(BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._large: mmap | None = None
        self._large_view = memoryview(b"")
        self._large_end = 0
        self._held_bytes = 0
        """Bytes counted in the shared buffers for an unanswered large frame."""
        self._pending: deque[Pending | ResponseData] = deque()
        self.out: deque[Part] = deque()
        self.out_bytes = 0
        self.muted = False
        self.held_back = False
        """Whether the buffer has frames that may not be dispatched yet."""
        self.throttled = False
        self.finishing = False
        self.closed = False
        self.request_count = 0
        """Number of dispatched frames."""

    @property
    def wants_input(self) -> bool:
        """Whether the connection should read more bytes."""
        if self._large is None:
            return self._end < BUFFER_BYTES and not self.closed
        return self._may_dispatch and self._buffers.may_receive(self)

    @property
    def partial_bytes(self) -> int:
        """Bytes received of an incomplete frame; 0 while it could not be dispatched anyway."""
        if self._large is not None:
            return 4 + self._large_end if self._may_dispatch else 0
        return 0 if self.held_back else self._end - self._start

    @property
    def _may_dispatch(self) -> bool:
        return not (
            self.muted
            or self.throttled
            or self.closed
            or self.finishing
            or self.out_bytes > OUT_LIMIT_BYTES
            or len(self._pending) >= PENDING_LIMIT
        )

    def writable(self) -> memoryview:
        """Return the buffer for the next bytes from the socket; never empty while `wants_input`."""
        if self._large is not None:
            return self._large_view[self._large_end :]
        if self._start == self._end:
            self._start = self._end = 0
            return self._view
        return self._view[self._end :]

    def received(self, size: int) -> None:
        """Process `size` bytes in `writable()`.  Raises ProtocolError: the connection must be
        closed."""
        if self._large is not None:
            self._large_end += size
            self._held_bytes += size
            self._buffers.held_bytes += size
            if self._large_end == len(self._large_view):
                self._take_large()
                self._advance()
            return
        self._end += size
        self._advance()

    def sent(self) -> None:
        """Continue with frames that were held back, after some of `out` was sent."""
        if self.held_back and self._may_dispatch:
            self.held_back = False
            self._advance()

    @property
    def is_finished(self) -> bool:
        """Whether `finishing` is set, and everything is answered and sent."""
        return (
            self.finishing
            and not self.out
            and all(
                isinstance(response, Pending) and response.exclusive for response in self._pending
            )
        )

    def close(self) -> None:
        self.closed = True
        abandoned = list(self._pending)
        self._pending.clear()
        for response in abandoned:
            if isinstance(response, Pending):
                response.abandon()
        self.out.clear()
        self.out_bytes = 0
        self._large_view = memoryview(b"")
        self._large = None
        self._buffers.end(self)
        self._release()

    def wake(self) -> None:
        """Let the connection read on."""
        self._wake()

    def _release(self) -> None:
        if self._held_bytes:
            size, self._held_bytes = self._held_bytes, 0
            self._buffers.release(size)

    def _advance(self) -> None:
        """Dispatch the whole frames in the buffer, and make room for the rest of a partial one."""
        view = self._view
        while self._end - self._start >= 4:
            if not self._may_dispatch:
                self.held_back = True
                return
            start = self._start
            (size,) = _LENGTH.unpack_from(view, start)
            if size < 0 or size > self._max_frame_bytes:
                raise ProtocolError(
                    f"request of {size} bytes, allowed are 0 to {self._max_frame_bytes}"
                    " (socket.request.max.bytes)"
                )
            stop = start + 4 + size
            if stop > self._end:
                if size + 4 > BUFFER_BYTES:
                    self._begin_large(size)
                elif stop > BUFFER_BYTES:
                    self._move_to_front()
                return
            self._start = stop
            self.request_count += 1
            self._add_response(self._dispatch(view[start + 4 : stop]))
        if self._end == BUFFER_BYTES:
            self._move_to_front()

    def _move_to_front(self) -> None:
        rest = self._end - self._start
        self._view[:rest] = self._view[self._start : self._end]
        self._start, self._end = 0, rest

    def _begin_large(self, size: int) -> None:
        rest = self._end - self._start - 4
        self._large = self._buffers.borrow(size)
        self._large_view = memoryview(self._large)[:size]
        self._large_view[:rest] = self._view[self._start + 4 : self._end]
        self._large_end = rest
        self._held_bytes += rest
        self._buffers.held_bytes += rest
        self._buffers.begin(self)
        self._start = self._end = 0

    def _take_large(self) -> None:
        frame, buffer = self._large_view, self._large
        assert buffer is not None
        self._large, self._large_view = None, memoryview(b"")
        self._buffers.end(self)
        self.request_count += 1
        self._add_response(self._dispatch(frame))
        self._buffers.give_back(buffer)
        if not self.muted:
            self._release()

    def _add_response(self, response: Response) -> None:
        if response.__class__ is Pending:
            assert isinstance(response, Pending)
            if not response.ready:
                self.muted = response.exclusive
                self._pending.append(response)
                response.when_ready(self._completed)
                return
            response = response.data
        assert not isinstance(response, Pending)
        if response is None:
            return
        if self._pending:
            self._pending.append(response)
        else:
            self._put(response)

    def _put(self, response: ResponseData) -> None:
        if isinstance(response, bytes):
            self.out.append(response)
            self.out_bytes += len(response)
            return
        for part in response:
            self.out.append(part)
            self.out_bytes += len(part) if isinstance(part, bytes) else part.size

    def _completed(self) -> None:
        """Send all responses at the head of the queue that are ready, after a pending one
        completed."""
        if self.closed:
            return
        pending = self._pending
        while pending:
            head = pending[0]
            if isinstance(head, Pending):
                if not head.ready:
                    break
                if head.exclusive:
                    self.muted = False
                    self._release()
                if head.data is not None:
                    self._put(head.data)
            else:
                self._put(head)
            pending.popleft()
        self._wake()
