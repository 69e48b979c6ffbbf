"""A RowPace for the tasks of a whole job: the driver keeps it, tasks ask over the network.

    with pacing_server(per_s, host) as address:
        frame.withColumn("value", arrow_udf(paced(address), "binary")("value"))

A task asks before each chunk of rows and waits for the time in the response. A client without the
secret gets no response.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kcli.spark.jobs.pace import RowPace

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER_S = 60
LOOK_EVERY_S = 0.05
MAX_BYTES = 100
"""Maximum length of a line."""


class Address(NamedTuple):
    host: str
    port: int
    secret: str


@contextlib.contextmanager
def pacing_server(per_s: float, host: str) -> Iterator[Address]:
    """Serve at `host` within the block."""
    secret = secrets.token_hex(16)
    pace, lock = RowPace(per_s), threading.Lock()

    def take(count: int) -> float:
        with lock:
            return pace.take(count, time.monotonic())

    class PaceHandler(socketserver.StreamRequestHandler):
        timeout = None

        def handle(self) -> None:
            if not hmac.compare_digest(self.rfile.readline(MAX_BYTES).strip(), secret.encode()):
                return
            while line := self.rfile.readline(MAX_BYTES):
                self.wfile.write(b"%.9f\n" % take(int(line)))

    with _Server((host, 0), PaceHandler) as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(LOOK_EVERY_S,), name="pace", daemon=True
        )
        thread.start()
        try:
            yield Address(host, server.server_address[1], secret)
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: a task has ended, or an unknown client connected."""


def pace_column(address: Address) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return a function that passes on a column of a task's rows at the pace, a chunk at a time."""

    def pace(chunks: Iterator[pa.Array]) -> Iterator[pa.Array]:
        with _pace_client(address) as wait_for:
            for rows in chunks:
                time.sleep(wait_for(len(rows)))
                yield rows

    return pace


@contextlib.contextmanager
def _pace_client(address: Address) -> Iterator[Callable[[int], float]]:
    with (
        socket.create_connection(address[:2], timeout=ANSWER_S) as connection,
        connection.makefile("rwb") as lines,
    ):
        lines.write(f"{address.secret}\n".encode())

        def ask(count: int) -> float:
            lines.write(b"%d\n" % count)
            lines.flush()
            return float(lines.readline(MAX_BYTES))

        yield ask
