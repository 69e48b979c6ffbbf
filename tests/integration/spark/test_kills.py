"""Test kill -9 of driver and broker: exact sinks stay exact, and the check finds duplicates in
others.

All sinks are queries of one driver, so that each kill affects all of them. The long form, with the
jobs and on a cluster, is `pytest tests/soak/soak_spark.py`.
"""

from __future__ import annotations

import pytest

from tests.support import brokers, tools
from tests.support.spark_cases import Harmed, program

pytest.importorskip("pyspark", reason="the extra spark")

MAX_ROUNDS = 30
VICTIMS = ("driver", "broker")
SEED = 7
EXACT, NOT_EXACT = ("files", "exactly"), ("topic",)


def test_what_is_exact_stays_so_under_kills_and_the_same_kills_show_what_is_not(tmp_path):
    tools.require("java")

    def make(*where):
        return program(*where, *EXACT, *NOT_EXACT)

    with (
        brokers.running(brokers.KINDS[0], tmp_path / "broker") as broker,
        Harmed(broker, tmp_path, make, SEED) as harmed,
    ):
        doubled: dict[str, int] = {}
        while len(harmed.harms) < len(VICTIMS) or not all(doubled[name] for name in NOT_EXACT):
            assert len(harmed.harms) < MAX_ROUNDS, (doubled, harmed.harms)
            harmed.harm(VICTIMS[len(harmed.harms) % len(VICTIMS)], at_any_time=0)
            doubled = harmed.doubled()
            print(harmed.harms[-1], doubled)
        verdicts = harmed.finish()
    print(verdicts)
    for name in EXACT:
        assert verdicts[name].exact, (verdicts, harmed.harms)
    for name in NOT_EXACT:
        assert (verdicts[name].missing, verdicts[name].foreign) == (0, 0), verdicts
        assert verdicts[name].doubled, verdicts
