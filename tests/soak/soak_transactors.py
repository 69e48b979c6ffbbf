"""Transactions of five client libraries, which are killed at random, and so are their brokers.

    pytest -s tests/soak/soak_transactors.py          3 rounds of 20 kills, on one broker and on
                                                      three, of each workload: an hour
    SOAK_ROUNDS=100 pytest -s tests/soak/soak_transactors.py -k three

Each record counts once, and the sum of all transfers is zero.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.integration.clients import exactly_once
from tests.integration.clients.transacting import Transactors
from tests.support.brokers import OURS, running
from tests.support.process_cluster import Cluster

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "3"))
KILLS = 20
BROKER_DIES = 0.2
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
REPLICATED = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.state.log.min.isr": 2,
}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("workload", [exactly_once.copy, exactly_once.transfer])
def test_round_on_one_broker(tmp_path, workload, seed):
    random = Random(seed)
    programs = tmp_path / "programs"
    programs.mkdir()
    with (
        running(OURS, tmp_path / "broker", SETTINGS) as broker,
        Transactors(programs, seed) as transactors,
    ):

        def harm():
            if random.random() < BROKER_DIES:
                broker.kill()
                broker.start()

        workload(broker.address, "soak", transactors, KILLS, harm)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("workload", [exactly_once.copy, exactly_once.transfer])
def test_round_on_three_brokers(tmp_path, workload, seed):
    random = Random(seed)
    programs = tmp_path / "programs"
    programs.mkdir()
    with (
        Cluster(tmp_path / "cluster", SETTINGS | REPLICATED) as cluster,
        Transactors(programs, seed) as transactors,
    ):
        killed = []

        def harm():
            for broker in killed:
                broker.start()
            if killed:
                killed.clear()
                cluster.until_in_sync()
            if random.random() < BROKER_DIES:
                killed.append(random.choice(list(cluster.brokers.values())))
                killed[0].kill()

        addresses = cluster.addresses
        workload(addresses, "soak", transactors, KILLS, harm)
