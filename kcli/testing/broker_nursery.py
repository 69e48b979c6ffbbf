"""Brokers for tests: each a process of its own, forked from one that has imported everything.

    with Nursery() as nursery:
        broker = nursery.start(directory, {"num.partitions": 3})
        broker.address

Python and its imports are nine tenths of a broker's start.  The nursery is a process that has them
behind it and waits; asked for a broker it forks, and the broker answers some 30 ms later.

    tests          {settings}, the end of a pipe   >   nursery
                   <   pid                             fork: the broker, its output into the pipe

It lives in a session of its own, so that Ctrl-C ends the tests first.  When the tests are gone,
however they ended, so is its connection to them, and it takes its brokers along.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LISTENING = re.compile(r"listening on PLAINTEXT://([^\s\"]+)")
STARTED = re.compile(r"\[KafkaServer id=\d+\] started")
ANY_PORT = "PLAINTEXT://127.0.0.1:0"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
MAX_REQUEST_BYTES = 1 << 16


class KafkaBroker:
    """A broker of a `Nursery`.  Its port is free at the first start and kept from then on."""

    def __init__(self, nursery: Nursery, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self.address = ""
        """HOST:PORT, for a client's bootstrap.servers."""
        self.pid: int | None = None
        """The id of its process, while it runs."""
        self._nursery = nursery
        self._settings = {
            "log.dirs": str(directory),
            "listeners": ANY_PORT,
        } | {key: _text(value) for key, value in settings.items()}
        self._lines: list[str] = []
        self._serves = False
        self._told = threading.Event()
        """Set once it serves, or has ended."""
        self._reader: threading.Thread | None = None

    def __str__(self) -> str:
        return self.address

    def __repr__(self) -> str:
        return f"<KafkaBroker {self.address or 'not started'}>"

    @property
    def bootstrap_servers(self) -> str:
        """The address, by the name that clients have for it."""
        return self.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        """What it has logged, over all its starts."""
        return "".join(self._lines)

    def start(self) -> None:
        """Returns once it serves; RuntimeError with its log where it does not."""
        if self._runs():
            raise RuntimeError(f"the broker runs already, at {self.address}")
        self._serves = False
        self._told.clear()
        output, end = os.pipe()
        try:
            self.pid = self._nursery.fork(self._settings, end)
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(end)
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()
        self._told.wait(START_TIMEOUT_S)
        if not self._serves:
            self.kill()
            raise RuntimeError(f"the broker did not start:\n{self.log}")
        if self._settings["listeners"] == ANY_PORT:
            self._settings["listeners"] = f"PLAINTEXT://{self.address}"

    def stop(self) -> None:
        """Stop it as an operator does: what is under way is answered, everything flushed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing marked clean."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop, and start on the same data and port."""
        self.stop()
        self.start()

    def _runs(self) -> bool:
        return self._reader is not None and self._reader.is_alive()

    def _end(self, number: int) -> None:
        """The pipe of its output closes with it."""
        if self.pid is None or self._reader is None:
            return
        if self._runs():
            os.kill(self.pid, number)
            self._reader.join(STOP_TIMEOUT_S)
        if self._runs():
            os.kill(self.pid, signal.SIGKILL)
            self._reader.join()
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_S} s:\n{self.log}")
        self.pid = self._reader = None

    def _read(self, output: int) -> None:
        with open(output, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._lines.append(line)
                if match := LISTENING.search(line):
                    self.address = match[1]
                elif STARTED.search(line):
                    self._serves = True
                    self._told.set()
        self._told.set()


class Nursery:
    """The process that brokers are forked from.  It gets ready in the background once made."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                # -P: a module of the project that is tested must not stand in for one of Python's.
                [sys.executable, "-P", "-m", "kcli.testing.broker_nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, directory: Path, settings: Mapping[str, Any] | None = None) -> KafkaBroker:
        """A broker with its data in `directory`, with these keys of server.properties."""
        broker = KafkaBroker(self, directory, settings or {})
        broker.start()
        return broker

    def fork(self, settings: Mapping[str, str], output: int) -> int:
        """The pid of a new broker that writes its log to the descriptor `output`."""
        words = [word for pair in settings.items() for word in ("--override", "=".join(pair))]
        try:
            socket.send_fds(self._control, [json.dumps(words).encode()], [output])
            answer = self._control.recv(MAX_REQUEST_BYTES)
        except ConnectionError:
            answer = b""
        if not answer:
            raise RuntimeError("what starts brokers has ended; standard error says why")
        return int(answer)

    def close(self) -> None:
        """Stop all brokers, and the nursery."""
        self._control.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def main(descriptor: int) -> None:
    """The nursery itself, at its end of the connection."""
    from kserver.__main__ import main as serve

    # What `serve` would import in each broker.
    importlib.import_module("kserver.process")
    gc.collect()
    gc.freeze()
    brokers: set[int] = set()
    with socket.socket(fileno=descriptor) as control:
        while True:
            words, outputs, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 1)
            if not words:
                break
            brokers -= {pid for pid in brokers if os.waitpid(pid, os.WNOHANG)[0]}
            pid = os.fork()
            if pid == 0:
                control.close()
                for stream in (1, 2):
                    os.dup2(outputs[0], stream)
                os.close(outputs[0])
                sys.exit(serve(json.loads(words)))
            os.close(outputs[0])
            brokers.add(pid)
            control.send(str(pid).encode())
    for pid in brokers:
        os.kill(pid, signal.SIGTERM)
    for pid in brokers:
        os.waitpid(pid, 0)


def _text(value: Any) -> str:
    """The text that server.properties has: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main(int(sys.argv[1]))
