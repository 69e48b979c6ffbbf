"""Run the test suites of two Go clients against three brokers, one of which fails now and then.

    pytest tests/soak/soak_go.py            a quarter of an hour

kgo (franz-go) chains consumers, groups and transactions and counts each record; meanwhile one
broker after the other is killed. sarama's tests connect to the brokers through toxiproxy, which
they instruct to cut connections; where they stop a broker with Docker, that broker is stopped.
Expected failures are listed with their reasons.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.go_suites import Compose, Suite, failed, module, outcomes
from tests.support.namespaces import Namespaces, Seat
from tests.support.process import BrokerProcess
from tests.support.process_cluster import Cluster, until
from tests.support.tools import require

KGO, SARAMA, TOXIPROXY = (
    "github.com/twmb/franz-go",
    "github.com/IBM/sarama",
    "github.com/Shopify/toxiproxy/v2",
)
TOXIPROXY_VERSION = "v2.12.0"
KAFKA_VERSION = "3.9.2"
"""Version of Kafka for which sarama is configured."""
RECORDS = 20_000
REPLICAS = 2
"""Replication factor: topics can be created while one broker is down."""
EACH_S, AWAY_S = 8, 3
"""Seconds between two kills, and seconds until the killed broker is restarted."""
SETTINGS = {
    "num.partitions": 3,
    "auto.create.topics.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}

KGO_FAILS = {
    "Test848RegexBrokerResolves": "counts __consumer_offsets' own records for one of the topics "
    "that it waits for, where an earlier test has committed",
}
"""Tests that fail now and then, with the reason."""
OLD_PRODUCE = "sends Produce v0 or v2, of which no broker from Kafka 4.0 on and none of ours knows"
SARAMA_FAILS = {
    f"TestFuncProducing{shape}/TestFuncProducing{shape}-v{version}": OLD_PRODUCE
    for shape in ("", "Gzip", "Snappy", "NoResponse", "Flushing")
    for version in ("0.8.2.0", "0.10.0.0")
} | {
    "TestFuncAdminDescribeLogDirs": "counts five brokers",
}
SARAMA_LEFT_OUT = dict.fromkeys(("TestVersionMatrix", "TestVersionMatrixLZ4"), OLD_PRODUCE)
"""Tests that are skipped because they wait minutes for each record."""


@pytest.fixture
def network():
    with Namespaces() as network:
        yield network


def kill_one_after_the_other(cluster: Cluster, until: Callable[[], bool]) -> None:
    """Kill one broker after the other, each for a while, until `until` returns true."""
    brokers = itertools.cycle(cluster.brokers.values())
    while not until():
        broker = next(brokers)
        time.sleep(EACH_S)  # the suite continues to run
        broker.kill()
        time.sleep(AWAY_S)
        broker.start()
        cluster.until_in_sync()


@pytest.mark.soak
def test_kgo(tmp_path):
    suite = Suite(module(KGO) / "pkg" / "kgo", tmp_path / "kgo.test")
    output = tmp_path / "output.txt"
    settings = SETTINGS | {
        "auto.create.topics.enable": "true",
        "default.replication.factor": REPLICAS,
    }
    with Cluster(tmp_path / "cluster", settings) as cluster:
        environment = {
            "KGO_SEEDS": cluster.addresses,
            "KGO_TEST_RF": str(REPLICAS),
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        process = suite.start(output, [], environment)
        try:
            kill_one_after_the_other(cluster, until=lambda: process.poll() is not None)
        finally:
            process.kill()
            process.wait()
        no_traceback(cluster)
    text = output.read_text(errors="replace")
    assert outcomes(text).get("TestTxnEtl") == outcomes(text).get("TestGroupETL") == "PASS", text
    assert failed(text) <= KGO_FAILS.keys(), text


class ProxiedCluster(Cluster):
    """Each broker has a second listener for clients that connect through the proxy. Its port, on
    the broker and on the proxy, ends with the broker's id."""

    def _broker(self, directory: Path, id_: int, settings: Mapping[str, object]) -> BrokerProcess:
        broker = super()._broker(directory, id_, settings)
        host = self.seats[broker].host
        broker.settings |= {
            "listeners": f"PLAINTEXT://{host}:9092,PROXIED://{host}:{proxied_port(id_)}",
            "advertised.listeners": (
                f"PLAINTEXT://{host}:9092,PROXIED://127.0.0.1:{proxied_port(id_)}"
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
            "broker.rack": f"rack-{id_}",
        }
        return broker


def proxied_port(id_: int) -> int:
    """Return the port on which sarama's tests expect the broker."""
    return 29090 + id_


@pytest.fixture(scope="module")
def toxiproxy(tmp_path_factory) -> Path:
    program = tmp_path_factory.mktemp("toxiproxy") / "toxiproxy"
    build = [require("go"), "build", "-o", str(program), "./cmd/server"]
    subprocess.run(build, cwd=module(TOXIPROXY, TOXIPROXY_VERSION), check=True)
    return program


@pytest.fixture(scope="module")
def sarama(tmp_path_factory) -> Suite:
    return Suite(module(SARAMA), tmp_path_factory.mktemp("sarama") / "sarama.test", "functional")


@pytest.mark.soak
def test_sarama(tmp_path, network, toxiproxy, sarama):
    output = tmp_path / "output.txt"
    seat = network.seat()
    with (
        ProxiedCluster(tmp_path / "cluster", SETTINGS, network=network) as cluster,
        Compose(tmp_path / "docker", composed(cluster)) as path,
    ):
        proxy = subprocess.Popen(
            [*seat.command, str(toxiproxy), "-host", seat.host],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            make_proxies(seat, cluster)
            environment = {
                "TOXIPROXY_ADDR": f"http://{seat.host}:8474",
                "KAFKA_VERSION": KAFKA_VERSION,
                "PATH": path,
            }
            names = "|".join(functional_tests(sarama.package))
            process = sarama.start(output, ["-test.run", f"^({names})$"], environment, seat.command)
            try:
                process.wait()
            finally:
                process.kill()
        finally:
            proxy.kill()
            proxy.wait()
        no_traceback(cluster)
    text = output.read_text(errors="replace")
    assert len(outcomes(text)) > 100, text
    assert failed(text) <= SARAMA_FAILS.keys(), text


def functional_tests(package: Path) -> list[str]:
    """Return the names of the tests that need brokers."""
    return [
        name
        for file in sorted(package.glob("functional*_test.go"))
        for name in re.findall(r"^func (Test\w+)\(t ", file.read_text(), re.M)
        if name not in SARAMA_LEFT_OUT
    ]


def composed(cluster: Cluster) -> Callable[[str, str], str]:
    """Return a function that applies a Docker command for a container to the matching broker."""

    def done(word: str, name: str) -> str:
        broker = cluster.brokers[int(name.removeprefix("kafka-"))]
        if word == "stop":
            broker.stop()
        elif word == "start":
            if broker.process is None or broker.process.poll() is not None:
                broker.start()
        else:
            assert word == "logs", word
            return "".join(broker.output)
        return ""

    return done


def make_proxies(seat: Seat, cluster: Cluster) -> None:
    """Create the five proxies that sarama's tests expect.

    There are three brokers, so the last two proxies lead to the first two brokers again.
    """
    address = f"http://{seat.host}:8474/proxies"

    def answers() -> bool:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)

    until(answers)
    for number in range(1, 6):
        id_ = (number - 1) % len(cluster.brokers) + 1
        wanted = {
            "name": f"kafka{number}",
            "listen": f"127.0.0.1:{proxied_port(number)}",
            "upstream": f"{cluster.seats[cluster.brokers[id_]].host}:{proxied_port(id_)}",
        }
        data = json.dumps(wanted).encode()
        with urllib.request.urlopen(urllib.request.Request(address, data), timeout=5):
            pass


def no_traceback(cluster: Cluster) -> None:
    output = "".join(line for broker in cluster.brokers.values() for line in broker.output)
    assert "Traceback" not in output, output[output.index("Traceback") - 500 :][:3000]
