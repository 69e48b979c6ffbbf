"""Test two brokers on an ensemble of three Apache ZooKeeper servers, below a chroot path."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.brokers import until
from tests.support.process import BrokerProcess
from tests.support.steady_load import SteadyLoad
from tests.support.zookeeper_server import ZooKeeperEnsemble

pytestmark = pytest.mark.story

CHROOT = "/clusters/one"
PATIENCE_S = 60
SETTINGS = {
    "zookeeper.session.timeout.ms": 4000,
    "zookeeper.connection.timeout.ms": 60_000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 2,
    "group.initial.rebalance.delay.ms": 0,
}


class Cluster:
    def __init__(self, directory):
        self.ensemble = ZooKeeperEnsemble(directory / "zookeeper", [("127.0.0.1", ())] * 3).start()
        connect = {"zookeeper.connect": self.ensemble.address + CHROOT}
        self.brokers = {
            id_: BrokerProcess(directory / f"broker-{id_}", SETTINGS | connect | {"broker.id": id_})
            for id_ in (1, 2)
        }
        with ThreadPoolExecutor() as pool:
            list(pool.map(BrokerProcess.start, self.brokers.values()))
        self.session = KazooClient(self.ensemble.address + CHROOT)
        self.session.start(PATIENCE_S)
        self.client = {"bootstrap.servers": ",".join(b.address for b in self.brokers.values())}
        self.admin = AdminClient(self.client)
        until(lambda: len(self.registrations()) == 2)

    def close(self):
        for broker in self.brokers.values():
            broker.kill()
        self.session.stop()
        self.session.close()
        self.ensemble.kill()

    def registrations(self):
        """Return, for each registered broker, the zxid that created its registration."""
        found = {
            id_: self.session.retry(self.session.exists, f"/brokers/ids/{id_}") for id_ in (1, 2)
        }
        return {id_: stat.czxid for id_, stat in found.items() if stat}

    def controller(self):
        """Return the controller's id and epoch, or None without a controller."""
        try:
            data, _ = self.session.retry(self.session.get, "/controller")
        except NoNodeError:
            return None
        epoch, _ = self.session.retry(self.session.get, "/controller_epoch")
        return json.loads(data)["brokerid"], int(epoch)

    def create(self, topic, partitions=1):
        until(lambda: self.is_created(topic, partitions))

    def is_created(self, topic, partitions):
        """Create the topic; return False if it has to be tried again.

        librdkafka sends the request to a broker that is no longer the controller and does not
        retry. If it does not know the controller's address, it may wait until the request times
        out.
        """
        if self.admin.list_topics(timeout=PATIENCE_S).controller_id not in self.brokers:
            return False
        (made,) = self.admin.create_topics([NewTopic(topic, partitions, 2)]).values()
        try:
            made.result(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                raise
            return False
        return True

    def in_sync(self, topic):
        metadata = self.admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        return all(len(p.isrs) == 2 for p in metadata.partitions.values())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("ensemble"))
    yield cluster
    cluster.close()


def test_brokers_outlive_the_leader_of_their_zookeepers(cluster):
    cluster.create("load", 4)
    before = cluster.registrations(), cluster.controller()
    with SteadyLoad(cluster.client, "load", 4) as load:
        load.advance()
        killed = next(s for s in cluster.ensemble.servers if s.mode == "leader")
        killed.kill()
        cluster.create("meanwhile")
        load.advance()
        killed.start()
    load.check()
    assert (cluster.registrations(), cluster.controller()) == before


def test_without_a_quorum_nothing_is_decided_and_then_it_goes_on(cluster):
    cluster.create("kept", 2)
    until(lambda: cluster.in_sync("kept"))
    stopped = cluster.ensemble.servers[:2]
    with SteadyLoad(cluster.client, "kept", 2) as load:
        load.advance()
        for server in stopped:
            server.kill()
        # Requests that need no controller decision continue.
        load.advance()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.start(), stopped))
        until(lambda: len(cluster.registrations()) == 2)
        until(lambda: cluster.controller() is not None)
        cluster.create("afterwards")
        load.advance()
    load.check()


def test_a_controller_that_overslept_its_session_is_none_when_it_wakes(cluster):
    cluster.create("slept", 2)
    until(lambda: cluster.in_sync("slept"))
    slept, epoch = cluster.controller()
    process = cluster.brokers[slept].process
    process.send_signal(signal.SIGSTOP)
    until(lambda: cluster.controller() not in (None, (slept, epoch)))
    next_controller, next_epoch = cluster.controller()
    assert (next_controller, next_epoch) == (3 - slept, epoch + 1)
    process.send_signal(signal.SIGCONT)
    until(lambda: len(cluster.registrations()) == 2)
    until(lambda: cluster.in_sync("slept"))
    cluster.create("woken")
    assert cluster.controller() == (next_controller, next_epoch)
    states = [
        json.loads(cluster.session.get(f"/brokers/topics/slept/partitions/{p}/state")[0])
        for p in range(2)
    ]
    assert max(state["controller_epoch"] for state in states) == next_epoch
    with SteadyLoad(cluster.client, "slept", 2) as load:
        load.advance()
    load.check()
