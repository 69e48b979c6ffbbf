"""The same as in test_swarm.py, over seeds that no run had before."""

from __future__ import annotations

import pytest

from tests.support.loop import simulate
from tests.support.seeds import fresh
from tests.support.swarm import swarm

TESTS = 8
SEEDS = 10
"""Of one test: together they take two minutes of one core."""


@pytest.mark.parametrize("number", range(TESTS))
def test_whatever_breaks_everything_promised_holds(number: int) -> None:
    for seed in fresh(number, SEEDS):
        simulate(swarm, seed)
