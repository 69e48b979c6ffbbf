"""A real broker in its own process, on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

LISTENING = re.compile(r"listening on PLAINTEXT://([^\s\"]+)")
OWN_LISTENER = re.compile(r"PLAINTEXT://[^,]*")
STARTED = re.compile(r"\[KafkaServer id=\d+\] started")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60


class BrokerProcess:
    """`with BrokerProcess(tmp_path) as broker: ... broker.address`.

    The port is free at the first start and the same after restarts, so that clients reconnect.
    """

    command: Sequence[str] = (sys.executable, "-m", "kserver")

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.settings = {
            "log.dirs": directory / "data",
            "listeners": "PLAINTEXT://127.0.0.1:0",
        } | dict(settings or {})
        self.address = ""
        self.process: subprocess.Popen[str] | None = None
        self.output: list[str] = []
        """Lines of output of all its starts."""
        self._started = False
        self._reader: threading.Thread | None = None

    @property
    def data(self) -> Path:
        return Path(str(self.settings["log.dirs"]))

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def start(self) -> BrokerProcess:
        """Start it, and return once it logs that it started. Raises RuntimeError with its output on
        failure.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [*self.command, *self.arguments()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self._started = False
        found = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self.process, found), daemon=True)
        self._reader.start()
        if not found.wait(START_TIMEOUT_S) or not self._started:
            self.kill()
            raise RuntimeError("the broker did not start:\n" + "".join(self.output))
        listeners = str(self.settings["listeners"])
        self.settings["listeners"] = OWN_LISTENER.sub(f"PLAINTEXT://{self.address}", listeners)
        return self

    def arguments(self) -> list[str]:
        """Return the arguments with its configuration."""
        return [word for k, v in self.settings.items() for word in ("--override", f"{k}={v}")]

    def _read(self, process: subprocess.Popen[str], found: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line)
            if match := LISTENING.search(line):
                self.address = match[1]
            elif STARTED.search(line):
                self._started = True
                found.set()
        found.set()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait(STOP_TIMEOUT_S)

    def wait(self, timeout_s: float) -> int:
        """Return the exit code, once it and its output have ended. Raises
        subprocess.TimeoutExpired.
        """
        assert self.process is not None
        assert self._reader is not None
        code = self.process.wait(timeout_s)
        self._reader.join()
        return code

    def kill(self) -> None:
        """Send SIGKILL: nothing is flushed, nothing is marked clean."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def restart(self) -> BrokerProcess:
        self.stop()
        return self.start()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
                raise
