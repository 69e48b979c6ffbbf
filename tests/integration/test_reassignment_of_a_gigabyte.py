"""What tests/soak/soak_reassignment.py does with ten, with one."""

from __future__ import annotations

from tests.support.large_reassignment import BUSY, reassign_under_load


def test_a_gigabyte_moves_under_load(tmp_path):
    reassign_under_load(tmp_path, partitions=10, partition_bytes=100 << 20, rates=BUSY)
