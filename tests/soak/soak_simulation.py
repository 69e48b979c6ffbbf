"""The simulations over many more seeds; the note of a failure names its seed."""

from __future__ import annotations

import os

import pytest

from tests.simulation import (
    test_broker,
    test_compaction,
    test_coordinator,
    test_exactly_once,
    test_groups,
    test_topics,
    test_transactions,
)
from tests.support.loop import simulate

SEEDS = int(os.environ.get("SEEDS", "500"))
SCENARIOS = (
    test_broker.power_cuts,
    test_broker.unflushed_is_unseen,
    test_broker.idempotence,
    test_topics.made_anew,
    test_compaction.compacted,
    test_topics.killed_while_deleting,
    test_coordinator.power_cuts,
    test_exactly_once.transformed,
    test_exactly_once.transferred,
)
VIRTUAL = 10
"""So many runs of shards alone for each of a broker."""


# A test a seed: pytest keeps the log records of a test until it ends, and they keep what they name.
@pytest.mark.parametrize("seed", range(1000, 1000 + SEEDS))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_seed_holds(scenario, seed):
    simulate(scenario, seed)


@pytest.mark.parametrize("first", range(1000, 1000 + VIRTUAL * SEEDS, VIRTUAL))
@pytest.mark.parametrize("kind", test_groups.KINDS)
def test_groups_hold(kind, first):
    for seed in range(first, first + VIRTUAL):
        test_groups.run(seed, kind)


@pytest.mark.parametrize("first", range(1000, 1000 + VIRTUAL * SEEDS, VIRTUAL))
def test_transactions_hold(first):
    for seed in range(first, first + VIRTUAL):
        test_transactions.run(seed)


@pytest.mark.parametrize("seed", range(1000, 1000 + SEEDS // 10))
def test_one_seed_gives_one_trace(seed):
    assert simulate(test_broker.some_load, seed) == simulate(test_broker.some_load, seed)
