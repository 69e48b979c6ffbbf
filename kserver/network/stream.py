"""A connection over an asyncio transport, with the same conversation as `connection`.

For networks that are not plain sockets: the simulated one, and TLS later.  Large file ranges, which
`connection` sends with sendfile, are read and written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kserver.errors import ProtocolError
from kserver.network.connection import SHORT_FILE, SHUTDOWN, joined
from kserver.network.conversation import Buffers, Conversation, Dispatch
from kserver.network.throttle import Throttle
from kserver.world.disk import Disk, FileRange


class StreamConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_dispatch: Callable[[StreamConnection], Dispatch],
        *,
        max_frame_bytes: int,
        buffers: Buffers,
        disk: Disk,
        on_open: Callable[[StreamConnection], bool],
        on_close: Callable[[StreamConnection, str], None],
    ) -> None:
        self._loop = loop
        self._open_dispatch = open_dispatch
        self._max_frame_bytes = max_frame_bytes
        self._buffers = buffers
        self._disk = disk
        self._on_open = on_open
        self._on_close = on_close
        self._reason = ""
        self._full = False
        self._reading = True
        self._sender: asyncio.Task[None] | None = None
        self.last_active_s = loop.time()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._conversation = Conversation(
            self._open_dispatch(self),
            max_frame_bytes=self._max_frame_bytes,
            buffers=self._buffers,
            wake=self._woken,
        )
        self._throttle = Throttle(self._loop, self._conversation, self._send)
        if not self._on_open(self):
            self.close("too many connections")

    def connection_lost(self, error: Exception | None) -> None:
        self._conversation.close()
        self._throttle.cancel()
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None
        self._on_close(self, self._reason or (str(error) if error else ""))

    def receiving(self) -> tuple[int, int]:
        """Return the number of complete requests, and the bytes received of the next one."""
        return self._conversation.request_count, self._conversation.partial_bytes

    def finish(self) -> None:
        """Answer the dispatched requests, dispatch no more, then close."""
        self._conversation.finishing = True
        self._send()

    def throttle(self, for_ms: int) -> None:
        """Dispatch no requests for `for_ms`; responses are still sent (KIP-219)."""
        if not self._conversation.closed:
            self.last_active_s = self._throttle.hold(for_ms)

    def close(self, reason: str = "") -> None:
        self._reason = self._reason or reason
        self._conversation.close()
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._conversation.writable()

    def buffer_updated(self, size: int) -> None:
        self.last_active_s = self._loop.time()
        try:
            self._conversation.received(size)
        except ProtocolError as error:
            self.close(str(error))
            return
        self._send()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self.last_active_s = self._loop.time()
        self._full = False
        self._send()

    def _woken(self) -> None:
        self._send()

    def _send(self) -> None:
        conversation = self._conversation
        while not conversation.closed:
            try:
                self._send_parts()
                before = len(conversation.out)
                conversation.sent()
            except (OSError, ProtocolError) as error:
                self.close(str(error))
                return
            if len(conversation.out) == before:
                break
        if conversation.is_finished and self._sender is None:
            self._reason = self._reason or SHUTDOWN
            conversation.close()
            # The transport sends its buffer before it closes.
            self._transport.close()
        self._pause_or_resume()

    def _send_parts(self) -> None:
        out = self._conversation.out
        while out and not self._full and self._sender is None:
            data, count = joined(out)
            if count:
                for _ in range(count):
                    out.popleft()
                self._conversation.out_bytes -= len(data)
                self._transport.write(data)
            else:
                part = out.popleft()
                assert isinstance(part, FileRange)
                self._sender = self._loop.create_task(self._send_range(part))

    async def _send_range(self, part: FileRange) -> None:
        try:
            data = await self._disk.offload(part.read)
        except OSError as error:
            self.close(str(error))
            return
        self._sender = None
        if self._conversation.closed:
            return
        if len(data) < part.size:
            self.close(SHORT_FILE)
            return
        self._conversation.out_bytes -= part.size
        self._transport.write(data)
        self._send()

    def _pause_or_resume(self) -> None:
        wants = self._conversation.wants_input
        if wants is self._reading or self._conversation.closed:
            return
        self._reading = wants
        if wants:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
