"""A proxy to a broker that can be made slow: it delays all bytes."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Self

CHUNK_BYTES = 1 << 16


class SlowProxy:
    """`with SlowProxy() as proxy:` between `proxy.address`, which the broker advertises, and the
    broker at `proxy.target` (host and port). Bytes in either direction arrive after
    `proxy.delay_s`, in order.
    """

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self.delay_s = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, sock=self._listener)

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.target is not None
        there, back = await asyncio.open_connection(*self.target)
        async with asyncio.TaskGroup() as passing:
            for source, sink in ((reader, back), (there, writer)):
                held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
                passing.create_task(self._take(source, held))
                passing.create_task(self._give(held, sink))

    async def _take(
        self, reader: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        """Delay each chunk on its own: a delay does not limit the rate."""
        data = b"-"
        while data:
            try:
                data = await reader.read(CHUNK_BYTES)
            except ConnectionError:
                data = b""
            held.put_nowait((self._loop.time() + self.delay_s, data))

    async def _give(
        self, held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await held.get()
            await asyncio.sleep(due - self._loop.time())
            if not data:
                writer.close()
                return
            writer.write(data)
