"""Test a reassignment of gigabytes of partitions, under load, to a broker added to the cluster.

    pytest tests/soak/soak_reassignment.py  100 partitions with 10 GB, ten minutes

The short form is tests/integration/test_reassignment_under_load.py.
"""

from __future__ import annotations

import pytest

from tests.support.large_reassignment import QUIET, THROTTLE, reassign_under_load


@pytest.mark.soak
def test_ten_gigabytes_move_under_load(tmp_path):
    reassign_under_load(
        tmp_path, partitions=100, partition_bytes=100 << 20, throttle=THROTTLE, rates=QUIET
    )
