"""Test `k zookeeper-server-start` and `k zookeeper-server-stop`: config files, errors, output."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kcli.commands.server_stop import running
from kcli.commands.zookeeper_server_stop import after_start
from kserver.zookeeper_server.jute import AclRecord, CreateRequest, Err, OpCode
from tests.support.tools import K
from tests.support.zookeeper_client import RawClient
from tests.support.zookeeper_server import OwnZooKeeperServer

PATIENCE_S = 60
OPEN = (AclRecord(31, "world", "anyone"),)
SERVES = re.compile(r"ZooKeeper listening on (\S+:\d+) in \d+ ms, data in (\S+) ")


@pytest.fixture
def file(tmp_path):
    """A config file with a port that the server chooses."""
    path = tmp_path / "zookeeper.properties"
    path.write_text(
        f"dataDir={tmp_path}/data\nclientPort=0\nclientPortAddress=127.0.0.1\nmaxClientCnxns=2\n"
    )
    return path


def k(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*K, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, **options)


def ask(address: str, word: bytes) -> str:
    client = RawClient(address)
    client.socket.sendall(word)
    with client.socket.makefile("rb") as answer:
        return answer.read().decode()


class Server:
    """A started server, with `prefix` before its command."""

    def __init__(self, file: Path, *prefix: str) -> None:
        command = [*prefix, *K, "zookeeper-server-start", str(file)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line)
            if found := SERVES.search(line):
                self.address = found[1]
                return
        raise RuntimeError("".join(self.lines))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_one_line_says_where_it_serves(file, tmp_path):
    with Server(file) as server:
        assert len(server.lines) == 1
        assert SERVES.search(server.lines[0])[2] == f"{tmp_path}/data"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_0_though_a_client_is_there(file, number):
    with Server(file) as server:
        client = RawClient(server.address).connect()
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE_S) == 0
        client.close()


def test_only_srvr_is_answered_unless_the_file_says_more(file):
    with Server(file) as server:
        assert "Mode: standalone" in ask(server.address, b"srvr")
        refused = "ruok is not executed because it is not in the whitelist.\n"
        assert ask(server.address, b"ruok") == refused


def test_an_address_has_as_many_connections_as_the_file_says(file):
    with Server(file) as server:
        held = [RawClient(server.address).connect() for _ in range(2)]
        assert RawClient(server.address).is_cut_off()
        held.pop().close()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                RawClient(server.address).connect().close()
                break
            except ConnectionError:  # the server has not noticed the closed connection yet
                assert time.monotonic() < deadline


def test_what_is_not_known_is_named_in_a_warning(file):
    file.write_text(file.read_text() + "tickTme=500\nadmin.enableServer=false\n")
    with Server(file) as server:
        (warning, _) = server.lines
        assert "WARNING tickTme is not known here: ignored" in warning


def test_a_second_server_of_the_same_data_is_refused(file, tmp_path):
    with Server(file):
        refused = k("zookeeper-server-start", file)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"k zookeeper-server-start: {tmp_path}/data is used by another server\n"
    )


def test_a_port_that_is_taken_is_named(file, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(file.read_text().replace("clientPort=0", f"clientPort={port}"))
        refused = k("zookeeper-server-start", file)
        environment = os.environ | {"LOG_DIR": str(tmp_path)}
        behind = k("zookeeper-server-start", "-daemon", file, env=environment)
    assert refused.returncode == 1
    told = (
        f"k zookeeper-server-start: cannot listen at 127.0.0.1:{port}: Address already in use;"
        " stop the process that listens there, or set another clientPort\n"
    )
    assert refused.stderr == told
    assert behind.returncode == 1
    assert behind.stderr == told


def test_data_that_is_damaged_is_refused(file, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "znodes.msgpack").write_bytes(b"x" * 100)
    refused = k("zookeeper-server-start", file)
    assert refused.returncode == 1
    assert re.fullmatch(
        r"k zookeeper-server-start: \S+/znodes.msgpack is damaged at byte 0: restore .*\n",
        refused.stderr,
    )


def test_a_disk_that_fails_ends_it_and_what_was_answered_is_kept(file, tmp_path):
    def create(client, path, data):
        return client.call(OpCode.CREATE, CreateRequest(path, data, OPEN, 0))

    # Limits the size of a file to 64 blocks, of 512 or 1,024 bytes.
    limited = ("sh", "-c", 'ulimit -f 64; exec "$@"', "sh")
    with Server(file, *limited) as server:
        client = RawClient(server.address).connect()
        assert create(client, "/kept", b"x").err == Err.OK
        client.send(OpCode.CREATE, CreateRequest("/large", bytes(100_000), OPEN, 0))
        assert client.is_cut_off()
        rest, _ = server.process.communicate(timeout=PATIENCE_S)
        assert server.process.returncode == 1
        assert re.fullmatch(
            rf"k zookeeper-server-start: {tmp_path}/data/znodes.msgpack cannot be written: .*\n",
            rest,
        )
    with Server(file) as server:
        client = RawClient(server.address).connect()
        assert create(client, "/kept", b"x").err == Err.NODE_EXISTS
        assert create(client, "/large", b"x").err == Err.OK


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clientPort=1\n", "dataDir is missing"),
        ("dataDir=x\nclientPort=1\nserver.1=a:2888:3888\n", "x/myid is missing"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused_in_a_line(tmp_path, text, told):
    path = tmp_path / "zookeeper.properties"
    if text is not None:
        path.write_text(text)
    refused = k("zookeeper-server-start", path)
    assert refused.returncode == 1
    assert told in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_without_a_file_it_says_what_it_needs():
    refused = k("zookeeper-server-start")
    assert refused.returncode == 2
    assert "name one zookeeper.properties" in refused.stderr


def test_it_starts_in_the_background_and_is_stopped(file, tmp_path):
    # `k zookeeper-server-stop` looks for these words in command lines; K runs under another name.
    program = tmp_path / "k"
    program.write_text("import sys; from kcli.main import main; sys.exit(main())\n")
    environment = os.environ | {"LOG_DIR": str(tmp_path / "logs")}
    start = [sys.executable, str(program), "zookeeper-server-start", "-daemon", str(file)]
    run = {"capture_output": True, "text": True, "env": environment, "timeout": PATIENCE_S}
    started = subprocess.run(start, **run)
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    console = tmp_path / "logs" / "zookeeper.out"
    address = SERVES.search(console.read_text())[1]
    client = RawClient(address).connect()
    again = subprocess.run(start, **run | {"env": environment | {"LOG_DIR": str(tmp_path)}})
    assert again.returncode == 1
    assert "is used by another server" in again.stderr
    # Send no signal: other servers may be running on this machine.
    found = k("zookeeper-server-stop", env=os.environ | {"SIGNAL": "0"})
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    (own,) = (each.pid for each in running(after_start) if each.words == ["-daemon", str(file)])
    os.kill(own, signal.SIGTERM)
    assert client.is_cut_off()


def test_kazoo_keeps_its_session_over_a_restart(tmp_path):
    from kazoo.client import KazooClient

    with OwnZooKeeperServer(tmp_path) as server:
        client = KazooClient(server.address, timeout=30)
        client.start(PATIENCE_S)
        session = client.client_id
        client.create("/a", b"1", ephemeral=True)
        client.get("/a", watch=None)
        server.kill()
        server.start()
        assert client.retry(client.set, "/a", b"2").version == 1
        assert client.client_id == session
        client.stop()
        client.close()
