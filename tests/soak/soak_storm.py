"""Test one cluster of three brokers for a long time, with one fault after the other: kill -9,
SIGSTOP and network loss, of any broker and of any length.

    pytest tests/soak/soak_storm.py                         100 faults for each client and workload
    SOAK_ROUNDS=1000 pytest -s tests/soak/soak_storm.py     ten times as many; prints each

Prints its seed; `SEED` sets it. Requires root.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.support import cluster_faults
from tests.support.cluster_faults import LIBRARIES, SETTINGS, WORKLOADS
from tests.support.namespaces import Namespaces
from tests.support.process_cluster import APACHE, ENSEMBLE, OWN, Cluster

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "100"))
SEED = int(os.environ.get("SEED", "0")) or Random().randrange(1, 1 << 31)


@pytest.mark.soak
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_record_is_there_once_and_in_its_place(tmp_path, library, workload):
    random = Random(f"{SEED} {library} {workload}")
    zookeeper = random.choice((OWN, APACHE, ENSEMBLE))
    print(f"SEED={SEED}, ZooKeeper: {zookeeper}", flush=True)
    with (
        Namespaces() as network,
        Cluster(tmp_path, SETTINGS, zookeeper, network) as cluster,
    ):
        topic = cluster_faults.storm(cluster, library, workload, random, ROUNDS)
        cluster_faults.check_at_rest(cluster, topic)
