"""`k spark-submit JOB` in its own process, on a small Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.support.tools import K

SMALL = (
    *("--master", "local[2]", "--driver-memory", "512m"),
    *("--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
    *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
)


def job(*words: str) -> subprocess.CompletedProcess[str]:
    return run_all([*K, "spark-submit", *SMALL, *words], env=environment())


def environment() -> dict[str, str]:
    """Return the environment without the variables of a Spark that runs here."""
    names = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_HOME"}
    return {name: text for name, text in os.environ.items() if name not in names}


def run_all(
    command: Sequence[str], *, timeout_s: float = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run as subprocess.run; on a timeout, kill all processes that it started, which keep its pipes
    open.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
