"""A standalone cluster of Spark on this machine: started in the background, listed, and stopped.

The cluster's processes are read from the system, not from files, which may be outdated: they are
Spark's processes that run in its directory. That includes executors and Python workers of
applications, which may outlive a worker that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kcli.command.options import Refused
from kcli.spark import installation, standalone
from kcli.spark.standalone import ClusterProcess, Process, SparkClusterPlan

LOOK_AGAIN_S = 0.1
ANSWER_S = 5.0
GRACE_S = 10.0
"""Time for processes to end by themselves, and their executors with them."""


def start(
    directory: str,
    *,
    host: str,
    port: int,
    ui_port: int,
    workers: int,
    cores: int,
    memory: str,
    timeout_s: float,
) -> SparkClusterPlan:
    """Start a cluster, and return once all workers have registered with the master.

    Raises Refused or TimeoutError if that fails; then no process is left running.
    """
    script, environment = installation.script("spark-class")
    os.makedirs(directory, exist_ok=True)
    with _lock(directory):
        if (process := next(processes(directory), None)) is not None:
            raise Refused(
                f"a cluster is already running in {directory} (process {process.pid}); stop it "
                "with k spark-cluster stop, or start another one with another --dir"
            )
        ports = _usable_port(host, port, "--port"), _usable_port(host, ui_port, "--ui-port")
        plan = SparkClusterPlan(directory, host, *ports, _free_ports(host, workers), cores, memory)
        with open(plan.settings_file, "w", encoding="utf-8") as file:
            file.write(standalone.settings_text())
        launch = _Launch(plan, [script], environment, time.monotonic() + timeout_s)
        try:
            launch.run()
        except BaseException:
            launch.undo()
            raise
    return plan


def stop(directory: str) -> int:
    """End all processes of the directory's cluster; return their number."""
    ended: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_S
        for process in processes(directory):
            # Workers end their executors, and must not take them for lost.
            if number == signal.SIGKILL or process.role in ("master", "worker"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
        while alive := [process.pid for process in processes(directory)]:
            ended.update(alive)
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_AGAIN_S)
    if pids := [process.pid for process in processes(directory)]:
        raise Refused(f"processes that have not ended: {', '.join(map(str, pids))}")
    return len(ended)


def members(directory: str) -> list[ClusterProcess]:
    """Return the master and its workers."""
    cluster_processes = list(processes(directory))
    master = next((process for process in cluster_processes if process.role == "master"), None)
    master_state = None
    if master is not None:
        master_state = _master_state(master.option("--host"), master.option("--webui-port"))
    return standalone.members(cluster_processes, master_state)


def processes(directory: str) -> Iterator[Process]:
    """Return this user's Spark processes that run in the directory."""
    inside = os.path.realpath(directory)
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            where = os.readlink(f"{entry.path}/cwd").removesuffix(" (deleted)")
            if os.path.commonpath([inside, where]) != inside:
                continue
            with open(f"{entry.path}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")[:-1]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if (process := Process.of(int(entry.name), words)) is not None:
            yield process


class _Launch:
    def __init__(
        self,
        plan: SparkClusterPlan,
        script: Sequence[str],
        environment: dict[str, str],
        deadline_s: float,
    ) -> None:
        self._plan = plan
        self._script = script
        self._environment = os.environ | environment | standalone.environment(os.environ, plan.host)
        self._deadline_s = deadline_s
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        """Processes by log file."""

    def run(self) -> None:
        """Start the master first: a worker that does not find it retries only after 10 seconds."""
        plan = self._plan
        self._start("master", plan.master())
        self._await(
            "the master does not respond",
            lambda master_state: master_state.get("status") == "ALIVE",
        )
        count = len(plan.worker_ports)
        for number in range(1, count + 1):
            self._start(f"worker-{number}", plan.worker(number))
        self._await(
            "not all workers have registered with the master",
            lambda master_state: standalone.alive(master_state) == count,
        )

    def undo(self) -> None:
        for process in self._started.values():
            # Including the processes that its script may have started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # Those are not children of this process: it can only look until they are gone.
        deadline = time.monotonic() + GRACE_S
        while any(processes(self._plan.directory)) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)

    def _start(self, name: str, words: list[str]) -> None:
        log = f"{self._plan.directory}/{name}.log"
        with open(log, "wb") as file:
            self._started[log] = subprocess.Popen(
                [*self._script, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self._plan.directory,
                env=self._environment,
                start_new_session=True,
            )

    def _await(self, lack: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        plan = self._plan
        while True:
            for log, process in self._started.items():
                if process.poll() is not None:
                    with open(log, encoding="utf-8", errors="replace") as file:
                        raise Refused(f"{standalone.last_words(file.read())} (see {log})")
            if holds(_master_state(plan.host, str(plan.ui_port)) or {}):
                return
            if time.monotonic() > self._deadline_s:
                raise TimeoutError(f"{lack}; see {', '.join(self._started)}")
            time.sleep(LOOK_AGAIN_S)


@contextlib.contextmanager
def _lock(directory: str) -> Iterator[None]:
    """Hold the directory's lock: two concurrent starts would both find no cluster."""
    with open(f"{directory}/lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"a cluster is being started in {directory}") from None
        yield


def _master_state(host: str, ui_port: str) -> dict[str, Any] | None:
    """Return the master's state; None while it does not respond."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{host}:{ui_port}/json/", timeout=ANSWER_S) as response:
            state: dict[str, Any] = json.load(response)
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return state


def _usable_port(host: str, port: int, option: str) -> int:
    """Return the port, or a free one for 0. Raises Refused if it cannot be listened on."""
    try:
        with socket.create_server((host, port)) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        why = error.strerror
        if error.errno and not isinstance(error, socket.gaierror):
            why = os.strerror(error.errno)  # without additions that some Pythons make
        raise Refused(f"cannot listen on {host}:{port} ({why}); choose another {option}") from None


def _free_ports(host: str, count: int) -> list[int]:
    """Return free ports, all different: each is held until the last is found."""
    with contextlib.ExitStack() as sockets:
        return [
            sockets.enter_context(socket.create_server((host, 0))).getsockname()[1]
            for _ in range(count)
        ]
