"""`python -m tests.bench`: this broker beside Apache Kafka's, row by row.

Exit status 1 when a row could not be measured; a row that falls short of its aim is only marked.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import tempfile
from pathlib import Path

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
from tests.bench.servers import APACHE, COMPILED, OURS

README = Path(__file__).with_name("README.md")
ROUNDS, SECONDS = 5, 3.0


def main(words: list[str]) -> int:
    given = arguments(words)
    known = {row.name: row for row in ROWS}
    if given.list:
        for row in ROWS:
            print(f"{row.name:22} {row.about}")
        return 0
    rows = [known[name] for name in dict.fromkeys(given.rows)] or list(ROWS)
    warnings = disturbances()
    for warning in warnings:
        say(f"warning: {warning}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers and data go, as with Ctrl-C
    with tempfile.TemporaryDirectory(prefix="bench-", dir=given.dir) as directory:
        work = Work(Load.build(Path(directory)), Path(directory), given.seconds)
        samples, failed = run(rows, work, given.rounds, warnings)
    results = [line for row in rows if row.name in samples for line in of(row, samples[row.name])]
    table = report.table(results, OURS.name, COMPILED.name, APACHE.name)
    print(table)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    command = command_line(given)
    if given.json:
        facts = {"command": command, "date": date, "machine": describe(), "warnings": warnings}
        given.json.write_text(json.dumps(facts | {"rows": samples, "failed": failed}, indent=1))
    if given.write:
        about = {row.name: row.about for row in rows}
        section = report.section(command, date, describe(), warnings, table, about)
        README.write_text(report.between_markers(README.read_text(), section))
    for name, reason in failed.items():
        say(f"{name}: {reason}")
    return 1 if failed else 0


def run(
    rows: list[Row], work: Work, rounds: int, warnings: list[str]
) -> tuple[dict[str, Samples], dict[str, str]]:
    """The samples of each row, and why the others have none; `warnings` grow meanwhile."""
    samples: dict[str, Samples] = {}
    failed: dict[str, str] = {}
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
    for warning in stolen(stolen_shares):
        warnings.append(warning)
        say(f"warning: {warning}")
    return samples, failed


def of(row: Row, samples: Samples) -> list[Line]:
    ours, compiled, rival = (samples.get(kind.name, []) for kind in (OURS, COMPILED, APACHE))
    return lines(row.name, row.aims, ours, rival, compiled)


def command_line(given: argparse.Namespace) -> str:
    """As it would be typed, without its paths."""
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
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all")
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"[{ROUNDS}]")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help=f"of each run [{SECONDS:g}]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every sample, for machines")
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
