"""Test a cluster under load while faults strike it: a short form of tests/soak/soak_cluster.py and
soak_storm.py."""

from __future__ import annotations

from random import Random

import pytest

from tests.support import cluster_faults
from tests.support.cluster_faults import (
    CONTROLLER,
    CUT,
    CUT_INCOMING,
    CUT_OUTGOING,
    CUT_PEER,
    FOLLOWER,
    KILL,
    LEADER,
    PAUSE,
    READ,
    SETTINGS,
    STOP,
    TRANSACT,
    WRITE,
    ZOOKEEPER,
    Cell,
)
from tests.support.namespaces import Namespaces
from tests.support.process_cluster import Cluster

CELLS = (
    Cell(KILL, LEADER, "confluent", TRANSACT),
    Cell(KILL, CONTROLLER, "k", WRITE),
    Cell(KILL, FOLLOWER, "k", READ),
    Cell(KILL, ZOOKEEPER, "confluent", WRITE),
    Cell(PAUSE, LEADER, "confluent", WRITE),
    Cell(PAUSE, CONTROLLER, "k", TRANSACT),
    Cell(STOP, LEADER, "confluent", READ),
    Cell(STOP, CONTROLLER, "java", WRITE),
    Cell(CUT, LEADER, "k", TRANSACT),
    Cell(CUT, FOLLOWER, "confluent", WRITE),
    Cell(CUT, CONTROLLER, "confluent", READ),
    Cell(CUT, ZOOKEEPER, "k", WRITE),
    Cell(CUT_OUTGOING, LEADER, "k", WRITE),
    Cell(CUT_INCOMING, CONTROLLER, "k", WRITE),
    Cell(CUT_PEER, LEADER, "k", TRANSACT),
    Cell(CUT_PEER, CONTROLLER, "confluent", WRITE),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    with Namespaces() as network, Cluster(directory, SETTINGS, network=network) as cluster:
        yield cluster


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_record_is_there_once_and_in_its_place(cluster, cell):
    cluster_faults.strike(cluster, cell, str(cell))


def test_one_fault_after_the_other(cluster):
    cluster_faults.storm(cluster, "k", TRANSACT, Random(1), rounds=4)
