"""The supervisor of a cluster: starts its servers, reports their state, and stops them in order.

    starting   ZooKeeper, then all brokers at once, until each knows all
    serving    the death of a server is reported, and with `restart` it is started again
    stopping   brokers one after the other, the last one first, so that each hands over its
               leaderships to those that stop later; then ZooKeeper

Events are printed on standard output, a line each and at once; the servers' logs on standard error,
each line after its server's name. A single thread does all of it, because a process with several
threads cannot fork safely.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from kcli.command.options import Refused
from kcli.command.output import complain, print_output
from kcli.local_cluster.membership import is_complete
from kcli.local_cluster.plan import HOST, LocalClusterPlan, left_alone
from kcli.servers.server_processes import (
    READY,
    ending,
    fork,
    load_servers,
    serve_broker,
    serve_zookeeper,
)
from kserver.log.directory import WRONG_CLUSTER

STOP_TIMEOUT_S = 30
"""Seconds for one server to stop; then it is killed."""
LOOK_AGAIN_S = 0.02
STEADY_S = 10
"""A server that ran as long as this has the shortest pause again, after its next death."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""Seconds between a death and the next start, doubled with each early death."""
LAST_LINES = 20
READ_BYTES = 1 << 16
_REASONS = ("k server-start: ", "k zookeeper-server-start: ")
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedAtOnce(Exception):
    """A second signal to stop."""


class SupervisedServer:
    """A process of the cluster, over all its starts, with the same address."""

    def __init__(self, name: str, address: str, serve: Callable[[str], int]) -> None:
        self.name = name
        self.address = address
        """HOST:PORT, where port 0 stands for a free one until the first start."""
        self.serve = serve
        self.pid: int | None = None
        """While it runs."""
        self.is_ready = False
        self.is_stopping = False
        self.died_at: float | None = None
        self.started_at = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.pidfd = self.output = -1
        self.cut = b""
        """The line whose end has not been read."""


