"""A standalone cluster of Spark, run by `k spark-cluster`, whose nodes are killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from random import Random
from typing import Self

from kcli.spark import cluster
from kcli.spark.standalone import Process
from tests.support.tools import K

START_S = 300
MEMORY = "600m"
"""Enough for an executor of 512m."""


class Cluster:
    """A master and two workers of one core each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = ""
        self._returned: list[subprocess.Popen[bytes]] = []
        self._environments: dict[int, dict[bytes, bytes]] = {}
        """Environments of killed nodes, by process."""

    def kill_node(self, random: Random) -> Process:
        """Kill a worker; its executors end with it."""
        found = [one for one in cluster.processes(str(self.directory)) if one.role == "worker"]
        node = random.choice(sorted(found, key=lambda one: one.name))
        # Without SPARK_HOME, which its script sets, a restarted worker starts nothing.
        variables = Path(f"/proc/{node.pid}/environ").read_bytes().split(b"\0")
        self._environments[node.pid] = dict(v.split(b"=", 1) for v in variables if v)
        os.kill(node.pid, signal.SIGKILL)
        return node

    def bring_back(self, node: Process) -> None:
        self._returned.append(
            subprocess.Popen(
                list(node.words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.directory,
                env=self._environments[node.pid],
                start_new_session=True,
            )
        )

    def __enter__(self) -> Self:
        words = ["--workers", "2", "--cores", "1", "--memory", MEMORY, "--port", "0"]
        started = self._run("start", *words, "--timeout", str(START_S))
        assert started.returncode == 0, started.stderr
        self.url = started.stdout.strip()
        return self

    def __exit__(self, *_: object) -> None:
        stopped = self._run("stop")
        for process in self._returned:
            process.wait(START_S)
        assert stopped.returncode == 0, stopped.stderr

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*K, "spark-cluster", *words, "--dir", str(self.directory)],
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * START_S,
        )
