"""Test that `k` and Apache's scripts reassign, elect and verify with the same output on three of
Apache 3.9.2's brokers.

The short form is tests/integration/scripts/test_reassignments.py: on our brokers and on 4.3.1's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mixed_cluster import APACHE

ROOT = Path(__file__).parents[2]
TRANSCRIPTS = "tests/integration/scripts/test_reassignments.py"
PATIENCE_S = 1200


@pytest.mark.soak
def test_transcripts_on_apache_3_9() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", TRANSCRIPTS],
        cwd=ROOT,
        env=os.environ | {"CLUSTERS": APACHE},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
