"""The brokers that are compared, as users start them: one process, default configs.

The only differences from the defaults: the address, the data directory, and a delay of one second
before deleted files are removed, so that one row's data does not occupy the next row's page cache.
"""

from __future__ import annotations

import compileall
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import kcli
import kserver
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import LATEST
from tests.bench import compiled
from tests.bench.machine import BenchError, process_cpu_s, resident_mb
from tests.support import apache_kafka
from tests.support.brokers import create_topic, serves
from tests.support.tools import free_port
from tests.support.wire_client import WireClient, milliseconds

APACHE_VERSION = "4.3.1"
ELDER_VERSION = "3.9.2"
"""The last release that supports ZooKeeper."""
DELETE_DELAY = "log.segment.delete.delay.ms=1000"
K = "import sys; from kcli.main import main; sys.exit(main())"
"""Code of the console script `k`."""

POLL_S = 0.001
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
DELETE_TIMEOUT_S = 30
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass(frozen=True)
class Kind:
    name: str
    command: Callable[[Path, int, Sequence[str]], list[str]]
    """Prepares a directory, and returns the command that starts a broker there on a port, with
    KEY=VALUE settings."""
    warm_up_s: float
    """Seconds of load until the broker's speed is steady."""


def compile_packages() -> None:
    """Compile the bytecode, which an installed package has and a source tree may lack."""
    for package in (kserver, kcli):
        compileall.compile_dir(package.__path__[0], quiet=1)


def _our_command(directory: Path, port: int, settings: Sequence[str]) -> list[str]:
    compile_packages()
    where = [f"log.dirs={directory / 'data'}", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
    words = [f"--override={setting}" for setting in (*where, DELETE_DELAY, *settings)]
    return [sys.executable, "-c", K, "server-start", *words]


def _compiled_command(directory: Path, port: int, settings: Sequence[str]) -> list[str]:
    """Return the command of our broker from the compiled build, which is made once next to the
    brokers' directories."""
    tree = compiled.build(directory.parent / compiled.DIRECTORY)
    python, c, code, *words = _our_command(directory, port, settings)
    return [python, c, f"import sys; sys.path.insert(0, {str(tree)!r}); {code}", *words]


def apache_command(
    version: str, directory: Path, port: int, settings: Sequence[str], *options: str
) -> list[str]:
    """Prepare the directory if necessary; return the command of Apache's broker.

    `options` are those of `apache_kafka.py server` that select the cluster.
    """
    if not (directory / "server.properties").exists():
        prepare = [sys.executable, apache_kafka.__file__, "server", version, "--prepare"]
        where = ["--data", str(directory), "--port", str(port)]
        overrides = [f"--override={setting}" for setting in (DELETE_DELAY, *settings)]
        command = [*prepare, *where, *options, *overrides]
        subprocess.run(command, check=True, capture_output=True)
    script = "kafka-server-start"
    return apache_kafka.java(
        version,
        script,
        apache_kafka.CLASSES[script],
        [str(directory / "server.properties")],
        logs=directory / "logs",
    )


def _lone(version: str) -> Callable[[Path, int, Sequence[str]], list[str]]:
    def command(directory: Path, port: int, settings: Sequence[str]) -> list[str]:
        quorum = f"1@127.0.0.1:{free_port()}"
        return apache_command(version, directory, port, settings, "--quorum", quorum)

    return command


OURS = Kind("k", _our_command, warm_up_s=2)
COMPILED = Kind("k compiled", _compiled_command, warm_up_s=2)
"""Built from the same source, as `K_COMPILE=1` installs it."""
APACHE = Kind(f"Apache Kafka {APACHE_VERSION}", _lone(APACHE_VERSION), warm_up_s=20)
ELDER = Kind(f"Apache Kafka {ELDER_VERSION}", _lone(ELDER_VERSION), warm_up_s=20)
"""Only measured as a cluster."""


class Server:
    """A broker of one kind with its own directory."""

    def __init__(self, kind: Kind, directory: Path, *settings: str) -> None:
        """Initialize with settings in the form KEY=VALUE."""
        self.kind = kind
        self.directory = directory
        self.settings = settings
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._topics = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> float:
        """Start the process; return the seconds until its first response, to ApiVersions."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            command = self.kind.command(self.directory, self.port, self.settings)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BenchError(f"{self.kind.name} cannot be prepared: {error}") from error
        output = self.directory / "output.txt"
        with open(output, "ab") as file:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        while not self._answers():
            if self._process.poll() is not None or time.perf_counter() > began + START_TIMEOUT_S:
                self.stop()
                raise BenchError(f"{self.kind.name} did not start:\n{output.read_text()[-2000:]}")
            time.sleep(POLL_S)
        return time.perf_counter() - began

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), START_TIMEOUT_S) as connection:
                connection.sendall(API_VERSIONS_V0)
                return bool(connection.recv(4))
        except OSError:
            return False

    def wait_until_it_serves(self) -> None:
        """Wait until the broker serves: Apache's responds before it is a member of its cluster."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not serves(self.address):
            if time.monotonic() > deadline:
                raise BenchError(f"{self.kind.name} does not serve")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    @contextmanager
    def on_cores(self, count: int) -> Iterator[None]:
        """Restrict the broker's threads to the first `count` cores in the block; 0 for all
        cores."""
        all_cores = os.sched_getaffinity(0)
        self._hold(set(sorted(all_cores)[:count]) or all_cores)
        yield
        self._hold(all_cores)

    def _hold(self, cores: set[int]) -> None:
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # the thread has ended
                os.sched_setaffinity(int(thread.name), cores)

    def cpu_s(self) -> float:
        """Return the CPU time that all threads have used."""
        return process_cpu_s(Path(f"/proc/{self.pid}/stat").read_text())

    def resident_mb(self) -> float:
        return resident_mb(Path(f"/proc/{self.pid}/status").read_text())

    @contextmanager
    def topic(self, partitions: int, **config: object) -> Iterator[str]:
        """Create a topic, and delete it with its files at the end; keys of `config` have _ for
        dots."""
        self._topics += 1
        name = f"bench-{self._topics}"
        try:
            create_topic(self.address, name, partitions, **config)
        except AssertionError as error:
            raise BenchError(f"{self.kind.name} made no topic: {error}") from error
        try:
            yield name
        finally:
            if self.runs:
                self._delete(name)

    def end_offset(self, topic: str) -> int:
        return end_offset(self.address, topic)

    def _delete(self, name: str) -> None:
        with WireClient(self.address) as client:
            (gone,) = client.call(
                ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout=milliseconds(30_000)
            ).responses
        if gone.error_code is not ErrorCode.none:
            raise BenchError(f"{self.kind.name} did not delete {name}: {gone.error_message}")
        deadline = time.monotonic() + DELETE_TIMEOUT_S
        while any(entry.startswith(f"{name}-") for entry in os.listdir(self.directory / "data")):
            if time.monotonic() > deadline:
                raise BenchError(f"{self.kind.name} keeps the files of {name}")
            time.sleep(0.05)


def end_offset(address: str, topic: str) -> int:
    """Return the end offset of partition 0: the number of messages in a topic with one
    partition."""
    asked = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": LATEST}]}
    with WireClient(address) as client:
        (found,) = client.call(ApiKey.LIST_OFFSETS, 2, replica_id=-1, topics=[asked]).topics
    return int(found.partitions[0].offset)


@contextmanager
def running(kind: Kind, directory: Path, *settings: str) -> Iterator[Server]:
    server = Server(kind, directory, *settings)
    try:
        server.start()
        server.wait_until_it_serves()
        yield server
    finally:
        server.stop()
