"""Run the simulations with many more seeds; a failure's note names its seed."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.simulation import (
    test_broker,
    test_client,
    test_compaction,
    test_consumer_groups,
    test_consumers,
    test_coordinator,
    test_disks,
    test_exactly_once,
    test_groups,
    test_topics,
    test_transaction_coordinator,
    test_transactions,
)
from tests.support.loop import simulate

SEEDS = int(os.environ.get("SEEDS", "500"))
FIRST = int(os.environ.get("FIRST_SEED", "1000"))
SCENARIOS = {
    "power_cuts": test_broker.power_cuts,
    "unflushed_is_unseen": test_broker.unflushed_is_unseen,
    "idempotence": test_broker.idempotence,
    "made_anew": test_topics.made_anew,
    "killed_while_deleting": test_topics.killed_while_deleting,
    "compacted": test_compaction.compacted,
    "power_cuts of groups": test_coordinator.power_cuts,
    "power_cuts of transactions 1": partial(test_transaction_coordinator.power_cuts, version=1),
    "power_cuts of transactions 2": partial(test_transaction_coordinator.power_cuts, version=2),
    "transformed": test_exactly_once.transformed,
    "transferred": test_exactly_once.transferred,
    "idempotent client": test_client.idempotent,
    "refused client": test_client.refused,
    "reading client": test_client.reading,
    "one_directory_fails": test_disks.one_directory_fails,
    "all_are_full": test_disks.all_are_full,
    "replicas_move": test_disks.replicas_move,
    "cleaned_while_it_moves": test_disks.cleaned_while_it_moves,
    **{
        f"consumers {number}": partial(test_consumers.group, settings=settings)
        for number, settings in enumerate(test_consumers.PROTOCOLS)
    },
}
VIRTUAL = 10
"""Runs of the coordinator's shards alone, for each run of a whole broker."""


# One test per seed: pytest keeps a test's log records until the test ends, and with them all
# objects they refer to.
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_seed_holds(scenario, seed):
    simulate(SCENARIOS[scenario], seed)


@pytest.mark.parametrize("first", range(FIRST, FIRST + VIRTUAL * SEEDS, VIRTUAL))
@pytest.mark.parametrize("kind", test_groups.KINDS)
def test_groups_hold(kind, first):
    for seed in range(first, first + VIRTUAL):
        test_groups.run(seed, kind)


@pytest.mark.parametrize("first", range(FIRST, FIRST + VIRTUAL * SEEDS, VIRTUAL))
def test_consumer_groups_hold(first):
    for seed in range(first, first + VIRTUAL):
        test_consumer_groups.run(seed)


@pytest.mark.parametrize("first", range(FIRST, FIRST + VIRTUAL * SEEDS, VIRTUAL))
def test_transactions_hold(first):
    for seed in range(first, first + VIRTUAL):
        test_transactions.run(seed)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 10))
def test_one_seed_gives_one_trace(seed):
    assert simulate(test_broker.some_load, seed) == simulate(test_broker.some_load, seed)
