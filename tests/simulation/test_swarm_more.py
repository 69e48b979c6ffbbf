"""The same as in test_swarm.py, over a thousand more seeds: the second stage has the time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.simulation.test_swarm import SAME
from tests.support.loop import simulate
from tests.support.swarm import swarm

KNOWN: Mapping[int, str] = {
    1017: "a coordinator that is cut off from ZooKeeper alone tells offsets from before its session"
    " ended, as Kafka's does: what was transformed since is transformed again",
}
"""What is known and not mended yet."""


def known_or_not(seed: int) -> object:
    if seed not in KNOWN:
        return seed
    return pytest.param(seed, marks=pytest.mark.xfail(reason=KNOWN[seed], strict=True))


@pytest.mark.parametrize("seed", map(known_or_not, range(SAME, SAME + 1000)))
def test_whatever_breaks_everything_promised_holds(seed: int) -> None:
    simulate(swarm, seed)
