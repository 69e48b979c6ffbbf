"""Test the pytest plugin as used by a project that has installed k."""

from __future__ import annotations

import configparser
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
END_TIMEOUT_MS = 30_000

CLIENT = """
import asyncio
import socket
import pytest
from kcli.client import Consumer, Producer, TopicPartition
from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.blocking import Blocking
from kcli.client.config import AdminConfig

def create(broker, topic):
    with Blocking(Admin, AdminConfig.of({"bootstrap.servers": str(broker)})) as admin:
        return admin.create_topics([NewTopic(topic)])[topic].partitions

def topics(broker):
    with Blocking(Admin, AdminConfig.of({"bootstrap.servers": str(broker)})) as admin:
        return [topic.name for topic in admin.list_topics()]
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory of tests in which only this plugin is loaded, whether it is installed or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.plugins = ["kcli.testing.pytest_plugin"]
    return pytester


def test_the_package_registers_the_plugin() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert "= kcli.testing.pytest_plugin" in setup["options.entry_points"]["pytest11"]


def test_a_test_has_a_broker_of_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        CLIENT
        + """
@pytest.mark.parametrize("again", [False, True])
def test_it_serves_and_nobody_else_was_there(kafka_broker, again, tmp_path):
    assert kafka_broker.bootstrap_servers == kafka_broker.address == str(kafka_broker)
    assert topics(kafka_broker) == []
    assert create(kafka_broker, "orders") == 1
    assert (tmp_path / "kafka/orders-0").is_dir()

def test_a_restart_keeps_address_and_data(kafka_broker):
    create(kafka_broker, "orders")
    before = kafka_broker.address
    kafka_broker.restart()
    assert kafka_broker.address == before
    assert topics(kafka_broker) == ["orders"]
    kafka_broker.kill()
    kafka_broker.start()
    assert topics(kafka_broker) == ["orders"]

def test_a_stopped_one_answers_nobody(kafka_broker):
    kafka_broker.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", kafka_broker.port))
    with socket.create_server(("127.0.0.1", kafka_broker.port)):
        with pytest.raises(RuntimeError, match="did not start(.|\\n)*in use"):
            kafka_broker.start()
    kafka_broker.start()
    assert topics(kafka_broker) == []

def test_another_lasts_for_the_session(kafka_broker_factory, kafka_broker, request):
    shared = kafka_broker_factory({"num.partitions": 5})
    assert shared.port != kafka_broker.port
    assert create(shared, "shared") == 5
    request.config.shared = shared

def test_as_this_test_sees(request):
    assert topics(request.config.shared) == ["shared"]
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=6)


def test_settings_come_from_the_project_and_nearer_ones_win(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
import pytest

@pytest.fixture(scope="session")
def kafka_broker_settings():
    return {"num.partitions": 2, "auto.create.topics.enable": False}
"""
    )
    project.makepyfile(
        CLIENT
        + """
def test_of_the_project(kafka_broker):
    assert create(kafka_broker, "orders") == 2

@pytest.mark.kafka_broker(settings={"num.partitions": 3})
class TestMarked:
    def test_of_the_class(self, kafka_broker):
        assert create(kafka_broker, "orders") == 3

    @pytest.mark.kafka_broker({"num.partitions": 4})
    def test_of_the_function(self, kafka_broker):
        assert create(kafka_broker, "orders") == 4
"""
    )
    project.runpytest_subprocess("--strict-markers").assert_outcomes(passed=3)


def test_a_failure_shows_what_the_broker_logged(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
import pytest

def test_passes(kafka_broker):
    pass

def test_fails(kafka_broker):
    assert kafka_broker.address == "elsewhere"

@pytest.mark.kafka_broker(settings={"num.partitions": "many"})
def test_cannot_start(kafka_broker):
    pass
"""
    )
    ran = project.runpytest_subprocess()
    ran.assert_outcomes(passed=1, failed=1, errors=1)
    ran.stdout.fnmatch_lines(
        ["*the broker did not start*", "*num.partitions*many*", "*Kafka broker log*", "*started*"]
    )
    assert str(ran.stdout).count("] started") == 1


CLUSTER = (
    CLIENT
    + """
def produce(cluster, topic, *values):
    with Blocking(Producer, {"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for value in values:
            producer.send(topic, value).result()

def consumed(cluster, topic, count):
    found = []
    config = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Blocking(Consumer, config) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            found += [record.value for record in consumer.poll(1000)]
    return found
"""
)


