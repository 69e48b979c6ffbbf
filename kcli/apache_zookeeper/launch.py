"""Apache's ZooKeeper as a process: its Java, its jars, and its command line."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import socket
from collections.abc import Mapping
from typing import NamedTuple

from kcli.apache_zookeeper.plan import ApacheServer, member_number
from kcli.command.options import Refused

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
HEAP = "-Xmx512M -Xms512M"
"""As in Kafka's script."""
LOGGING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "log4j2.properties")
HOME = "ZOOKEEPER_HOME"
NOWHERE = (
    "Apache ZooKeeper is neither in PySpark's jars nor in ZOOKEEPER_HOME: install PySpark next "
    "to k (pip install 'k-kafka[spark]'), or set ZOOKEEPER_HOME to an unpacked release of Apache "
    "ZooKeeper"
)


class Launch(NamedTuple):
    """A server that can be started: `command` replaces this process, and then listens at `listens`,
    if the file specifies that.
    """

    command: list[str]
    listens: tuple[str, int] | None


def prepare(server: ApacheServer, path: str, environment: Mapping[str, str]) -> Launch:
    """Return the command. Raises Refused or ConfigError, with the remedy, if it could not start."""
    number = 0
    if server.members:
        number = member_number(server, _myid(server), path)
    listens = server.listens_as(number)
    if listens is not None:
        _check_free(*listens)
    words = [_java(environment), *environment.get("KAFKA_HEAP_OPTS", HEAP).split()]
    words += environment.get("KAFKA_OPTS", "").split()
    return Launch([*words, *_classes(environment), MAIN, path], listens)


def accepts(host: str, port: int) -> bool:
    """Whether a server listens there; "" is every address."""
    try:
        socket.create_connection((host or "127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if (path := shutil.which(java)) is None:
        raise Refused(
            f"Apache ZooKeeper needs Java, and {java} does not exist: install Java (on Debian: "
            "apt-get install default-jre-headless), or set JAVA_HOME"
        )
    return path


def _classes(environment: Mapping[str, str]) -> list[str]:
    """Return the options for the classes, and for the form of the log."""
    home = environment.get(HOME)
    if home:
        if not glob.glob(f"{home}/lib/zookeeper-*.jar") + glob.glob(f"{home}/zookeeper-*.jar"):
            raise Refused(
                f"neither {home} (ZOOKEEPER_HOME) nor its lib contains a zookeeper-*.jar: set "
                "ZOOKEEPER_HOME to an unpacked release of Apache ZooKeeper"
            )
        return ["-cp", f"{home}/conf:{home}/lib/*:{home}/*"]
    spec = importlib.util.find_spec("pyspark")
    jars = "" if spec is None else os.path.join(os.path.dirname(str(spec.origin)), "jars")
    if not glob.glob(f"{jars}/zookeeper-*.jar"):
        raise Refused(NOWHERE)
    # Spark has many other jars; the server ignores them.
    return [f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{jars}/*"]


def _myid(server: ApacheServer) -> str | None:
    try:
        with open(f"{server.data_dir}/myid", encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _check_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise Refused(
                f"ZooKeeper cannot listen at {host or '*'}:{port}: {error.strerror}; stop the "
                "process that listens there, or set another clientPort"
            ) from None
