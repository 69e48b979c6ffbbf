"""Test a reassignment under load: tests/soak/soak_reassignment.py with 10 % of its bytes."""

from __future__ import annotations

from tests.support.large_reassignment import BUSY, THROTTLE, reassign_under_load


def test_a_gigabyte_moves_under_load(tmp_path):
    reassign_under_load(
        tmp_path, partitions=100, partition_bytes=10 << 20, throttle=THROTTLE, rates=BUSY
    )
