"""A pytest plugin for `tests/stage.py`: limits for each test, and a record of what ran and failed.

In the directory that K_TESTS_PLACE names:

| file | content |
|---|---|
| `failures.json` | what to run again (a test, or its file) -> the test that failed, and how |
| `passed.json` | the tests that passed |
| `PID.running` | the test that the process is running |
| `PID.stacks` | the stacks of a process, on request or if no signal could end it |

Without K_TESTS_PLACE only the limits hold.  K_TESTS_START_UNTIL (seconds since 1970): tests that
have not begun by then are skipped, and counted in the summary.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import pytest

FAILURES = "failures.json"
PASSED = "passed.json"
RUNNING = ".running"
STACKS = ".stacks"
SEED = "simulated with seed"
"""How a failed simulation names what repeats it."""
EVENTS = "the last events:"
"""What follows the message of a failed simulation, before its seed."""
ENDS_FILE = "ends_file"
"""Attribute of a report that causes the rest of the file to be skipped."""
LIMIT_S = 120
"""A test that has not ended after this many seconds fails with its stack."""
LIMITS_S: Mapping[str, tuple[int, str]] = {
    "conformance/": (240, "several brokers of Apache's are started, two minutes on a busy machine"),
    "integration/clients/": (300, "Maven, Go, Cargo and npm fetch and build the clients"),
    "integration/library/": (240, "a JVM for each version of Apache's broker"),
    "integration/scripts/": (240, "a JVM for each of Apache's scripts"),
    "integration/spark/": (300, "Spark takes ten seconds a start, and streams run for a while"),
    "integration/test_apache_zookeeper.py": (240, "ensembles of Apache's ZooKeeper"),
    "integration/test_example_access_log.py": (300, "five jobs on Spark, one after the other"),
    "integration/test_compiled.py": (300, "twenty modules are compiled, then tested"),
    "integration/test_gigabyte_reassignment.py": (300, "a gigabyte is written and moved twice"),
    "integration/test_reassignment_under_load.py": (240, "a hundred megabytes at 3 MB a second"),
    "simulation/test_planted_bugs.py": (300, "up to forty seeds, each two seconds or more"),
    "soak/": (0, "soaks take as long as they are told to"),
}
"""Seconds by the beginning of a file's path, and why; 0 is no limit."""
GRACE_S = 45
"""How long after its limit a test may take to fail; its process is ended then (it waits in C)."""
SLOWEST = 40


def limit_s(path: str) -> int:
    """Return the limit of the tests in a file, by its path below tests/."""
    return next(
        (limit for start, (limit, _) in LIMITS_S.items() if path.startswith(start)), LIMIT_S
    )


def ends_its_file(item: pytest.Item, report: pytest.TestReport) -> bool:
    """Return whether the other tests of the file are skipped after this report of the item.

    A story continues where its last test ended, and a failed fixture is often the file's.
    """
    is_story = item.get_closest_marker("story") is not None
    return report.failed and (is_story or report.when == "setup")


class Record:
    """The results that this process has seen: the controller of a parallel run sees all."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._failures: dict[str, tuple[str, str]] = {}
        self._passed: set[str] = set()
        self._by_file: defaultdict[str, float] = defaultdict(float)
        self._by_test: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._by_test[report.nodeid] += report.duration
        self._by_file[report.nodeid.partition("::")[0]] += report.duration
        if report.passed and report.when == "call":
            self._passed.add(report.nodeid)
        if report.failed:
            ends_file = getattr(report, ENDS_FILE, False)
            again = report.nodeid.partition("::")[0] if ends_file else report.nodeid
            text = f"({report.when}) {report.longreprtext}"
            self._failures.setdefault(again, (report.nodeid, text))

    def pytest_sessionfinish(self) -> None:
        if self._place is not None:
            (self._place / FAILURES).write_text(json.dumps(self._failures))
            (self._place / PASSED).write_text(json.dumps(sorted(self._passed)))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self._by_file) <= SLOWEST:
            return
        for heading, seconds in (("tests", self._by_test), ("files", self._by_file)):
            terminalreporter.section(f"slowest {SLOWEST} {heading}")
            for name in sorted(seconds, key=seconds.__getitem__, reverse=True)[:SLOWEST]:
                terminalreporter.line(f"{seconds[name]:7.1f} s  {name}")


class Watch:
    """Records which test this process runs, and ends the process if a signal cannot end
    the test.
    """

    def __init__(self, place: Path | None) -> None:
        self._running: Path | None = None
        self._stacks: TextIO | None = None
        if place is not None:
            self._running = place / f"{os.getpid()}{RUNNING}"
            self._stacks = (place / f"{os.getpid()}{STACKS}").open("w")
            faulthandler.register(signal.SIGUSR1, self._stacks, all_threads=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self._running is not None:
            self._running.write_text(item.nodeid)
        with self._limit(item):
            result = yield
        if self._running is not None:
            self._running.write_text("")
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.time() > float(os.environ.get("K_TESTS_START_UNTIL", "inf")):
            pytest.skip("left out: no time was left for it (K_TESTS_START_UNTIL)")

    @contextlib.contextmanager
    def _limit(self, item: pytest.Item) -> Iterator[None]:
        marker = item.get_closest_marker("timeout")
        if self._stacks is None or marker is None or not marker.args[0]:
            yield
            return
        faulthandler.dump_traceback_later(marker.args[0] + GRACE_S, exit=True, file=self._stacks)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def configure(config: pytest.Config) -> None:
    """Register this process's parts: the controller records, a process that runs tests watches."""
    name = os.environ.get("K_TESTS_PLACE")
    place = Path(name) if name else None
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(Record(place), "k-stage-record")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Watch(place), "k-stage-watch")
        # Runs of pytest that tests start do not belong to this stage.
        os.environ.pop("K_TESTS_PLACE", None)
