"""What importing this library brings into a program, besides itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import importlib, os, sys
importlib.import_module(sys.argv[1])
assert "kio" in sys.modules or sys.argv[1].endswith(("spark", "worker_process", "plugin"))
assert "hypothesis" not in sys.modules
assert os.listdir() == []
import hypothesis.strategies
"""


@pytest.mark.parametrize(
    "module",
    [
        "kserver.errors",
        "kserver.peer",
        "kserver.wire.codec",
        "kserver.broker.process",
        "kserver.world.worker_process",
        "kcli.client.admin.admin",
        "kcli.client.consumer.consumer",
        "kcli.client.producer.producer",
        "kcli.segments.control_records",
        "kcli.spark",
        "kcli.testing.pytest_plugin",
    ],
)
def test_hypothesis_stays_out_and_leaves_no_directory(module, tmp_path):
    """kio has types registered with it, for its users' tests: 300 ms, and `.hypothesis`."""
    subprocess.run([sys.executable, "-c", WITHOUT, module], cwd=tmp_path, check=True)
