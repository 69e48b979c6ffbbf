"""Test exactly-once processing of real clients that are killed at random: the short form of
tests/soak/soak_transactors.py."""

from __future__ import annotations

import pytest

from tests.integration.clients import exactly_once
from tests.integration.clients.transacting import Transactors

KILLS = 3
SEED = 20261121


@pytest.fixture
def transactors(catalogue):
    print(f"seed {SEED}")
    with Transactors(catalogue.directory, SEED) as transactors:
        yield transactors


@pytest.mark.parametrize("workload", [exactly_once.copy, exactly_once.transfer])
def test_each_transaction_happens_once_and_wholly(broker, name, transactors, workload):
    workload(broker.address, name, transactors, KILLS, harm=lambda: None)
