"""A standalone cluster of Spark: its processes' command lines, and the state of the master.

Pure: words, texts and documents in, words and values out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
ROLES = {MASTER: "master", WORKER: "worker", EXECUTOR: "executor"}
PYTHON = "pyspark."
"""Prefix of the modules that Spark's Python processes run."""

SETTINGS = {
    # No second entrance besides the master's port.
    "spark.master.rest.enabled": "false",
    # Fail if a port is taken, instead of using the next one.
    "spark.port.maxRetries": "0",
    "spark.worker.cleanup.enabled": "true",
}
ALIVE = "ALIVE"
MEMORY = re.compile(r"0*[1-9][0-9]*([kmgt]b?|b)?", re.IGNORECASE)
"""Spark's syntax of an amount of memory; without a unit it is MiB."""


@dataclass(frozen=True)
class SparkClusterPlan:
    """A cluster to start; the ports are free ones."""

    directory: str
    host: str
    port: int
    ui_port: int
    worker_ports: Sequence[int]
    cores: int
    """The cores of each worker."""
    memory: str

    @property
    def url(self) -> str:
        return f"spark://{self.host}:{self.port}"

    @property
    def settings_file(self) -> str:
        return f"{self.directory}/cluster.conf"

    def master(self) -> list[str]:
        return [MASTER, *self._shared(self.port, self.ui_port)]

    def worker(self, number: int) -> list[str]:
        return [
            WORKER,
            *self._shared(self.worker_ports[number - 1], 0),
            *("--cores", str(self.cores), "--memory", self.memory),
            *("--work-dir", f"{self.directory}/worker-{number}"),
            self.url,
        ]

    def _shared(self, port: int, ui_port: int) -> list[str]:
        return [
            *("--host", self.host, "--port", str(port), "--webui-port", str(ui_port)),
            *("--properties-file", self.settings_file),
        ]


def settings_text() -> str:
    return "".join(f"{name} {value}\n" for name, value in SETTINGS.items())


def environment(before: Mapping[str, str], host: str) -> dict[str, str]:
    """Return variables of the processes besides those of every Spark program: web pages on the same
    address, and little memory, since they only manage state.
    """
    return {
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": before.get("SPARK_DAEMON_MEMORY") or "512m",
        "SPARK_DAEMON_JAVA_OPTS": before.get("SPARK_DAEMON_JAVA_OPTS") or "-XX:+UseSerialGC",
    }


@dataclass(frozen=True)
class Process:
    """One process of a cluster, from its command line."""

    pid: int
    role: str
    """One of ROLES, or `python`."""
    words: Sequence[str]

    @classmethod
    def of(cls, pid: int, words: Sequence[str]) -> Process | None:
        """Return the process, or None if it is not one of Spark's."""
        for name, role in ROLES.items():
            if name in words:
                return cls(pid, role, words)
        runs = "-m" in words and any(word.startswith(PYTHON) for word in words)
        return cls(pid, "python", words) if runs else None

    def option(self, name: str) -> str:
        """Return the value of a master's or worker's option; empty if it has none."""
        at = self.words.index(name) + 1 if name in self.words else len(self.words)
        return self.words[at] if at < len(self.words) else ""

    @property
    def address(self) -> str:
        return f"{self.option('--host')}:{self.option('--port')}"

    @property
    def name(self) -> str:
        return os.path.basename(self.option("--work-dir")) if self.role == "worker" else self.role


@dataclass(frozen=True)
class ClusterProcess:
    """A master or worker of a cluster; unknown numbers are 0."""

    name: str
    pid: int | None
    """None for a worker that has ended and that the master remembers."""
    address: str
    state: str
    """The master's state of it; STARTING while the master does not know it."""
    cores: int = 0
    cores_used: int = 0
    memory_mb: int = 0


def members(
    processes: Sequence[Process], master_state: Mapping[str, Any] | None
) -> list[ClusterProcess]:
    """Return the master and its workers by name, from the processes and from the master's response,
    if any.
    """
    workers = {f"{w['host']}:{w['port']}": w for w in (master_state or {}).get("workers", [])}
    result = []
    for process in processes:
        if process.role == "master":
            state = (master_state or {}).get("status", "STARTING")
            result.append(ClusterProcess("master", process.pid, process.address, state))
        elif process.role == "worker":
            worker = workers.pop(process.address, {"state": "STARTING"})
            result.append(_worker(process.name, process.pid, process.address, worker))
    result += [_worker("worker", None, address, worker) for address, worker in workers.items()]
    return sorted(
        result, key=lambda member: (member.pid is None, member.name != "master", member.name)
    )


def _worker(name: str, pid: int | None, address: str, worker: Mapping[str, Any]) -> ClusterProcess:
    return ClusterProcess(
        name,
        pid,
        address,
        worker["state"],
        worker.get("cores", 0),
        worker.get("coresused", 0),
        worker.get("memory", 0),
    )


def alive(master_state: Mapping[str, Any]) -> int:
    """Return the number of a master's live workers."""
    return sum(worker["state"] == ALIVE for worker in master_state.get("workers", []))


def last_words(log: str) -> str:
    """Return why a process ended, from its log: its last error, or else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    stops = ("at ", "... ", "Caused by:")
    errors = [line for line in lines if re.search(r"Exception|Error\b|ERROR", line)]
    errors = [line for line in errors if not line.startswith(stops)]
    return (errors or lines or ["its log is empty"])[-1]
