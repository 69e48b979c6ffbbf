"""Send corrupted requests and batches, by the million, to a broker in this process.

    pytest tests/soak/soak_fuzz.py          100 seeds: some 300,000 frames in ten minutes
    SOAK_SEEDS=0-10000 pytest tests/soak/soak_fuzz.py

A failure prints its seed and the frame; add the frame to `test_fuzz.FOUND`.
"""

from __future__ import annotations

import os

import pytest

from tests.fault import test_fuzz
from tests.fault.test_fuzz import _no_hang  # noqa: F401

FIRST, _, END = os.environ.get("SOAK_SEEDS", "1000-1100").partition("-")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(int(FIRST), int(END)))
@pytest.mark.parametrize(
    "fuzz",
    [
        test_fuzz.test_spoilt_requests_of_every_kind_are_answered_or_end_their_connection,
        test_fuzz.test_no_length_can_lie_in_what_is_read_by_hand,
        test_fuzz.test_a_spoilt_batch_is_refused_or_can_be_read_and_recovered,
    ],
    ids=["requests", "lengths", "batches"],
)
def test_fuzz_with(fuzz, seed):
    fuzz(seed)
