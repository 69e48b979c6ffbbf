"""Test a reassignment under load: tests/soak/soak_reassignment.py with 1 % of its bytes at 10 % of
its rate. test_gigabyte_reassignment.py, in the second stage, has 10 % of its bytes."""

from __future__ import annotations

from tests.support.large_reassignment import BUSY, THROTTLE, reassign_under_load


def test_a_hundred_megabytes_move_under_load(tmp_path):
    reassign_under_load(
        tmp_path, partitions=10, partition_bytes=10 << 20, throttle=THROTTLE // 10, rates=BUSY
    )
