"""A failing run is shrunk to what it fails with, and to a seed with which it does."""

from __future__ import annotations

import pytest

from tests.support.checks import Anomalies
from tests.support.shrinking import SEEDS, Drawn, failure, shrink

WORKLOADS = ["append", "money", "churn"]
FAULTS = ["kill", "pause", "cut", "reset"]


@pytest.mark.parametrize("lasts", [0, SEEDS - 1])
def test_what_is_not_needed_is_left_out(lasts):
    """Each time something is left out, only a later seed fails."""
    tried = []

    def fails(drawn):
        tried.append(drawn)
        gone = len(WORKLOADS) - len(drawn.workloads) + len(FAULTS) - len(drawn.faults)
        needed = "money" in drawn.workloads and {"kill", "cut"} <= set(drawn.faults)
        return needed and drawn.seed == 7 + lasts * gone

    smallest = shrink(Drawn(WORKLOADS, FAULTS, 7), fails)
    assert (smallest.workloads, smallest.faults) == (["money"], ["kill", "cut"])
    assert smallest.seed == 7 + lasts * 4
    assert len(set(map(repr, tried))) == len(tried)


def test_a_run_of_which_every_smaller_one_passes_stays_as_it_is():
    drawn = Drawn(WORKLOADS, FAULTS, 7)
    assert shrink(drawn, lambda smaller: smaller == drawn) is drawn
    alone = Drawn(["money"], ["kill"], 7)
    assert shrink(alone, lambda smaller: True) is alone


def test_a_failure_is_known_by_its_checks_or_by_its_type():
    assert failure(Anomalies({"lost-write": ["a"], "led": ["b"]})) == {"lost-write", "led"}
    assert failure(TimeoutError()) == {"TimeoutError"}
