"""Test Spark pipelines while driver, executors, Python workers, nodes and broker are killed (-9).

    pytest -s tests/soak/soak_spark.py              3 seeds of 10 kills each, hours
    SEEDS=0-2 ROUNDS=5 pytest -s tests/soak/soak_spark.py -k "Delta and not cluster"

Each kill is printed as it happens; the name of the test contains the seed.
"""

from __future__ import annotations

import os

import pytest

from tests.support import brokers, tools
from tests.support.spark_cases import EXACT, NOT_EXACT, SMALL, Harmed
from tests.support.spark_cluster import Cluster

SEEDS = range(*(int(n) for n in os.environ.get("SEEDS", "0-3").split("-")))
ROUNDS = int(os.environ.get("ROUNDS", "10"))


@pytest.fixture
def broker(tmp_path):
    tools.require("java")
    with brokers.running(brokers.KINDS[0], tmp_path / "broker") as broker:
        yield broker


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EXACT)
def test_on_one_machine_every_record_is_there_once(tmp_path, broker, name, seed):
    with Harmed(broker, tmp_path, EXACT[name], seed) as harmed:
        under_kills(harmed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EXACT)
def test_on_a_cluster_every_record_is_there_once(tmp_path, broker, name, seed):
    victims = ("driver", "worker", "executor", "node", "broker")
    with (
        Cluster(tmp_path / "cluster") as cluster,
        Harmed(
            broker,
            tmp_path,
            EXACT[name],
            seed,
            victims=victims,
            spark=("--master", cluster.url, *SMALL),
            cluster=cluster,
        ) as harmed,
    ):
        under_kills(harmed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NOT_EXACT)
def test_the_same_kills_find_what_is_there_twice(tmp_path, broker, name, seed):
    with Harmed(broker, tmp_path, NOT_EXACT[name], seed) as harmed:
        while not any(harmed.doubled().values()):
            assert len(harmed.harms) < ROUNDS, "not found: the check is blunt"
            print(harmed.harm(), flush=True)
        (verdict,) = harmed.finish().values()
    print(len(harmed.harms), "kills:", verdict)
    assert verdict.doubled
    assert (verdict.missing, verdict.foreign) == (0, 0)


def under_kills(harmed: Harmed) -> None:
    for _ in range(ROUNDS):
        print(harmed.harm(), flush=True)
    verdicts = harmed.finish()
    print(len(harmed.harms), "kills,", harmed.pipeline.starts, "drivers:", verdicts)
    assert all(verdict.exact for verdict in verdicts.values()), verdicts
