"""A plaintext connection: a non-blocking socket on the event loop's selector.

asyncio's transports are not used here because of their cost: compared with `data_received`, this
class moved 1.5 times the produce bytes on one connection and 1.4 times the fetch bytes, and
`loop.sendfile` alone takes 70 us per call.

    reading   one `recv_into` per event, into the conversation's buffer; a large frame is read
              exactly to its end
    writing   tried at once after every event; `add_writer` only after a short write.  Small parts
              are joined; a file range of up to COPY_BELOW_BYTES is read after its head, and both
              are sent by one call (+10 % on 16 KB fetches); larger ones go by sendfile after a
              head that was sent with MSG_MORE (+20 % on 1 MB fetches)
    fairness  at most TURN_BYTES per turn, else one 50 MB fetch delays small requests by 18 ms
    threads   none for request data: when a thread validated batches of 1 MB while the loop received
              and wrote others, four connections moved 1,200 MB/s instead of 1,450, at 0.83 CPU
              seconds per GB instead of 0.6, since the bytes left the core's cache twice
    cold      a range that is not in the page cache is read by a thread and sent from memory:
              sendfile would block the loop for as long as the disk takes
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable

from kserver.errors import ProtocolError
from kserver.network.conversation import Buffers, Conversation, Dispatch, Part
from kserver.network.throttle import Throttle
from kserver.world.disk import Disk, FileRange
from kserver.world.process_resources import monotonic_s

JOIN_BELOW_BYTES = 8 * 1024
COPY_BELOW_BYTES = 64 * 1024
SENDFILE_BYTES = 256 * 1024
TURN_BYTES = 512 * 1024
SHUTDOWN = "shutdown"
SHORT_FILE = "the log file is shorter than the response announced"

# One buffer for all connections: it is filled and sent without an await between.
_COPY = memoryview(bytearray(COPY_BELOW_BYTES))


class Connection:
    """A connection that owns its socket; `close()` may be called at any time, any number of
    times."""

    __slots__ = (
        "_closed",
        "_conversation",
        "_disk",
        "_fd",
        "_loop",
        "_on_close",
        "_reading",
        "_socket",
        "_throttle",
        "_warming",
        "_writing",
        "address",
        "last_active_s",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        address: str,
        open_dispatch: Callable[[Connection], Dispatch],
        *,
        max_frame_bytes: int,
        buffers: Buffers,
        disk: Disk,
        on_close: Callable[[Connection, str], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._disk = disk
        self._on_close = on_close
        self._closed = False
        self._reading = True
        self._writing = False
        self._warming = False
        self.address = address
        self.last_active_s = loop.time()
        self._conversation = Conversation(
            open_dispatch(self),
            max_frame_bytes=max_frame_bytes,
            buffers=buffers,
            wake=self._woken,
        )
        self._throttle = Throttle(loop, self._conversation, self._go_on)
        loop.add_reader(self._fd, self._readable)

    def receiving(self) -> tuple[int, int]:
        """Return the number of complete requests, and the bytes received of the next one."""
        return self._conversation.request_count, self._conversation.partial_bytes

    def finish(self) -> None:
        """Answer the dispatched requests, dispatch no more, then close."""
        self._conversation.finishing = True
        self._go_on()

    def throttle(self, for_ms: int) -> None:
        """Dispatch no requests for `for_ms`; responses are still sent (KIP-219)."""
        if not self._closed:
            self.last_active_s = self._throttle.hold(for_ms)

    def close(self, reason: str = "") -> None:
        if self._closed:
            return
        self._closed = True
        self._throttle.cancel()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._conversation.close()
        self._socket.close()
        self._on_close(self, reason)

    def _readable(self) -> None:
        conversation = self._conversation
        if not conversation.wants_input:
            # The memory limit was reached by other connections meanwhile.
            self._pause_or_resume()
            return
        try:
            size = self._socket.recv_into(conversation.writable())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error))
            return
        if size == 0:
            self.close()
            return
        self.last_active_s = monotonic_s()
        try:
            conversation.received(size)
        except ProtocolError as error:
            self.close(str(error))
            return
        if conversation.out and not self._writing:
            self._send()
        if conversation.held_back or not conversation.wants_input:
            self._go_on()

    def _woken(self) -> None:
        """Send responses that were completed outside of a read, by a handler's task or a
        purgatory."""
        if not self._writing:
            self._send()
        self._go_on()

    def _go_on(self) -> None:
        """Dispatch frames that were held back, and send their responses."""
        if self._closed:
            return
        try:
            self._conversation.sent()
        except ProtocolError as error:
            self.close(str(error))
            return
        if self._conversation.out and not self._writing:
            self._send()
        if self._conversation.is_finished:
            self.close(SHUTDOWN)
        if not self._closed:
            self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        wants = self._conversation.wants_input
        if wants is self._reading or self._closed:
            return
        self._reading = wants
        if wants:
            self._loop.add_reader(self._fd, self._readable)
        else:
            self._loop.remove_reader(self._fd)

    def _writable(self) -> None:
        self.last_active_s = monotonic_s()
        self._send()
        self._go_on()

    def _send(self) -> None:
        """Send as much as possible this turn; afterwards `_writing` is True if some is left."""
        if self._warming:
            return
        conversation = self._conversation
        out = conversation.out
        remaining = TURN_BYTES
        try:
            while out and remaining > 0:
                part = out[0]
                if isinstance(part, bytes):
                    sent = self._send_bytes(part)
                elif part.size <= JOIN_BELOW_BYTES:
                    data = _cached(part)
                    if data is None:
                        self._warm(part)
                        break
                    out[0] = data
                    continue
                else:
                    sent = self._send_file(part)
                if sent < 0:
                    break
                conversation.out_bytes -= sent
                remaining -= sent
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(str(error))
            return
        waits = bool(out) and not self._warming
        if waits is not self._writing:
            self._writing = waits
            if waits:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _send_bytes(self, part: bytes) -> int:
        out = self._conversation.out
        flags = 0
        part_count = 1
        if len(out) > 1:
            follower = out[1]
            if isinstance(follower, FileRange) and follower.size > JOIN_BELOW_BYTES:
                if len(part) + follower.size <= COPY_BELOW_BYTES:
                    sent = self._send_copied(part, follower)
                    if sent:
                        return sent
                flags = socket.MSG_MORE
            else:
                part, part_count = joined(out)
        sent = self._socket.send(part, flags)
        for _ in range(part_count):
            out.popleft()
        if sent < len(part):
            out.appendleft(part[sent:])
        return sent

    def _send_copied(self, head: bytes, part: FileRange) -> int:
        """Send both from memory; return 0 if the page cache does not hold all of the file range."""
        start = len(head)
        end = start + part.size
        _COPY[:start] = head
        if not part.file.read_cached_into(part.position, _COPY[start:end]):
            return 0
        sent = self._socket.send(_COPY[:end])
        out = self._conversation.out
        out.popleft()
        if sent == end:
            out.popleft()
        elif sent < start:
            out.appendleft(head[sent:])
        else:
            done = sent - start
            out[0] = FileRange(part.file, part.position + done, part.size - done)
        return sent

    def _send_file(self, part: FileRange) -> int:
        size = min(part.size, SENDFILE_BYTES)
        file = part.file
        # Checking the last byte suffices: pages are read ahead, and dropped, from the front.
        if file.read_cached(part.position + size - 1, 1) is None:
            self._warm(FileRange(file, part.position, size))
            return -1
        sent = os.sendfile(self._fd, file.fileno(), part.position, size)
        if sent == 0:
            raise OSError(SHORT_FILE)
        out = self._conversation.out
        if sent == part.size:
            out.popleft()
        else:
            out[0] = FileRange(file, part.position + sent, part.size - sent)
        return sent

    def _warm(self, part: FileRange) -> None:
        """Read the cold range at the head of the queue in a thread, then continue sending."""
        self._warming = True
        task = self._loop.create_task(self._disk.offload(part.read))
        task.add_done_callback(self._warmed)

    def _warmed(self, task: asyncio.Task[bytes]) -> None:
        self._warming = False
        if self._closed or task.cancelled():
            return
        if error := task.exception():
            self.close(str(error))
            return
        out, data = self._conversation.out, task.result()
        cold = out.popleft()
        assert isinstance(cold, FileRange)
        if len(data) < min(cold.size, SENDFILE_BYTES):
            self.close(SHORT_FILE)
            return
        # Send from memory, since the page cache may have dropped the range again.
        if remaining := cold.size - len(data):
            out.appendleft(FileRange(cold.file, cold.position + len(data), remaining))
        out.appendleft(data)
        self._writable()


def joined(out: Iterable[Part]) -> tuple[bytes, int]:
    """Return the small parts at the head of the queue as one piece, and their number: 0 if the
    first one is a file range that is large or not in memory. Raises OSError for a short file.
    """
    parts: list[bytes] = []
    size = 0
    for part in out:
        if isinstance(part, FileRange):
            if part.size > JOIN_BELOW_BYTES:
                break
            data = _cached(part)
            if data is None:
                break
            part = data
        parts.append(part)
        size += len(part)
        if size >= SENDFILE_BYTES:
            break
    return b"".join(parts), len(parts)


def _cached(part: FileRange) -> bytes | None:
    data = part.file.read_cached(part.position, part.size)
    if data is not None and len(data) < part.size:
        raise OSError(SHORT_FILE)
    return data
