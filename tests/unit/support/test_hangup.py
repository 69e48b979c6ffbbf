"""pytest under nohup: a hangup ends the processes that tests start, and not pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEST = """
import os, signal, subprocess, sys
SHOW = "import signal; print(signal.getsignal(signal.SIGHUP).name)"
def test_child():
    os.kill(os.getpid(), signal.SIGHUP)
    shown = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True)
    assert shown.stdout.strip() == "SIG_DFL"
"""


@pytest.mark.parametrize("distribution", [(), ("-n", "1")])
def test_children_do_not_inherit_nohup(tmp_path, distribution):
    test = tmp_path / "test_one.py"
    test.write_text(TEST)
    words = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--noconftest", "-c", "setup.cfg"]
    run = [sys.executable, "-m", "pytest", *words, *distribution, str(test)]
    done = subprocess.run(
        ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *run],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
