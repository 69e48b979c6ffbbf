"""Records that are written to a topic continuously, one after the other.

with SteadyWriter(address, "orders", b"record") as writer:
    until(lambda: writer.written > 10)
"""

from __future__ import annotations

import threading
from typing import Self

from kcli.client import Blocking, Producer

PACE_S = 0.005
"""Seconds between records."""


class SteadyWriter:
    """A writer; `written` is the number of records so far."""

    def __init__(self, address: str, topic: str, record: bytes) -> None:
        self.address = address
        self.topic = topic
        self.record = record
        self.written = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        with Blocking(Producer, {"bootstrap.servers": self.address}) as producer:
            while not self._stop.wait(PACE_S):
                producer.send(self.topic, self.record).result()
                self.written += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
