"""Test `k spark-submit land` as a process: killed, ended by Ctrl-C, and run to the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from tests.support.frames import fill
from tests.support.tools import K

ROOT = Path(__file__).parents[3]
COUNT = 40_000
PATIENCE_S = 300


class Run:
    """A run of the job in its own process group, as in a terminal."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*K, "spark-submit", "--master", "local[2]", "--driver-memory", "512m", "land", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": ""},
            start_new_session=True,
        )

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise AssertionError(self.process.communicate())
            time.sleep(0.05)  # the job cannot notify this process

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, number)

    def ended(self) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            raise
        return self.process.returncode, out, err


def test_killed_interrupted_and_run_to_its_end_it_lands_each_record_once(broker, topic, tmp_path):
    fill(broker, topic, COUNT // 2, COUNT // 2)
    commits = tmp_path / "at" / "landed" / "commits"
    words = ["--topics", topic, "--bootstrap-server", broker.address, "--partition-by", "hour"]
    words += ["--path", str(tmp_path / "lake"), "--checkpoint", str(tmp_path / "at")]
    slowly = [*words, "--max-offsets", "500", "--trigger", "continuous"]

    def batches() -> int:
        return (
            len([name for name in os.listdir(commits) if name.isdigit()]) if commits.exists() else 0
        )

    killed = Run(*slowly)
    killed.until(lambda: batches() >= 1)
    killed.signal(signal.SIGKILL)
    assert killed.ended()[0] == -signal.SIGKILL
    before = batches()

    interrupted = Run(*slowly)
    interrupted.until(lambda: batches() > before)
    interrupted.signal(signal.SIGINT)
    status, out, err = interrupted.ended()
    assert (status, out) == (130, "")
    assert "rows landed in" in err
    assert "Traceback" not in err

    status, out, err = Run(*words).ended()
    assert (status, out) == (0, ""), err
    files = sorted((tmp_path / "lake").rglob("*.parquet"))
    tables = [
        pq.read_table(file, columns=["partition", "offset"], partitioning=None) for file in files
    ]
    found = sorted(
        pair
        for table in tables
        for pair in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    )
    assert found == [(p, n) for p in range(2) for n in range(COUNT // 2)]


def test_what_fails_in_spark_is_told_in_a_line(broker, tmp_path):
    words = ["--topics", "none-such", "--bootstrap-server", broker.address]
    words += ["--path", str(tmp_path / "lake"), "--checkpoint", str(tmp_path / "at")]
    status, out, err = Run(*words).ended()
    assert (status, out) == (1, "")
    assert err.startswith("k spark-submit land: ")
    assert len(err.splitlines()) == 1
    assert "none-such" in err
