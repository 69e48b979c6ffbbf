"""Spark applications that measure: each is a process with its own session that runs jobs on
request.

They run until the end of the run, so that each row finds a warm JVM.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kcli.spark import quick_start
from tests.bench.clients import ROOT
from tests.bench.machine import BenchError
from tests.bench.tree import tree_cpu_s

MODULE = "tests.bench.python.spark"
TIMEOUT_S = 900
END_TIMEOUT_S = 60


class Took(NamedTuple):
    seconds: float
    cpu_s: float
    """CPU seconds of this application's Python, JVM and workers."""
    found: object = None


class Application:
    """An application for one format; `paths` come before the source tree on the module search
    path."""

    def __init__(
        self, directory: Path, form: str, jars: Sequence[str] = (), paths: Sequence[Path] = ()
    ) -> None:
        directory.mkdir(parents=True)
        self._log = directory / "log.txt"
        environment = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
        environment |= {
            "PYTHONPATH": os.pathsep.join(map(str, (quick_start.DIRECTORY, *paths, ROOT))),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._began = time.perf_counter()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, form, str(directory), ",".join(jars)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                cwd=directory,  # Spark's workers look for modules there first
                start_new_session=True,
            )

    def run(self, job: str, **arguments: object) -> Took:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"job": job, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failure() from None
        found = self._answer()
        return Took(found["seconds"], found["cpu_s"], found["found"])

    def since_its_start(self) -> Took:
        return Took(time.perf_counter() - self._began, tree_cpu_s(self._process.pid))

    def close(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise self._failure()
        found: Mapping[str, Any] = json.loads(line)
        return found

    def _failure(self) -> BenchError:
        return BenchError(f"Spark has no answer: {self._log.read_text()[-2000:]}")
