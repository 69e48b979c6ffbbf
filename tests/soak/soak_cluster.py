"""Test clusters of three brokers with every combination of fault, target, client library and
workload.

    pytest tests/soak/soak_cluster.py                       108 cells: three quarters of an hour
    CELLS=756 pytest tests/soak/soak_cluster.py             all cells, each with three ZooKeepers
    FIRST_CELL=108 pytest tests/soak/soak_cluster.py        the next 108 cells
    pytest 'tests/soak/soak_cluster.py' -k 'cut-leader'     some of them

Each cell has its own cluster. Besides the checks of `tests/support/cluster_faults.py`, the replicas
must be equal byte for byte at the end, and no broker may have logged a traceback.
"""

from __future__ import annotations

import itertools
import os

import pytest

from tests.support import cluster_faults
from tests.support.cluster_faults import FAULTS, LIBRARIES, SETTINGS, TARGETS, WORKLOADS, Cell
from tests.support.namespaces import Namespaces
from tests.support.process_cluster import APACHE, ENSEMBLE, OWN, Cluster

COUNT = int(os.environ.get("CELLS", "108"))
FIRST = int(os.environ.get("FIRST_CELL", "0"))
ALL = [
    (zookeeper, Cell(fault, target, library, workload))
    for fault, target, library, workload in itertools.product(FAULTS, TARGETS, LIBRARIES, WORKLOADS)
    for zookeeper in (OWN, APACHE, ENSEMBLE)
]
STRIDE = 109
"""With this stride, the first 108 cells include each fault and target with each ZooKeeper, library
and workload."""
SOME = [ALL[number * STRIDE % len(ALL)] for number in range(FIRST, min(FIRST + COUNT, len(ALL)))]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("zookeeper", "cell"), SOME, ids=[f"{zookeeper}-{cell}" for zookeeper, cell in SOME]
)
def test_every_record_is_there_once_and_in_its_place(tmp_path, zookeeper, cell):
    with (
        Namespaces() as network,
        Cluster(tmp_path, SETTINGS, zookeeper, network) as cluster,
    ):
        topic = cluster_faults.strike(cluster, cell, "soak")
        cluster_faults.check_at_rest(cluster, topic)
