"""A real ZooKeeper in a process of its own: the one in PySpark's jars, else Apache Kafka 3's."""

from __future__ import annotations

import glob
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import tools
from tests.support.tools import free_port

KAFKA_VERSION = "3.9.2"
START_TIMEOUT_S = 60
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SESSION_TIMEOUT_MS = (1_000, 60_000)
"""The least and greatest session timeouts that the server grants."""


class ZooKeeperServer:
    """`with ZooKeeperServer(tmp_path) as server: ... server.address`. The test that starts one
    needs java.

    `within` prefixes its command, such as one of a network namespace, in which `host` is its
    address.
    """

    def __init__(
        self, directory: Path, host: str = "127.0.0.1", within: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.host = host
        self.within = within
        self.port = free_port()
        self.address = f"{host}:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.members: Sequence[str] = ()
        """Lines of zoo.cfg with the servers of an ensemble."""

    def start(self) -> ZooKeeperServer:
        """Start it, and return once it responds. Raises RuntimeError with its output on failure."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        output = self.directory / "output.txt"
        with open(output, "ab") as file:
            self.process = subprocess.Popen(
                [*self.within, *self._command()], stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("ZooKeeper did not start:\n" + output.read_text())
            time.sleep(0.05)  # the server can only be polled
        return self

    def kill(self) -> None:
        """Kill it, if it runs."""
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
        flags = [*heap, "-XX:+UseSerialGC", *self._java_options()]
        return [java, *flags, "-cp", f"{jars}/*", MAIN, str(config)]

    def _java_options(self) -> list[str]:
        return []

    def _config(self) -> Path:
        config = self.directory / "zoo.cfg"
        least, most = SESSION_TIMEOUT_MS
        config.write_text(
            f"dataDir={self.directory}/data\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={self.host}\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
            "maxClientCnxns=0\n"
            "tickTime=500\n"
            f"minSessionTimeout={least}\n"
            f"maxSessionTimeout={most}\n" + "".join(f"{line}\n" for line in self.members)
        )
        return config

    @property
    def mode(self) -> str:
        """Return standalone, leader or follower; empty if it does not serve."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                # ruok succeeds before the server accepts sessions.
                connection.sendall(b"srvr")
                with connection.makefile("rb") as answer:
                    found = re.search(rb"Mode: (\w+)", answer.read())
        except OSError:
            return ""
        return found[1].decode() if found else ""

    def _answers(self) -> bool:
        return bool(self.mode)


class SaslZooKeeperServer(ZooKeeperServer):
    """A server with a user `k` whose password is `secret`, by SASL with DIGEST-MD5."""

    def _config(self) -> Path:
        config = super()._config()
        with open(config, "a") as file:
            file.write(
                "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            )
        return config

    def _java_options(self) -> list[str]:
        jaas = self.directory / "jaas.conf"
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        jaas.write_text(f'Server {{\n  {module} required\n  user_k="secret";\n}};\n')
        return [f"-Djava.security.auth.login.config={jaas}"]


class OwnZooKeeperServer(ZooKeeperServer):
    """Our own server of `k zookeeper-server-start`, without java."""

    def _command(self) -> list[str]:
        return [*tools.K, "zookeeper-server-start", str(self._config())]


class ZooKeeperEnsemble:
    """Three of Apache's servers; `seats` are a host and a command prefix for each."""

    def __init__(self, directory: Path, seats: Sequence[tuple[str, Sequence[str]]]) -> None:
        self.servers = [
            ZooKeeperServer(directory / str(number), host, within)
            for number, (host, within) in enumerate(seats, 1)
        ]
        members = [
            f"server.{number}={server.host}:{free_port()}:{free_port()}"
            for number, server in enumerate(self.servers, 1)
        ]
        for number, server in enumerate(self.servers, 1):
            server.members = [*members, "initLimit=20", "syncLimit=4"]
            (server.directory / "data").mkdir(parents=True)
            (server.directory / "data" / "myid").write_text(str(number))
        self.address = ",".join(server.address for server in self.servers)

    def start(self) -> ZooKeeperEnsemble:
        with ThreadPoolExecutor() as pool:
            list(pool.map(ZooKeeperServer.start, self.servers))
        return self

    def kill(self) -> None:
        for server in self.servers:
            server.kill()
