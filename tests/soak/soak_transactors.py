"""Transactions of five client libraries, they and their broker killed by chance, for hours.

pytest -s tests/soak/soak_transactors.py                    3 rounds of 20 kills: 15 minutes
SOAK_ROUNDS=100 pytest -s tests/soak/soak_transactors.py
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.integration.clients import exactly_once
from tests.integration.clients.transacting import Transactors
from tests.support.brokers import OURS, running

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "3"))
KILLS = 20
BROKER_DIES = 0.2
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("workload", [exactly_once.copy, exactly_once.transfer])
def test_round(tmp_path, workload, seed):
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
