"""The same as in test_swarm.py, over a hundred more seeds and 140 new ones: the second
stage has the time.

Thousands are the soak's (`tests/soak/soak_swarm.py`).
"""

from __future__ import annotations

import pytest

from tests.simulation.test_swarm import SAME
from tests.simulation.test_swarm_fresh import SEEDS, TESTS
from tests.support.loop import simulate
from tests.support.seeds import fresh
from tests.support.swarm import swarm


@pytest.mark.parametrize("seed", list(range(SAME, SAME + 100)))
def test_whatever_breaks_everything_promised_holds(seed: int) -> None:
    simulate(swarm, seed)


@pytest.mark.parametrize("number", range(TESTS, TESTS + 14))
def test_it_holds_for_fresh_seeds_too(number: int) -> None:
    for seed in fresh(number, SEEDS):
        simulate(swarm, seed)
