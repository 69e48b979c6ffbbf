"""--history, --baseline and --fail-if, without a cluster."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from kcli.command.options import Refused
from kcli.command.statuses import FOUND
from kcli.perf import history
from kcli.perf.judging import RunEvaluation, append, run_of

METRICS = ("records_per_s", "p99_ms")
PROPERTIES = {"bootstrap.servers": "127.0.0.1:9092", "acks": "1"}
APPENDS = 50


@pytest.fixture(autouse=True)
def command():
    """What complaints call the command."""
    with click.Context(click.Command("test"), info_name="k test"):
        yield


@pytest.fixture
def file(tmp_path) -> str:
    return str(tmp_path / "perf.jsonl")


def evaluation(
    workload: int = 1, properties: dict[str, str] | None = None, **given: Any
) -> RunEvaluation:
    words = dict.fromkeys(("history", "baseline", "baseline_runs")) | {"fail_if": ()} | given
    run = run_of("producer", "perf", properties or PROPERTIES, {"records": workload})
    return RunEvaluation(SimpleNamespace(**words), METRICS, run)


def night(file: str, p99_ms: float, *fail_if: str, failure: str | None = None, **given: Any) -> int:
    """A run that is compared with those before in the same file, and added to them."""
    criteria = fail_if or ("p99>+10%",)
    ready = evaluation(history=file, baseline=file, fail_if=criteria, **given)
    return ready.conclude({"records_per_s": 1000.0, "p99_ms": p99_ms, "other": 1}, None, failure)


def kept(file: str) -> list[history.Run]:
    with open(file) as lines:
        runs, others = history.read(lines)
    assert others == 0
    return runs


def test_a_run_is_kept_with_what_explains_it(file):
    assert evaluation(history=file).conclude({"records_per_s": 5.0, "p99_ms": math.nan}, None) == 0
    (run,) = kept(file)
    assert run.results == {"records_per_s": 5.0}
    assert run.workload == {"records": 1, "properties": {"acks": "1"}}
    assert (run.test, run.topic, run.servers) == ("producer", "perf", "127.0.0.1:9092")
    assert run.host["cpus"] > 0
    assert run.version
    assert run.at.endswith("+00:00")
    json.loads(Path(file).read_text(), parse_constant=pytest.fail)


def test_the_first_night_is_not_compared_and_says_so(file, capsys):
    assert night(file, 10) == 0
    assert "has no run like this one yet" in capsys.readouterr().err
    assert night(file, 10.9) == 0
    assert capsys.readouterr() == ("", "")


def test_a_slower_night_is_told_and_does_not_become_the_measure(file, capsys):
    for p99_ms in (10, 12, 11):
        night(file, p99_ms, "p99>+50%")
    capsys.readouterr()
    for _ in range(5):
        assert night(file, 30) == FOUND
        assert capsys.readouterr().err == (
            "k test: p99>+10%: p99_ms is 30 now, +172.7% on the baseline of 11 "
            f"(the median of 3 runs in {file})\n"
        )
    assert night(file, 11.5) == 0
    assert [bool(run.failed) for run in kept(file)] == [False] * 3 + [True] * 5 + [False]


def test_a_run_that_lost_records_is_no_measure(file):
    assert night(file, 1, failure="3 of 10 records were not delivered") == 0
    night(file, 10)
    assert night(file, 10.5) == 0


def test_the_baseline_is_of_as_many_runs_as_are_asked_for(file):
    for p99_ms in (10, 20, 40):
        night(file, p99_ms, "p99>+1000%")
    assert night(file, 43, baseline_runs=1) == 0
    assert night(file, 43, baseline_runs=4) == FOUND


def test_another_workload_has_a_baseline_of_its_own(file):
    night(file, 10)
    assert night(file, 1000, workload=2) == 0
    assert night(file, 1000, properties=PROPERTIES | {"acks": "all"}) == 0
    assert night(file, 1000, properties=PROPERTIES | {"bootstrap.servers": "b:1"}) == FOUND


def test_a_baseline_of_another_file_must_be_there_before_the_run(tmp_path, file):
    other = str(tmp_path / "other.jsonl")
    with pytest.raises(FileNotFoundError):
        evaluation(baseline=other, history=file, fail_if=("p99>+10%",))
    night(other, 10)
    with pytest.raises(Refused, match="has no run like this one, so there is nothing to compare"):
        evaluation(workload=2, baseline=other, history=file, fail_if=("p99>+10%",))
    assert evaluation(baseline=other, fail_if=("p99>+10%",)).conclude(
        {"records_per_s": 1.0, "p99_ms": 12.0}, None
    )
    assert not kept(file)


def test_lines_that_are_no_runs_are_counted(file, capsys):
    night(file, 10)
    with open(file, "a") as lines:
        lines.write("# a note\n")
    assert night(file, 20) == FOUND
    assert f"{file}: 1 lines are not runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"fail_if": ("p99>+10%",)}, "name their file with --baseline"),
        ({"baseline": "f"}, "--baseline is for --fail-if"),
        ({"baseline": "f", "fail_if": ("p99>5ms",)}, "--baseline is for --fail-if"),
        ({"fail_if": ("p98>5ms",)}, "unknown metric 'p98'"),
        ({"baseline": "f", "fail_if": ("p99>+1%",), "baseline_runs": 0}, "greater than zero"),
    ],
)
def test_what_would_check_nothing_is_a_usage_error(given, why):
    with pytest.raises(click.UsageError) as refused:
        evaluation(**given)
    assert why in refused.value.message


def test_a_history_that_cannot_be_written_is_told_before_the_run(tmp_path):
    with pytest.raises(IsADirectoryError):
        evaluation(history=str(tmp_path))


def test_a_full_disk_is_told_with_the_name_of_the_file():
    with pytest.raises(OSError, match="No space left") as refused:
        append("/dev/full", "line\n")
    assert refused.value.filename == "/dev/full"


def test_a_line_that_was_cut_short_ends_before_the_next(file):
    with open(file, "w") as lines:
        lines.write('{"schema": "k.perf-t')
    append(file, "one\n")
    append(file, "two\n")
    with open(file) as lines:
        assert lines.read() == '{"schema": "k.perf-t\none\ntwo\n'


def test_lines_of_many_processes_stay_whole(file):
    processes = [
        multiprocessing.get_context("fork").Process(target=_append_many, args=(file, letter))
        for letter in "abcd"
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with open(file) as lines:
        found = [line.rstrip("\n") for line in lines]
    assert sorted(found) == sorted(letter * 3000 for letter in "abcd" for _ in range(APPENDS))


def _append_many(file: str, letter: str) -> None:
    for _ in range(APPENDS):
        append(file, letter * 3000 + "\n")
