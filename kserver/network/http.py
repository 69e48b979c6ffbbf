"""A small HTTP server for monitoring the broker: GET and HEAD of a few paths, nothing else.

    request    one per connection, of HEAD_BYTES at most, read within HEAD_LIMIT_S; bytes after it
               are ignored
    response   piece by piece, as fast as the client reads, within RESPONSE_LIMIT_S; other
               connections are served between two pieces
    beyond     at most CONNECTIONS at a time; others are closed at once

It runs on the broker's event loop, over asyncio's transports, and holds one piece and a transport's
buffer per connection.  Clients that are slow or send no request are disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple

HEAD_BYTES = 8 * 1024
HEAD_LIMIT_S = 5.0
RESPONSE_LIMIT_S = 30.0
CONNECTIONS = 64
_END = b"\r\n\r\n"


class Page(NamedTuple):
    """A response: status, content type, and text in pieces that are generated when they can be
    sent."""

    status: HTTPStatus
    content_type: str
    pieces: Iterable[str]

    @classmethod
    def plain(cls, status: HTTPStatus, text: str) -> Page:
        return cls(status, "text/plain; charset=utf-8", (f"{text}\n",))


class HttpServer:
    """Serves `pages`: a function for each path that returns the page."""

    def __init__(self, pages: Mapping[str, Callable[[], Page]]) -> None:
        self.pages = pages
        self.connections: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port, a free one for 0.  Raises OSError naming the address."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: HttpConnection(loop, self), host or None, port
            )
        except OSError as error:
            # asyncio repeats the address before the reason.
            reason = (error.strerror or str(error)).rpartition(": ")[2]
            raise OSError(
                error.errno, f"http.listener {host}:{port} cannot be opened: {reason}"
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.cut()


class HttpConnection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, server: HttpServer) -> None:
        self._loop = loop
        self._server = server
        self._head = b""
        self._has_responded = False
        self._chunked = False
        self._pieces: Iterator[str] = iter(())
        self._paused = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._server.connections) >= CONNECTIONS:
            transport.abort()
            return
        self._server.connections[self] = None
        self._cut_after(HEAD_LIMIT_S)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._pieces = iter(())
        if self._deadline is not None:
            self._deadline.cancel()

    def cut(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._has_responded:
            return
        # Search from near the end, or a client that sends byte by byte costs quadratic time.
        start = max(len(self._head) - len(_END) + 1, 0)
        self._head += data
        end = self._head.find(_END, start, HEAD_BYTES)
        if end >= 0:
            self._respond(self._head[:end])
        elif len(self._head) >= HEAD_BYTES:
            self._send(_status_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), b"")

    def eof_received(self) -> bool:
        """Let a client close its half after its request; the response is sent to its end."""
        return self._has_responded

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    def _respond(self, head: bytes) -> None:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            self._send(_status_page(HTTPStatus.BAD_REQUEST), b"")
            return
        method, target, version = words
        self._chunked = version != b"HTTP/1.0"
        if method not in (b"GET", b"HEAD"):
            self._send(_status_page(HTTPStatus.METHOD_NOT_ALLOWED), method)
            return
        make = self._server.pages.get(target.partition(b"?")[0].decode("latin-1"))
        page = _status_page(HTTPStatus.NOT_FOUND) if make is None else make()
        self._send(page, method)

    def _send(self, page: Page, method: bytes) -> None:
        self._has_responded = True
        self._head = b""
        self._cut_after(RESPONSE_LIMIT_S)
        fields = [
            f"HTTP/1.1 {page.status.value} {page.status.phrase}",
            f"Content-Type: {page.content_type}",
            "Connection: close",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
        ]
        if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
            fields.append("Allow: GET, HEAD")
        if self._chunked:
            # With chunks, a client can distinguish a truncated response from a complete one.
            fields.append("Transfer-Encoding: chunked")
        self._transport.write("\r\n".join(fields).encode() + _END)
        self._pieces = iter(()) if method == b"HEAD" else iter(page.pieces)
        if method == b"HEAD":
            self._chunked = False
        self._go_on()

    def _go_on(self) -> None:
        """Send the next piece; a later turn of the event loop sends the one after it."""
        if self._paused or not self._has_responded or self._transport.is_closing():
            return
        piece = next(self._pieces, None)
        if piece is None:
            if self._chunked:
                self._transport.write(b"0\r\n\r\n")
            self._transport.close()
            return
        data = piece.encode()
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._transport.write(data)
        if not self._paused:
            self._loop.call_soon(self._go_on)

    def _cut_after(self, limit_s: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(limit_s, self.cut)


def _status_page(status: HTTPStatus) -> Page:
    return Page.plain(status, status.phrase)