class Supervisor:
    """Runs a cluster; `run` returns the exit status."""

    def __init__(self, plan: LocalClusterPlan, *, restart: bool) -> None:
        self._plan = plan
        self._restart = restart
        self._selector = selectors.DefaultSelector()
        self._is_stopping = False
        self._signals = 0
        self._number = 0
        self._zookeeper = SupervisedServer(
            "zookeeper", f"{HOST}:0", lambda address: serve_zookeeper(plan.zookeeper(address))
        )
        self._brokers = {id: self._broker(id) for id in plan.ids}
        self._width = max(len(server.name) for server in self._servers)

    def _broker(self, id: int) -> SupervisedServer:
        def serve(address: str) -> int:
            return serve_broker(self._plan.broker(id, address, self._zookeeper.address))

        return SupervisedServer(f"broker {id}", f"{HOST}:{self._plan.port_of(id)}", serve)

    @property
    def _servers(self) -> list[SupervisedServer]:
        return [self._zookeeper, *self._brokers.values()]

    def run(self) -> int:
        """Start, serve and stop. Raises Refused if it cannot start."""
        with _lock_directory(self._plan.directory), self._handle_signals():
            self._check_ports()
            self._report_orphans()
            load_servers()
            try:
                status = self._serve()
                brokers = [*reversed(self._brokers.values())]
                # Without a ZooKeeper no broker can hand over its leaderships, and each would wait
                # in vain.
                turns = [[b] for b in brokers] if self._zookeeper.pid is not None else [brokers]
                for servers in [*turns, [self._zookeeper]]:
                    self._stop(servers)
                return status
            except StoppedAtOnce:
                return 128 + self._number
            finally:
                for server in self._servers:
                    self._kill(server)

    # Starting and serving

    def _serve(self) -> int:
        brokers = self._brokers.values()
        if not self._start_servers([self._zookeeper]) or not self._start_servers([*brokers]):
            return 1
        self._until(self._is_complete)
        if not self._is_stopping:
            _print_line(f"cluster ready: {','.join(server.address for server in brokers)}")
        self._until(self._is_over)
        if not self._is_stopping:
            complain("k cluster-start: no broker is left")
            return 1
        return 0

    def _start_servers(self, servers: list[SupervisedServer]) -> bool:
        """Start the servers; return whether all of them run."""
        for server in servers:
            self._start(server)
        self._until(lambda: all(s.is_ready or s.pid is None for s in servers))
        failed = [server for server in servers if server.pid is None]
        if not self._is_stopping:
            for server in failed:
                complain(f"k cluster-start: {server.name} did not start: {_why(server)}")
        return not failed

    def _is_complete(self) -> bool:
        alive = {id: server.address for id, server in self._brokers.items() if server.is_ready}
        return not alive or asyncio.run(is_complete(alive.values(), alive))

    def _is_over(self) -> bool:
        """Whether no broker runs, nor will."""
        self._start_again()
        return not self._restart and all(s.pid is None for s in self._brokers.values())

    def _start_again(self) -> None:
        now = time.monotonic()
        for server in self._servers if self._restart else ():
            if server.died_at is not None and now - server.died_at >= server.pause_s:
                early = server.died_at - server.started_at < STEADY_S
                longer = min(2 * server.pause_s, LONGEST_PAUSE_S)
                server.pause_s = longer if early else FIRST_PAUSE_S
                self._start(server)

    def _until(self, holds: Callable[[], bool]) -> None:
        """Serve until `holds()` is true, or until a signal to stop."""
        while not self._is_stopping and not holds():
            self._step()

    def _step(self) -> None:
        for key, _ in self._selector.select(LOOK_AGAIN_S):
            # The callback of a server that ended in the same turn may have closed the descriptor.
            if self._selector.get_map().get(key.fd) == key:
                key.data()

    def _start(self, server: SupervisedServer) -> None:
        server.is_ready, server.died_at, server.cut = False, None, b""
        server.started_at = time.monotonic()
        server.output, end = os.pipe()
        server.pid = fork(f"k {server.name}", partial(server.serve, server.address), end)
        os.close(end)
        server.pidfd = os.pidfd_open(server.pid)
        self._selector.register(server.output, selectors.EVENT_READ, partial(self._read, server))
        self._selector.register(server.pidfd, selectors.EVENT_READ, partial(self._end, server))

    # Output and ends of servers

    def _read(self, server: SupervisedServer) -> bool:
        """Print the lines the server has written; return False at the end of its output."""
        data = os.read(server.output, READ_BYTES)
        *lines, server.cut = (server.cut + data).split(b"\n")
        for line in lines:
            self._take(server, line.decode(errors="replace"))
        return bool(data)

    def _take(self, server: SupervisedServer, line: str) -> None:
        if line.startswith(READY):
            server.address = line.removeprefix(READY)
            server.is_ready = True
            _print_line(f"{server.name} ready on {server.address}, pid {server.pid}")
            return
        server.lines.append(line)
        complain(f"{server.name:{self._width}} | {line}")

    def _end(self, server: SupervisedServer) -> None:
        """Handle the end of its process, after its remaining output."""
        assert server.pid is not None
        _, status = os.waitpid(server.pid, 0)
        while self._read(server):
            pass
        for descriptor in (server.output, server.pidfd):
            self._selector.unregister(descriptor)
            os.close(descriptor)
        pid, server.pid = server.pid, None
        was_ready, server.is_ready = server.is_ready, False
        if not server.is_stopping:
            server.died_at = time.monotonic()
            if was_ready:
                _print_line(f"{server.name} (pid {pid}) died: {ending(status)}")
            elif self._restart:
                complain(f"k cluster-start: {server.name} did not start: {_why(server)}")

    # Stopping

    def _stop(self, servers: list[SupervisedServer]) -> None:
        """Stop these servers at the same time."""
        running = [server for server in servers if server.pid is not None]
        for server in running:
            server.is_stopping = True
            assert server.pid is not None
            os.kill(server.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(s.pid is not None for s in running) and time.monotonic() < deadline:
            self._step()
        for server in running:
            if server.pid is not None:
                complain(
                    f"k cluster-start: {server.name} has not stopped within {STOP_TIMEOUT_S} s "
                    "and is killed; acknowledged records are in its log"
                )

    def _kill(self, server: SupervisedServer) -> None:
        if server.pid is not None:
            server.is_stopping = True
            os.kill(server.pid, signal.SIGKILL)
            self._end(server)

    @contextlib.contextmanager
    def _handle_signals(self) -> Iterator[None]:
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        self._selector.register(receiver, selectors.EVENT_READ, lambda: self._on_signal(receiver))
        signal.set_wakeup_fd(sender.fileno())
        before = {number: signal.getsignal(number) for number in _STOPS}
        for number in _STOPS:
            # nohup ignores SIGHUP.
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            receiver.close()
            sender.close()

    def _on_signal(self, receiver: socket.socket) -> None:
        for number in receiver.recv(READ_BYTES):
            if number in _STOPS:
                self._is_stopping = True
                # systemd's SendSIGHUP= and shells send a SIGHUP in addition to the first signal.
                self._signals += number != signal.SIGHUP
                self._number = number
        if self._signals > 1:
            raise StoppedAtOnce

    # Checks before the start

    def _check_ports(self) -> None:
        for server in self._brokers.values():
            host, _, port = server.address.rpartition(":")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, int(port)))
                except OSError as error:
                    raise Refused(
                        f"{server.name} cannot listen at {server.address}: {error.strerror}; stop"
                        " what listens there, or choose other ports with --port"
                    ) from None

    def _report_orphans(self) -> None:
        alone = left_alone(os.listdir(self._plan.directory), self._plan.count)
        if alone:
            complain(
                f"k cluster-start: {self._plan.directory} also has the data of"
                f" {', '.join(f'broker {id}' for id in alone)}, which --brokers"
                f" {self._plan.count} does not start"
            )


@contextlib.contextmanager
def _lock_directory(directory: str) -> Iterator[None]:
    """Create the directory if it is missing, and lock it. Raises Refused if another cluster uses
    it.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        descriptor = os.open(f"{directory}/.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise Refused(
            f"--data {directory} cannot be used: {error.strerror}; name a directory that can be"
            " written to with --data"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"{directory} is in use by another k cluster-start; stop it, or name another "
                "directory with --data"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _print_line(text: str) -> None:
    """Print it at once; if its reader has closed standard output, go on without it."""
    try:
        print_output(text)
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


OTHER_DATA = (
    "The ZooKeeper's data is of another cluster than this broker's: move the broker's data away, or"
    " choose another directory with --data."
)


def _why(server: SupervisedServer) -> str:
    """Return the reasons among the last lines of its log."""
    text = list(server.lines)
    for command in _REASONS:
        if reasons := [line.removeprefix(command) for line in text if line.startswith(command)]:
            return "; ".join(reasons).replace(WRONG_CLUSTER, OTHER_DATA)
    return text[-1] if text else "it ended without an error message"
