"""Test brokers that stop, and start again at each other's ports, while a client writes.

For a while the other broker, the controller and the client know an address at which another broker
listens by now.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kserver.wire.api_key import ApiKey
from tests.support.cluster_faults import SOME, WRITE, Worker, expect, in_order, written
from tests.support.process import BrokerProcess
from tests.support.process_cluster import Cluster, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@contextlib.contextmanager
def writing(cluster: Cluster, topic: str) -> Iterator[Worker]:
    """Write to the topic; at the end, check that the cluster is well and has each record once."""
    worker = Worker("confluent", WRITE, bootstrap_server=cluster.addresses, topic=topic)
    try:
        worker.until_done(SOME)
        yield worker
        worker.until_progress()
        cluster.until_in_sync()
        worker.until_progress()
        worker.stop()
    finally:
        worker.kill()
    expect(worker, worker.done)
    found = in_order(written(cluster, topic, "read_committed"))
    assert found == f"0 to {len(worker.done)}", found
    addresses = {b.node_id: (b.host, b.port) for b in metadata(cluster, cluster.brokers[1]).brokers}
    assert addresses == {id_: ("127.0.0.1", b.port) for id_, b in cluster.brokers.items()}


def start_swapped(one: BrokerProcess, other: BrokerProcess) -> None:
    ports = one.port, other.port
    one.settings["listeners"], other.settings["listeners"] = (
        other.settings["listeners"],
        one.settings["listeners"],
    )
    with ThreadPoolExecutor() as pool:
        list(pool.map(BrokerProcess.start, (one, other)))
    assert (other.port, one.port) == ports


def metadata(cluster: Cluster, broker: BrokerProcess, *topics: str):
    asked = [{"name": topic} for topic in topics]
    return cluster.call(broker, ApiKey.METADATA, 7, topics=asked, allow_auto_topic_creation=False)


def brokers_by_role(cluster: Cluster, topic: str) -> tuple[BrokerProcess, ...]:
    """Return the leader of the topic and the two followers."""
    leader = cluster.partition(topic).leader
    return tuple(cluster.brokers[id_] for id_ in sorted(cluster.brokers, key=lambda i: i != leader))


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stopped", "killed"])
def test_a_leader_and_a_follower_that_swap_their_ports(
    cluster: Cluster, end: Callable[[BrokerProcess], object]
) -> None:
    topic = f"swapped-{end.__name__}"
    cluster.create(topic)
    cluster.until_in_sync(topic)
    leader, follower, _ = brokers_by_role(cluster, topic)
    with writing(cluster, topic):
        end(leader)
        end(follower)
        start_swapped(leader, follower)


def test_a_follower_that_was_away_finds_a_leader_that_swapped_its_port(cluster: Cluster) -> None:
    """Its fetcher connects to the leader's old address, where the other broker listens, and learns
    of the new one afterwards."""
    topic = "away"
    cluster.create(topic)
    cluster.until_in_sync(topic)
    leader, follower, away = brokers_by_role(cluster, topic)
    leader_id, away_id = (broker.settings["broker.id"] for broker in (leader, away))

    def is_unregistered() -> bool:
        return away_id not in {b.node_id for b in metadata(cluster, leader).brokers}

    def leads_alone() -> bool:
        ((partition,),) = (t.partitions for t in metadata(cluster, leader, topic).topics)
        return tuple(partition.isr_nodes) == (leader_id,)

    with writing(cluster, topic):
        os.kill(away.pid, signal.SIGSTOP)
        try:
            until(is_unregistered)
            follower.kill()
            until(leads_alone)
            leader.kill()
            start_swapped(leader, follower)
        finally:
            os.kill(away.pid, signal.SIGCONT)
    assert cluster.partition(topic).leader == leader_id
