"""A real ZooKeeper in a process of its own: the one in PySpark's jars, else Apache Kafka 3's."""

from __future__ import annotations

import glob
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support import tools

KAFKA_VERSION = "3.9.2"
START_TIMEOUT_S = 60
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SESSION_TIMEOUT_MS = (1_000, 60_000)
"""The least and the most that a client is granted."""


class ZooKeeperServer:
    """`with ZooKeeperServer(tmp_path) as server: ... server.address`.  The test that starts one
    needs java."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> ZooKeeperServer:
        """Returns once it answers; raises RuntimeError with its output when it does not."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        output = self.directory / "output.txt"
        with open(output, "ab") as file:
            self.process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("ZooKeeper did not start:\n" + output.read_text())
            time.sleep(0.05)  # it has no way to tell us
        return self

    def kill(self) -> None:
        """At once; nothing where it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> ZooKeeperServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _command(self) -> list[str]:
        java = tools.require("java")
        pyspark = tools.find("pyspark")
        if pyspark is None:
            tools.require("mvn")
            script = Path(__file__).parent / "apache_kafka.py"
            install = [sys.executable, str(script), "install", KAFKA_VERSION]
            home = subprocess.run(install, check=True, stdout=subprocess.PIPE, text=True).stdout
            jars = Path(home.strip()) / "libs"
        else:
            jars = Path(pyspark) / "jars"
        if not glob.glob(f"{jars}/zookeeper-*.jar"):
            raise RuntimeError(f"there is no ZooKeeper in {jars}")
        heap = os.environ.get("KAFKA_HEAP_OPTS", "-Xmx128M").split()
        config = self._config()
        return [java, *heap, "-XX:+UseSerialGC", "-cp", f"{jars}/*", MAIN, str(config)]

    def _config(self) -> Path:
        config = self.directory / "zoo.cfg"
        least, most = SESSION_TIMEOUT_MS
        config.write_text(
            f"dataDir={self.directory}/data\n"
            f"clientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
            "maxClientCnxns=0\n"
            "tickTime=500\n"
            f"minSessionTimeout={least}\n"
            f"maxSessionTimeout={most}\n"
        )
        return config

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                # ruok is answered before sessions are.
                connection.sendall(b"srvr")
                with connection.makefile("rb") as answer:
                    return b"Mode: standalone" in answer.read()
        except OSError:
            return False


class OwnZooKeeperServer(ZooKeeperServer):
    """The one of `k zookeeper-server-start`: the same, without java."""

    def _command(self) -> list[str]:
        return [*tools.K, "zookeeper-server-start", str(self._config())]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
