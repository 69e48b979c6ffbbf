"""`python -m tests.bench`: this broker beside Apache Kafka's, row by row.

The exit status is 1 if a row could not be measured. A row that misses its aim is only marked.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.figures import Line, lines
from tests.bench.load import Load
from tests.bench.machine import (
    BUSY_BETWEEN_ROWS,
    BenchError,
    busy_share,
    cpu_times_now,
    describe,
    disturbances,
    stolen,
)
from tests.bench.rounds import Samples, brokers, measure, say
from tests.bench.row import Row, Work
from tests.bench.rows import ROWS
from tests.bench.servers import APACHE, COMPILED, ELDER, OURS

README = Path(__file__).with_name("README.md")
ROUNDS, SECONDS = 5, 3.0

Run = dict[str, Any]
"""Contents of a --json file: command, date, machine, warnings, rows (the samples of each) and
failed."""


def main(words: list[str]) -> int:
    given = arguments(words)
    known = {row.name: row for row in ROWS}
    if given.list:
        for row in ROWS:
            print(f"{row.name:22} {row.about}")
        return 0
    runs = [json.loads(file.read_text()) for file in given.add]
    there = {name for run in runs for name in run["rows"]}
    rows = [known[name] for name in dict.fromkeys(given.rows)]
    rows = rows or [row for row in ROWS if row.name not in there]
    found = disturbances()
    for warning in found:
        say(f"warning: {warning}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up as after Ctrl-C
    failed: dict[str, str] = {}
    if rows:
        measured: dict[str, Samples] = {}
        this = {
            "command": command_line(given),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": describe(),
            "warnings": found,
            "rows": measured,
            "failed": failed,
        }
        runs.append(this)

        def keep() -> None:
            """Write the results after each row, so that an interrupted run keeps its finished
            rows."""
            if given.json:
                given.json.write_text(json.dumps(this))

        with tempfile.TemporaryDirectory(prefix="bench-", dir=given.dir) as directory:
            work = Work(Load.build(Path(directory)), Path(directory), given.seconds)
            run(rows, work, given.rounds, found, measured, failed, keep)
    for begin, of_cluster in ((report.LONE, False), (report.CLUSTERS, True)):
        tell(begin, runs, {r.name: r for r in ROWS if r.of_cluster is of_cluster}, given.write)
    for name, reason in failed.items():
        say(f"{name}: {reason}")
    return 1 if failed else 0


def run(
    rows: list[Row],
    work: Work,
    rounds: int,
    warnings: list[str],
    samples: dict[str, Samples],
    failed: dict[str, str],
    keep: Callable[[], None],
) -> None:
    """Put each row's figures into `samples`, or the reason of its failure into `failed`.

    Appends to `warnings` what disturbed the measurements.
    """
    stolen_shares: dict[str, float] = {}
    with brokers(work, rows) as servers, work.until_the_end:
        for row in rows:
            busy = busy_share()
            if busy > BUSY_BETWEEN_ROWS:
                warnings.append(f"the cores were {busy:.0%} busy before {row.name}")
                say(f"warning: {warnings[-1]}")
            before = cpu_times_now()
            try:
                samples[row.name] = measure(row, work, servers, rounds)
            except (BenchError, OSError) as error:  # OSError: a broker that died, a full disk
                failed[row.name] = str(error)
                say(f"{row.name} failed: {error}")
            stolen_shares[row.name] = cpu_times_now().since(before).stolen_share
            keep()
    for warning in stolen(stolen_shares):
        warnings.append(warning)
        say(f"warning: {warning}")
    keep()


def tell(begin: str, runs: list[Run], known: Mapping[str, Row], write: bool) -> None:
    """Print the table of one kind of rows if any was measured; with `write`, put it into
    README.md."""
    runs = [run for run in runs if known.keys() & run["rows"].keys()]
    samples: dict[str, Samples] = {name: s for run in runs for name, s in run["rows"].items()}
    rows = [row for row in known.values() if row.name in samples]
    if not rows:
        return
    lines = [line for row in rows for line in of(row, samples[row.name])]
    if rows[0].of_cluster:
        table = report.cluster_table(lines, OURS.name, APACHE.name, ELDER.name)
    else:
        table = report.table(lines, OURS.name, COMPILED.name, APACHE.name)
    print(table)
    if write:
        section = report.section(
            [(run["command"], run["date"]) for run in runs],
            describe(),
            [warning for run in runs for warning in run["warnings"]],
            table,
            {row.name: row.about for row in rows},
        )
        README.write_text(report.between_markers(README.read_text(), begin, section))


def of(row: Row, samples: Samples) -> list[Line]:
    ours, compiled, rival, elder = (
        samples.get(kind.name, []) for kind in (OURS, COMPILED, APACHE, ELDER)
    )
    return lines(row.name, row.aims, ours, rival, compiled, elder)


def command_line(given: argparse.Namespace) -> str:
    """Return the command as typed, without its paths."""
    options = [
        f"--{name} {value:g}"
        for name, value, default in (
            ("rounds", given.rounds, ROUNDS),
            ("seconds", given.seconds, SECONDS),
        )
        if value != default
    ]
    return " ".join(["python -m tests.bench", *given.rows, *options])


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all that --add has not")
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"[{ROUNDS}]")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help=f"of each run [{SECONDS:g}]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every sample, for machines")
    parser.add_argument(
        "--add",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="the --json of an earlier run, whose rows stand in the table too",
    )
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument(
        "--dir", type=Path, default=Path.cwd(), help="where the data goes [the working directory]"
    )
    given = parser.parse_args(words)
    unknown = set(given.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; --list names them")
    if given.rounds < 1 or given.seconds <= 0:
        parser.error("--rounds and --seconds must be above 0")
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