def test_a_test_has_a_cluster_whose_brokers_it_kills_and_starts(project: pytest.Pytester) -> None:
    project.makepyfile(
        CLUSTER
        + """
def test_it_is_complete_and_nobody_is_missed(kafka_cluster, tmp_path):
    assert kafka_cluster.running == [1, 2, 3]
    assert str(kafka_cluster) == kafka_cluster.bootstrap_servers
    assert create(kafka_cluster, "orders") == 1
    assert kafka_cluster.in_sync("orders") == [1, 2, 3]
    produce(kafka_cluster, "orders", b"before")
    leader = kafka_cluster.leader_of("orders", 0)
    kafka_cluster.kill(leader)
    assert leader not in kafka_cluster.running
    assert kafka_cluster.leader_of("orders") not in (leader, None)
    assert kafka_cluster.controller in kafka_cluster.running
    produce(kafka_cluster, "orders", b"after")
    assert consumed(kafka_cluster, "orders", 2) == [b"before", b"after"]
    before = kafka_cluster.bootstrap_servers
    kafka_cluster.start(leader)
    kafka_cluster.wait_in_sync("orders")
    assert kafka_cluster.bootstrap_servers == before
    kafka_cluster.restart(kafka_cluster.coordinator_of("some group"))
    assert consumed(kafka_cluster, "orders", 2) == [b"before", b"after"]
    assert (tmp_path / "kafka-cluster/broker-3").is_dir()
    host, _, port = kafka_cluster.zookeeper_connect.rpartition(":")
    socket.create_connection((host, int(port))).close()

@pytest.mark.kafka_cluster(brokers=2, settings={"num.partitions": 4})
async def in_a_loop(cluster):
    cluster.stop(1)
    return cluster.leader_of("orders", 3)

@pytest.mark.kafka_cluster(brokers=2, settings={"num.partitions": 4})
def test_a_marker_says_how_many_and_with_which_keys(kafka_cluster):
    assert create(kafka_cluster, "orders") == 4
    # Also where a loop runs already.
    assert asyncio.run(in_a_loop(kafka_cluster)) == 2
    with pytest.raises(RuntimeError, match="runs already"):
        kafka_cluster.start(2)
    kafka_cluster.kill(2)
    with pytest.raises(RuntimeError, match="no broker of the cluster runs"):
        kafka_cluster.leader_of("orders")

def test_one_lasts_for_the_session(kafka_cluster_factory, request):
    request.config.shared = kafka_cluster_factory(1)
    create(request.config.shared, "shared")

def test_as_this_test_sees(request):
    assert topics(request.config.shared) == ["shared"]
"""
    )
    project.runpytest_subprocess("--strict-markers").assert_outcomes(passed=4)


def test_a_failure_shows_what_each_server_of_a_cluster_logged(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
import pytest

@pytest.mark.kafka_cluster(brokers=2)
def test_fails(kafka_cluster):
    assert kafka_cluster.running == []

@pytest.mark.kafka_cluster(settings={"num.partitions": "many"})
def test_cannot_start(kafka_cluster):
    pass
"""
    )
    ran = project.runpytest_subprocess()
    ran.assert_outcomes(failed=1, errors=1)
    ran.stdout.fnmatch_lines(["*the broker did not start*", "*num.partitions*many*"])
    for server, said in (
        ("broker 1", "started"),
        ("broker 2", "started"),
        ("zookeeper", "listening"),
    ):
        ran.stdout.fnmatch_lines([f"*Kafka cluster log, {server}*", f"*{said}*"])


def test_a_project_that_uses_none_imports_nothing_and_starts_nothing(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        """
import os, sys
from pathlib import Path

def test_nothing_is_there():
    ours = {name for name in sys.modules if name.split(".")[0] in ("kcli", "kserver", "kio")}
    assert ours == {"kcli", "kcli.testing", "kcli.testing.pytest_plugin"}
    assert not Path(f"/proc/self/task/{os.getpid()}/children").read_text()
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_killed_run_leaves_no_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
import sys

def test_is_killed(kafka_broker):
    print("\\npid:", kafka_broker.pid, file=sys.__stdout__, flush=True)
    sys.stdin.read()
"""
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-s", "-p", "kcli.testing.pytest_plugin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=project.path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    with run:
        assert run.stdout is not None
        said = next(line for line in run.stdout if line.startswith("pid:"))
        broker = os.pidfd_open(int(said.removeprefix("pid:")))
        run.kill()
    try:
        ended = select.poll()
        ended.register(broker, select.POLLIN)
        assert ended.poll(END_TIMEOUT_MS), "the broker is still there"
    finally:
        os.close(broker)
