"""Test a rolling replacement: three brokers of Apache Kafka 3.9 are replaced by ours one by one,
and back."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from kserver.wire.batch import batches
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START, serves
from tests.support.mixed_cluster import APACHE, PATIENCE_S, SETTINGS, until
from tests.support.steady_load import SteadyLoad
from tests.support.tools import K, free_port, require
from tests.support.zookeeper_server import OwnZooKeeperServer

pytestmark = pytest.mark.story

ROOT = Path(__file__).parents[2]
IDS = (1, 2, 3)
LOAD, PARTITIONS = "load", 6
REPLACE = ROOT / "examples/replace-broker.sh"
STOP = """\
kill "$1"
while [ -e "/proc/$1/stat" ] && ! grep -q ') Z' "/proc/$1/stat"; do sleep 0.1; done
"""
"""Script that ends a process and waits for it; a zombie counts as stopped, because only this test
could reap it."""


class Place:
    """The identity of a broker independent of its program: id, address and directories."""

    def __init__(self, directory: Path, id_: int, zookeeper: str) -> None:
        self.directory = directory
        self.directory.mkdir()
        self.data = directory / "data"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._stop = directory / "stop.sh"
        self._stop.write_text(STOP)
        settings = SETTINGS | {"broker.id": id_}
        self._apache = [
            *(sys.executable, apache_kafka.__file__, "server", APACHE),
            *("--data", str(directory), "--port", str(self.port), "--zookeeper", zookeeper),
            *(f"--override={key}={value}" for key, value in settings.items()),
        ]
        # The start of Apache's broker writes this file.
        self._ours = [*K, "server-start", str(directory / "server.properties")]

    def start(self, kind: str) -> str:
        """Return the shell command that starts the broker in the background and writes its process
        id."""
        command = shlex.join(self._ours if kind == "k" else self._apache)
        inner = (
            f"echo $$ > {self.directory}/pid; exec {command} >> {self.directory}/output.txt 2>&1"
        )
        return f"setsid -f sh -c {shlex.quote(inner)}"

    @property
    def stop(self) -> str:
        return f"sh {self._stop} {self.pid}"

    @property
    def pid(self) -> int:
        return int((self.directory / "pid").read_text())

    def program(self) -> str:
        """Return the command line of the running process.

        Returns "" if none runs, or if the id belongs to an unrelated process.
        """
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_text()
        except FileNotFoundError:
            return ""
        return words if str(self.directory) in words else ""

    def kill(self) -> None:
        if self.program():
            os.kill(self.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    require("java")
    require("mvn")
    apache_kafka.install(APACHE)
    directory = tmp_path_factory.mktemp("rolling")
    with OwnZooKeeperServer(directory / "zookeeper") as zookeeper:
        places = [Place(directory / f"broker-{id_}", id_, zookeeper.address) for id_ in IDS]
        try:
            for place in places:
                run(place.start(APACHE))
            until(lambda: all(serves(place.address) for place in places))
            session = KazooClient(zookeeper.address)
            session.start()
            until(lambda: len(session.get_children("/brokers/ids")) == len(IDS))
            session.stop()
            session.close()
            yield places
        finally:
            for place in places:
                place.kill()


def run(command: str, **environment: str) -> None:
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        env=os.environ
        | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START, "KAFKA_HEAP_OPTS": "-Xmx512M"}
        | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def settings(places):
    return {"bootstrap.servers": ",".join(place.address for place in places)}


@pytest.fixture(scope="module")
def load(places):
    admin = AdminClient(settings(places))
    (made,) = admin.create_topics([NewTopic(LOAD, PARTITIONS, 3)]).values()
    made.result(PATIENCE_S)
    with SteadyLoad(settings(places), LOAD, PARTITIONS) as load:
        load.advance()
        yield load


@pytest.fixture
def commands(tmp_path):
    """A PATH that contains `k`."""
    k = tmp_path / "k"
    k.write_text(f'#!/bin/sh\nexec {shlex.join(K)} "$@"\n')
    k.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("kind", ["k", APACHE], ids=["to-ours", "and-back"])
def test_a_broker_is_replaced_and_no_client_is_told_of_it(places, load, commands, kind, place):
    at = places[place]
    # The last one's data is deleted, so that it has to fetch everything.
    stop = at.stop if place < 2 else f"{at.stop}; rm -r {at.data}"
    run(
        shlex.join(["sh", str(REPLACE), stop, at.start(kind)]),
        K_BOOTSTRAP_SERVER=settings(places)["bootstrap.servers"],
        PATIENCE_S=str(PATIENCE_S),
        PATH=commands,
    )
    assert ("server-start" in at.program()) == (kind == "k")
    load.advance()


def test_in_the_end_every_record_is_there_once_and_replicas_are_byte_equal(places, load):
    load.__exit__()
    load.check()
    for place in places:
        run(place.stop)
    for partition in range(PARTITIONS):
        logs = [log_of(place.data / f"{LOAD}-{partition}") for place in places]
        assert logs[0] == logs[1] == logs[2]
        assert sum(1 for _ in batches(logs[0])) > 0


def log_of(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def test_the_script_says_how_it_is_used(commands):
    done = subprocess.run(["sh", REPLACE], capture_output=True, text=True, env={"PATH": commands})
    assert (done.returncode, done.stdout) == (2, "")
    assert "sh examples/replace-broker.sh 'systemctl stop kafka'" in done.stderr
