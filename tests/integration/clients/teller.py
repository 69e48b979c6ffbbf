"""A process that prints events, one line each."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from tests.integration.clients.catalogue import HERE

END_TIMEOUT_S = 60


class Teller:
    """Passes each line to `take`, or `take_error`, while it holds `told`; notifies it of lines and
    of the end."""

    def __init__(
        self,
        command: Sequence[str],
        told: threading.Condition,
        take: Callable[[str], Any],
        take_error: Callable[[str], Any],
    ) -> None:
        self._told = told
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=HERE / "node",
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        streams = ((self._process.stdout, take), (self._process.stderr, take_error))
        self._readers = [
            threading.Thread(target=self._read, args=stream, daemon=True) for stream in streams
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: TextIO, take: Callable[[str], Any]) -> None:
        for line in stream:
            with self._told:
                take(line)
                self._told.notify_all()
        # The output ends before the process does; notify again for those that wait for the
        # process's end.
        self._process.wait()
        with self._told:
            self._told.notify_all()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        self._wait()

    def kill(self) -> None:
        self._process.kill()
        self._wait()

    def _wait(self) -> None:
        """Wait for the process, and until all its output has been read."""
        self._process.wait(END_TIMEOUT_S)
        for reader in self._readers:
            reader.join(END_TIMEOUT_S)
