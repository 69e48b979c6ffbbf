"""Test a reassignment of gigabytes of partitions, under load, to a broker added to the cluster; and
print the latency of producers meanwhile, on our brokers and on Apache's.

    pytest tests/soak/soak_reassignment.py            100 partitions with 10 GB, ten minutes each
    GIGABYTES=1 pytest -s tests/soak/soak_reassignment.py                      a tenth of it

The short forms are tests/integration/test_gigabyte_reassignment.py and, of 100 MB,
test_reassignment_under_load.py.
"""

from __future__ import annotations

import os
import shutil

import pytest

from tests.bench.servers import APACHE, OURS
from tests.support.large_reassignment import QUIET, THROTTLE, reassign_under_load
from tests.support.reassignment_latency import print_latency
from tests.support.tools import require

GIGABYTES = float(os.environ.get("GIGABYTES", "10"))
PARTITIONS = 100
PARTITION_BYTES = int(GIGABYTES * (1 << 30) / PARTITIONS)

pytestmark = pytest.mark.soak


def test_gigabytes_move_under_load(tmp_path):
    reassign_under_load(
        tmp_path,
        partitions=PARTITIONS,
        partition_bytes=PARTITION_BYTES,
        throttle=THROTTLE,
        rates=QUIET,
    )


def test_producers_next_to_those_of_apache(tmp_path):
    require("java")
    require("mvn")
    for name, kind in (("ours", OURS), ("apache", APACHE)):
        print_latency(
            kind,
            tmp_path / name,
            partitions=PARTITIONS,
            partition_bytes=PARTITION_BYTES,
            throttle=THROTTLE,
        )
        shutil.rmtree(tmp_path / name)
