from __future__ import annotations

import os
import subprocess
import sys

from tests.bench.tree import tree_cpu_s

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
MIN_S = 0.25
"""Told in ticks of 10 ms, user and system time each by itself."""
NEST = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BURN!r} + "print(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(flush=True)
input()
"""


def test_what_children_use_counts_while_they_run_and_after_they_end():
    before = tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    ended = tree_cpu_s(os.getpid())
    assert ended - before >= MIN_S
    with subprocess.Popen(
        [sys.executable, "-c", NEST], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert tree_cpu_s(os.getpid()) - ended >= MIN_S
        assert tree_cpu_s(parent.pid) >= MIN_S
        parent.communicate(b"\n")


def test_a_process_that_is_gone_used_nothing():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert tree_cpu_s(gone.pid) == 0
