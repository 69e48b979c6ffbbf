"""Test a reassignment under load: the short form of tests/soak/soak_reassignment.py, with 1 % of
its bytes at 10 % of its rate."""

from __future__ import annotations

from tests.support.large_reassignment import BUSY, THROTTLE, reassign_under_load


def test_a_hundred_megabytes_move_under_load(tmp_path):
    reassign_under_load(
        tmp_path, partitions=10, partition_bytes=10 << 20, throttle=THROTTLE // 10, rates=BUSY
    )
