"""Test several brokers on one machine, each with its own config file, started and stopped with `k
server-start` and `k server-stop`; and the systemd example for three machines, with a directory in
place of each."""

from __future__ import annotations

import configparser
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kcli.apache_zookeeper import plan
from kcli.command.command import command_named
from kcli.commands.server_stop import after_start, running
from kserver.config.broker import BrokerConfig
from tests.support.tools import K
from tests.support.zookeeper_server import OwnZooKeeperServer, free_port

SYSTEMD = Path(__file__).parents[2] / "examples/systemd"
PATIENCE_S = 60
IDS = (1, 2, 3)


def k(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*K, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | environment,
    )


class Machines:
    """Three directories with the brokers' files of the systemd example, with ids, ports, paths and
    addresses replaced."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        # No other broker on this machine has these ids.
        self.ids = {machine: 20_000_000 + 10 * os.getpid() + machine for machine in IDS}
        self.ports = {machine: free_port() for machine in IDS}
        text = (SYSTEMD / "server.properties").read_text()
        for machine in IDS:
            port = self.ports[machine]
            changes = {
                r"^broker\.id=1$": f"broker.id={self.ids[machine]}",
                r"^listeners=.*": f"listeners=PLAINTEXT://127.0.0.1:{port}",
                r"^advertised\.listeners=.*": f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
                r"^log\.dirs=.*": f"log.dirs={directory}/data-{machine}",
                r"^zookeeper\.connect=.*": f"zookeeper.connect={zookeeper}",
                r"^http\.listener=.*": "http.listener=127.0.0.1:0",
            }
            own = text
            for pattern, line in changes.items():
                own, count = re.subn(pattern, line, own, flags=re.M)
                assert count == 1, pattern
            # The ids are outside the range that ZooKeeper assigns.
            self.file(machine).write_text(own + "broker.id.generation.enable=false\n")
        # `k server-stop` looks for these words in command lines; K itself runs under another name.
        (directory / "k").write_text("import sys; from kcli.main import main; sys.exit(main())\n")

    def file(self, machine: int) -> Path:
        return self.directory / f"server-{machine}.properties"

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, machine: int, *words: str) -> subprocess.CompletedProcess[str]:
        program = str(self.directory / "k")
        return subprocess.run(
            [sys.executable, program, "server-start", "-daemon", self.file(machine), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=os.environ | {"LOG_DIR": str(self.directory / "logs")},
        )

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running brokers, by their file."""
        files = {str(self.file(machine)) for machine in IDS}
        return {w: one.pid for one in running(after_start) for w in one.words if w in files}

    def stopped(self, id: int, file: Path) -> None:
        """Stop a broker with `k server-stop`; return once its process has ended."""
        process = os.pidfd_open(self.pids()[str(file)])
        try:
            assert k("server-stop", f"--node-id={id}").returncode == 0
            ended = select.poll()
            ended.register(process, select.POLLIN)
            assert ended.poll(PATIENCE_S * 1000)
        finally:
            os.close(process)

    def registered(self) -> set[int]:
        listed = k("cluster", "list-endpoints", "--bootstrap-server", self.servers, "-o", "jsonl")
        return {json.loads(line)["id"] for line in listed.stdout.splitlines()}


@pytest.fixture
def machines(tmp_path):
    with OwnZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        machines = Machines(tmp_path, zookeeper.address)
        yield machines
        for pid in machines.pids().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_brokers_of_one_machine_are_one_cluster_and_are_stopped_one_by_one(machines):
    with ThreadPoolExecutor() as pool:
        starts = list(pool.map(machines.start, IDS))
    assert [(done.returncode, done.stderr) for done in starts] == [(0, "")] * 3
    consoles = sorted(path.name for path in (machines.directory / "logs").iterdir())
    assert consoles == ["kafkaServer-2.out", "kafkaServer-3.out", "kafkaServer.out"]
    said = [(machines.directory / "logs" / name).read_text() for name in consoles]
    assert [text.count("] started in ") for text in said] == [1, 1, 1]
    server = ("--bootstrap-server", machines.servers)
    made = k("topics", *server, "--create", "--topic", "orders")
    assert made.returncode == 0, made.stderr
    described = k("topics", *server, "--describe", "--topic", "orders").stdout
    assert "ReplicationFactor: 3\tConfigs: min.insync.replicas=2" in described
    assert set(machines.pids()) == {str(machines.file(machine)) for machine in IDS}

    machines.stopped(machines.ids[2], machines.file(2))
    assert set(machines.pids()) == {str(machines.file(machine)) for machine in (1, 3)}
    assert machines.registered() == {machines.ids[1], machines.ids[3]}

    # --override takes effect at the start and in the search for a process.
    other = machines.ids[2] + 5
    assert machines.start(2, "--override", f"broker.id={other}").returncode == 1  # meta.properties
    moved = ("--override", f"log.dirs={machines.directory}/data-4")
    # The start reports readiness independent of the log level.
    moved += ("--override", "log.level=ERROR")
    assert machines.start(2, "--override", f"broker.id={other}", *moved).returncode == 0
    assert machines.registered() == {machines.ids[1], machines.ids[3], other}
    assert k("server-stop", f"--node-id={machines.ids[2]}").returncode == 0
    assert len(machines.pids()) == 3
    machines.stopped(other, machines.file(2))
    assert len(machines.pids()) == 2
    # No file sets process.roles, so no process matches.
    assert k("server-stop", "--process-role=no-such-role").returncode == 0
    assert len(machines.pids()) == 2


def test_the_units_start_what_there_is_with_files_that_are_right():
    for unit in SYSTEMD.glob("*.service"):
        parsed = configparser.RawConfigParser(strict=False)
        parsed.optionxform = str
        parsed.read(unit)
        program, command, file = shlex.split(parsed["Service"]["ExecStart"])
        assert program == "/opt/k/bin/k"
        command_named(command).make_context("k", [file]).close()
        directory = f"/var/lib/{parsed['Service']['StateDirectory']}"
        text = (SYSTEMD / Path(file).name).read_text()
        assert f"={directory}\n" in text
    config = BrokerConfig.load(str(SYSTEMD / "server.properties"))
    assert config.warnings == ()
    assert (config.default_replication_factor, config.min_insync_replicas) == (3, 2)
    servers = [f"kafka-{machine}:2181" for machine in IDS]
    assert config.zookeeper_connect == ",".join(servers)
    ensemble = plan.read((SYSTEMD / "zookeeper.properties").read_text(), "zookeeper.properties")
    assert sorted(ensemble.members) == [*IDS]
    assert (ensemble.port, ensemble.data_dir) == (2181, "/var/lib/k-zookeeper")
