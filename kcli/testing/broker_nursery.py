"""Brokers for tests: each a process of its own, forked from one that has imported everything.

    with Nursery() as nursery:
        broker = nursery.start(directory, {"num.partitions": 3})
        broker.address

Python and its imports are nine tenths of a broker's start. The nursery is a process that has
imported them and waits for requests; for each it forks a broker, which serves some 30 ms later.

    tests    [kind, settings], the end of a pipe   >   nursery
                                            pid   <   forks the broker, whose output is the pipe

It has a session of its own, so that Ctrl-C ends the tests first. When the process of the tests
ends, in any way, its connection closes, and the nursery stops its brokers and ends.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kcli.servers.server_processes import READY, fork, load_servers, serve_broker, serve_zookeeper

ANY_PORT = "PLAINTEXT://127.0.0.1:0"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
STOP_SIGNAL = signal.SIGTERM
MAX_REQUEST_BYTES = 1 << 16


class NurseryProcess:
    """A server of a `Nursery`, over all its starts: its output, and its end."""

    def __init__(self, nursery: Nursery, kind: str) -> None:
        self.kind = kind
        """"broker" or "zookeeper"."""
        self.address = ""
        """HOST:PORT, from the first start on."""
        self.pid: int | None = None
        """While it runs."""
        self._nursery = nursery
        self._lines: list[str] = []
        self._serves = False
        self._startup_done = threading.Event()
        """Set once it serves, or has ended."""
        self._reader: threading.Thread | None = None

    @property
    def log(self) -> str:
        """Its log, over all its starts."""
        return "".join(self._lines)

    @property
    def runs(self) -> bool:
        return self._reader is not None and self._reader.is_alive()

    def begin(self, configuration: str | Sequence[str]) -> None:
        """Start it; `wait` returns once it serves."""
        if self.runs:
            raise RuntimeError(f"the {self.kind} runs already, at {self.address}")
        self._serves = False
        self._startup_done.clear()
        output, end = os.pipe()
        try:
            self.pid = self._nursery.fork(self.kind, configuration, end)
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(end)
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()

    def wait(self) -> None:
        """Return once it serves. Raises RuntimeError, with its log, if it does not."""
        self._startup_done.wait(START_TIMEOUT_S)
        if not self._serves:
            self.end(signal.SIGKILL)
            raise RuntimeError(f"the {self.kind} did not start:\n{self.log}")

    def end(self, number: int) -> None:
        """Send the signal, and return once it has ended: the pipe of its output closes with it."""
        if self.pid is None or self._reader is None:
            return
        if self.runs:
            os.kill(self.pid, number)
            self._reader.join(STOP_TIMEOUT_S)
        if self.runs:
            os.kill(self.pid, signal.SIGKILL)
            self._reader.join()
            raise RuntimeError(
                f"the {self.kind} did not stop within {STOP_TIMEOUT_S} s:\n{self.log}"
            )
        self.pid = self._reader = None

    def _read(self, output: int) -> None:
        with open(output, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(READY):
                    self.address = line.removeprefix(READY).rstrip()
                    self._serves = True
                    self._startup_done.set()
                else:
                    self._lines.append(line)
        self._startup_done.set()


class KafkaBroker:
    """A broker of a `Nursery`. Its port is a free one at the first start, and kept from then on."""

    def __init__(self, nursery: Nursery, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self._process = NurseryProcess(nursery, "broker")
        self._settings = {
            "log.dirs": str(directory),
            "listeners": ANY_PORT,
        } | {key: _text(value) for key, value in settings.items()}

    def __str__(self) -> str:
        return self.address

    def __repr__(self) -> str:
        return f"<KafkaBroker {self.address or 'not started'}>"

    @property
    def address(self) -> str:
        """HOST:PORT, for a client's bootstrap.servers."""
        return self._process.address

    @property
    def bootstrap_servers(self) -> str:
        """The address, under the name that clients use."""
        return self.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def pid(self) -> int | None:
        """The id of its process, while it runs."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.runs

    @property
    def log(self) -> str:
        """Its log, over all its starts."""
        return self._process.log

    def start(self) -> None:
        """Start it, and return once it serves. Raises RuntimeError, with its log, if it does
        not.
        """
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it, and do not wait."""
        self._process.begin([f"{key}={value}" for key, value in self._settings.items()])

    def wait(self) -> None:
        """Return once it serves. Raises RuntimeError, with its log, if it does not."""
        self._process.wait()
        if self._settings["listeners"] == ANY_PORT:
            self._settings["listeners"] = f"PLAINTEXT://{self.address}"

    def stop(self) -> None:
        """Stop it cleanly: pending requests are answered, and everything is flushed."""
        self._process.end(STOP_SIGNAL)

    def kill(self) -> None:
        """kill -9: nothing is flushed or marked clean."""
        self._process.end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop, and start on the same data and port."""
        self.stop()
        self.start()


class Nursery:
    """The process that brokers are forked from. It starts in the background once created."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                # -P: a module of the tested project must not replace one of Python's.
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
        """Start a broker with its data in `directory`, with these keys of server.properties."""
        broker = KafkaBroker(self, directory, settings or {})
        broker.start()
        return broker

    def fork(self, kind: str, configuration: str | Sequence[str], output: int) -> int:
        """Return the pid of a new server that writes its log to the descriptor `output`."""
        try:
            request = json.dumps([kind, configuration]).encode()
            socket.send_fds(self._control, [request], [output])
            response = self._control.recv(MAX_REQUEST_BYTES)
        except ConnectionError:
            response = b""
        if not response:
            raise RuntimeError("what starts brokers has ended; standard error says why")
        return int(response)

    def close(self) -> None:
        """Stop all brokers, and the nursery."""
        self._control.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def main(descriptor: int) -> None:
    """Run the nursery itself, at its end of the connection."""
    importlib.import_module("kserver.broker.process")
    gc.collect()
    gc.freeze()
    serve = {"broker": serve_broker, "zookeeper": serve_zookeeper}
    servers: dict[int, str] = {}
    with socket.socket(fileno=descriptor) as control:
        while True:
            request, outputs, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 1)
            if not request:
                break
            kind, configuration = json.loads(request)
            if kind == "zookeeper":
                load_servers()  # only a cluster needs these
            servers = {pid: k for pid, k in servers.items() if not os.waitpid(pid, os.WNOHANG)[0]}
            pid = fork(f"k {kind}", partial(serve[kind], configuration), outputs[0])
            os.close(outputs[0])
            servers[pid] = kind
            control.send(str(pid).encode())
    for kind in serve:  # brokers stop before their ZooKeeper
        stopped = [pid for pid, other_kind in servers.items() if other_kind == kind]
        for pid in stopped:
            os.kill(pid, signal.SIGTERM)
        for pid in stopped:
            os.waitpid(pid, 0)


def _text(value: Any) -> str:
    """Return the text for server.properties: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main(int(sys.argv[1]))
