"""Test `k zookeeper-server-start` with Apache's ZooKeeper: where it is found, how it runs, and the
error messages if something is missing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kcli.commands.server_stop import running
from kcli.commands.zookeeper_server_stop import after_start
from tests.support import tools
from tests.support.tools import K, free_port

PATIENCE_S = 100
IDS = (1, 2, 3)


def k(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*K, *map(str, words)]
    heap = {"KAFKA_HEAP_OPTS": "-Xmx64M -XX:+UseSerialGC"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | heap | environment,
    )


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines of standard error except notices of a slow start, which may appear."""
    return [line for line in done.stderr.splitlines() if "still starting" not in line]


def file_of(directory: Path, port: int, *lines: str) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "zookeeper.properties"
    path.write_text(
        f"dataDir={directory}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n" + "".join(f"{line}\n" for line in lines)
    )
    return path


def mode_of(port: int) -> str:
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection,
    ):
        connection.sendall(b"srvr")
        with connection.makefile("r") as answer:
            if found := re.search(r"Mode: (\w+)", answer.read()):
                return found[1]
    return "none"


def pids_of(path: Path) -> list[int]:
    return [each.pid for each in running(after_start) if each.words[-1:] == [str(path)]]


@pytest.fixture
def started():
    """Config files of the servers that a test starts; the servers are killed at the end."""
    files: list[Path] = []
    yield files
    for file in files:
        for pid in pids_of(file):
            os.kill(pid, signal.SIGKILL)


def test_three_are_one_ensemble_and_are_found_to_be_stopped(tmp_path, started):
    tools.require("java")
    tools.require("pyspark")
    ports = {id: [free_port() for _ in range(3)] for id in IDS}
    members = [f"server.{id}=127.0.0.1:{at[1]}:{at[2]}" for id, at in ports.items()]
    timing = ("tickTime=500", "initLimit=20", "syncLimit=20")
    for id in IDS:
        file = file_of(tmp_path / str(id), ports[id][0], *timing, *members)
        (tmp_path / str(id) / "data").mkdir()
        (tmp_path / str(id) / "data/myid").write_text(f"{id}\n")
        started.append(file)
    with ThreadPoolExecutor() as pool:
        starts = pool.map(
            lambda file: k("zookeeper-server-start", "-daemon", file, LOG_DIR=str(file.parent)),
            started,
        )
    assert [(done.returncode, errors(done)) for done in starts] == [(0, [])] * 3
    deadline = time.monotonic() + PATIENCE_S
    while sorted(map(mode_of, (at[0] for at in ports.values()))) != [
        "follower",
        "follower",
        "leader",
    ]:
        assert time.monotonic() < deadline, (started[0].parent / "zookeeper.out").read_text()
        time.sleep(0.1)  # the server cannot notify this process
    servers = ",".join(f"127.0.0.1:{at[0]}" for at in ports.values())
    assert k("zookeeper-shell", servers, "ls", "/").stdout.splitlines()[-1] == "[zookeeper]"
    assert "LEADER ELECTION TOOK" in "".join(
        (file.parent / "zookeeper.out").read_text() for file in started
    )
    assert [len(pids_of(file)) for file in started] == [1, 1, 1]


def test_one_alone_is_apaches_where_that_is_asked_for(tmp_path, started):
    tools.require("java")
    tools.require("pyspark")
    port = free_port()
    file = file_of(tmp_path, port)
    started.append(file)
    command = [*K, "zookeeper-server-start", "--apache", str(file)]
    heap = {"KAFKA_HEAP_OPTS": "-Xmx64M"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | heap) as run:
        assert any("binding to port" in line for line in run.stdout)
        while mode_of(port) != "standalone":
            assert run.poll() is None
        refused = k("zookeeper-server-start", "-daemon", "--apache", file, LOG_DIR=str(tmp_path))
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 143
    assert refused.returncode == 1
    assert refused.stderr == (
        f"k zookeeper-server-start: ZooKeeper cannot listen at 127.0.0.1:{port}: Address already in"
        " use; stop the process that listens there, or set another clientPort\n"
    )


def test_it_is_taken_from_zookeeper_home(tmp_path, started):
    java = tools.require("java")
    home = tmp_path / "home"
    home.mkdir()
    (home / "lib").symlink_to(Path(tools.require("pyspark")) / "jars")
    file = file_of(tmp_path, free_port())
    started.append(file)
    done = k(
        "zookeeper-server-start",
        "-daemon",
        "--apache",
        file,
        LOG_DIR=str(tmp_path),
        ZOOKEEPER_HOME=str(home),
        JAVA_HOME=str(Path(java).resolve().parents[1]),
    )
    assert (done.returncode, errors(done)) == (0, [])
    (pid,) = pids_of(file)
    assert f"{home}/lib/*" in Path(f"/proc/{pid}/cmdline").read_text()


ENSEMBLE = ("server.1=a:2888:3888", "server.3=b:2888:3888")


@pytest.mark.parametrize(
    ("myid", "lines", "environment", "told"),
    [
        (None, ENSEMBLE, {}, "/data/myid is missing: it holds the number of this server, one of"),
        ("2", ENSEMBLE, {}, "/data/myid says 2, which {file} does not name with server.N: there"),
        ("x", ENSEMBLE, {}, "/data/myid says x, which"),
        (
            "1",
            ENSEMBLE,
            {"JAVA_HOME": "/nowhere"},
            "/nowhere/bin/java does not exist: install Java",
        ),
        ("1", ENSEMBLE, {"PATH": "/nowhere", "JAVA_HOME": ""}, "java does not exist: install Java"),
        (
            "1",
            ENSEMBLE,
            {"ZOOKEEPER_HOME": "/nowhere"},
            "neither /nowhere (ZOOKEEPER_HOME) nor its lib contains a zookeeper-*.jar",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(tmp_path, myid, lines, environment, told):
    tools.require("java")
    file = file_of(tmp_path, 0, *lines)
    if myid is not None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data/myid").write_text(myid)
    refused = k("zookeeper-server-start", file, **environment)
    assert refused.returncode == 1
    assert told.format(file=file) in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_without_one_it_says_where_it_may_come_from(tmp_path):
    tools.require("java")
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").touch()
    file = file_of(tmp_path, 0)
    refused = k("zookeeper-server-start", "--apache", file, PYTHONPATH=str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr == (
        "k zookeeper-server-start: Apache ZooKeeper is neither in PySpark's jars nor in"
        " ZOOKEEPER_HOME: install PySpark next to k (pip install 'k-kafka[spark]'), or set"
        " ZOOKEEPER_HOME to an unpacked release of Apache ZooKeeper\n"
    )
