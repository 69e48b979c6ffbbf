"""Judging: --history, --baseline and --fail-if of a performance test.

Everything that could make a run useless is checked before it: invalid criteria, a missing baseline,
a history that cannot be written.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kcli.command.options import INT, Refused, option, option_group, refuse
from kcli.command.output import complain
from kcli.command.statuses import FOUND
from kcli.perf import criteria, history
from kcli.perf.criteria import Criterion
from kcli.perf.history import Run
from kcli.rows.listing import Rows
from kserver import __version__

if TYPE_CHECKING:
    from kcli.command.command import Options

NO_METRICS = (
    "--print-metrics is not supported: the client has no metrics; use -o to print the measurements"
)
BASELINE_RUNS = 5
SECTION = "Comparison"

OPTIONS = option_group(
    option(
        "--history",
        "Append the run to this file, as a line of JSON.",
        "FILE",
        section=SECTION,
    ),
    option(
        "--baseline",
        "Runs to compare with: a file that --history wrote, or is writing.",
        "FILE",
        section=SECTION,
    ),
    option(
        "--baseline-runs",
        f"The baseline is the median of the last N runs like this one.  Default: {BASELINE_RUNS}.",
        "N",
        type=INT,
        section=SECTION,
    ),
    option(
        "--fail-if",
        "End with exit status 3 if this criterion is met: METRIC>BOUND or METRIC<BOUND, where a "
        "bound is a number, a time such as 50ms, or a difference from the baseline such as "
        "+10%.  Several with commas, or repeated.",
        "CRITERION,...",
        multiple=True,
        section=SECTION,
    ),
)

STATUS = (FOUND, "A criterion of --fail-if is met; standard error names metric, baseline, and now.")

DIFFERENCES = (
    "--history, --baseline and --fail-if are not in Kafka's tool.",
    "Metrics of --fail-if are the fields of -o that are numbers, times with or without their _ms.",
    "The baseline is the median, metric by metric, over the last runs in its file that are like "
    "this one and met no criterion, so that a bad run does not become the baseline of the next.  "
    "A run is like this one if it is of the same test with the same number of records of the "
    "same size, at the same rate, with the same client properties; topic, brokers and host may "
    "differ.",
    "If --history and --baseline name the same file, and it has no run like this one yet, "
    "differences from the baseline are not checked, and a note on standard error says so.  Any "
    "other file of --baseline must have one before the run begins.",
)


class RunEvaluation:
    """Holds the criteria and the baseline; `conclude` stores the run and returns the exit status.

    Raises UsageError if a criterion is invalid, Refused if there is no baseline, OSError if a file
    cannot be read or written.
    """

    def __init__(
        self,
        options: Options,
        metrics: Sequence[str],
        run: Run,
    ) -> None:
        self._metrics = metrics
        self._run = run
        self._history: str | None = options.history
        self._criteria = _criteria(options, metrics)
        self._baseline: Mapping[str, float] = {}
        self._of = ""
        if self._history is not None:
            append(self._history, "")
        if options.baseline is not None:
            self._take_baseline(options)

    def _take_baseline(self, options: Options) -> None:
        path, last = options.baseline, options.baseline_runs or BASELINE_RUNS
        with open(path, encoding="utf-8", errors="replace") as file:
            runs, others = history.read(file)
        if others:
            complain(f"{_command()}: {path}: {others} lines are not runs, and are ignored")
        self._baseline, count = history.baseline(runs, self._run, last)
        self._of = f"the median of {count} runs in {path}" if count > 1 else f"1 run in {path}"
        if count or not any(criterion.is_relative for criterion in self._criteria):
            return
        alike = any(run.is_like(self._run) for run in runs)
        why = f"{path} has no run like this one" + (" that met no criterion" if alike else "")
        if self._history is None or not os.path.samefile(path, self._history):
            raise Refused(f"{why}, so there is nothing to compare with; --history writes such runs")
        complain(f"{_command()}: {why} yet: what is compared with the baseline is not checked")

    def conclude(
        self, results: Mapping[str, float], out: Rows | None, failure: str | None = None
    ) -> int:
        """Report findings and store the run; return 3 if a criterion is met.

        `failure`: why the run as a whole must not be a baseline for others, whatever it measured.
        """
        measured = {metric: results[metric] for metric in self._metrics}
        findings = criteria.findings(self._criteria, measured, self._baseline, self._of)
        for finding in findings:
            report_problem(out, "CRITERION_MET", finding)
        if self._history is not None:
            run = replace(
                self._run,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                results={k: v for k, v in measured.items() if not math.isnan(v)},
                failed=[*findings, *([] if failure is None else [failure])],
            )
            append(self._history, run.line())
        return FOUND if findings else 0


def report_problem(out: Rows | None, code: str, why: str) -> None:
    """Report a problem of a run, on standard error, and among the errors of -o."""
    if out is None:
        complain(f"{_command()}: {why}")
    else:
        out.problem(None, code, why)


def run_of(
    test: str, topic: str, properties: Mapping[str, str], workload: Mapping[str, Any]
) -> Run:
    """Return a run that begins now, without its results."""
    return Run(
        test=test,
        at="",
        version=__version__,
        topic=topic,
        servers=properties["bootstrap.servers"],
        workload={**workload, "properties": history.comparable(properties)},
        host=_host(),
        results={},
    )


def append(path: str, line: str) -> None:
    """Append a line to a file, created if needed, completely or not at all. Raises OSError.

    A line that was truncated by a full disk before, perhaps in another program, is ended first.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        is_cut = line and size and os.pread(file, 1, size - 1) != b"\n"
        data = (("\n" if is_cut else "") + line).encode()
        if os.write(file, data) != len(data):
            os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(file)


def _command() -> str:
    return click.get_current_context().command_path


def _criteria(options: Options, metrics: Sequence[str]) -> list[Criterion]:
    criteria_list: list[Criterion] = []
    for text in options.fail_if:
        try:
            criteria_list += criteria.parse(text, metrics)
        except ValueError as error:
            refuse(f"--fail-if: {error}")
    relative = next((criterion.text for criterion in criteria_list if criterion.is_relative), None)
    if relative and options.baseline is None:
        refuse(f"--fail-if {relative} compares with earlier runs: name their file with --baseline")
    if options.baseline is not None and not relative:
        refuse("--baseline is for --fail-if, which compares with it, such as --fail-if 'p99>+10%'")
    if options.baseline_runs is not None and options.baseline_runs < 1:
        refuse("--baseline-runs should be greater than zero")
    return criteria_list


def _host() -> dict[str, Any]:
    """Return properties of this machine that may explain a difference."""
    system = os.uname()
    return {
        "name": system.nodename,
        "system": f"{system.sysname} {system.release} {system.machine}",
        "cpus": len(os.sched_getaffinity(0)),
        "python": ".".join(map(str, sys.version_info[:3])),
        "load_1m": round(os.getloadavg()[0], 2),
    }
