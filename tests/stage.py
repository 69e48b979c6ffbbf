"""Run one stage of the suite, tell a failure from a flake, and end in bounded time.

    python tests/stage.py [PYTEST ARGUMENTS]

Tests that failed run once more at the end, alone and in one process, however late it is.  A test
that passes then is listed under FLAKY with its first failure and does not fail the stage; it is
still a bug.  One that is skipped then has not passed.  After MAX_FAILURES failures the stage ends
at once and nothing runs again.  The last lines say in short how each test failed.

K_TESTS_END (seconds since 1970, none by default) ends whatever is running then: the stage prints
the tests that were running, with their stacks, and fails.  `.ci/run` sets it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.stage import EVENTS, FAILURES, PASSED, RUNNING, SEED, STACKS

MAX_FAILURES = 10
"""More than the flakes of any run, and few beside those of a broker that does not start."""
SHORT_LINES = 8
"""Lines of a failure that are printed in short."""
STACKS_S = 2
"""How long a process may take to write its stacks after SIGUSR1."""
OUT_OF_TIME = 124
TESTS_FAILED = 1

Failures: TypeAlias = dict[str, tuple[str, str]]
"""What to run again (a test, or its file) -> the test that failed, and the text of its failure."""


def main(arguments: list[str]) -> int:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="k-stage-") as name:
        place = Path(name)
        parallel = ["-n", "2", "--no-loadscope-reorder"]
        code = _pytest([*parallel, f"--maxfail={MAX_FAILURES}", *arguments], place)
        failures = _failures(place)
        if code == TESTS_FAILED and 0 < len(failures) < MAX_FAILURES:
            code = _again(failures, place)
    if failures:
        _tell_in_short(failures)
    print(f"stage: {' '.join(arguments)}: {time.monotonic() - began_s:.0f} s, exit code {code}")
    return code


def _again(failures: Failures, place: Path) -> int:
    """Run what failed once more, and list what passes now."""
    _heading("once more, alone: " + ", ".join(failures))
    os.environ.pop("K_TESTS_START_UNTIL", None)
    code = _pytest(["-n", "0", "--durations=0", "--durations-min=1", *failures], place)
    still, passed = _failures(place), _passed(place)
    flaky = {again for again, (test, _) in failures.items() if test in passed} - still.keys()
    if flaky:
        _heading("FLAKY")
    for test, text in (failures[again] for again in sorted(flaky)):
        print(f"{test} failed, then passed alone. Its first failure:\n{text}\n")
    if unproven := failures.keys() - still.keys() - flaky:
        _heading("failed, and did not run again: " + ", ".join(sorted(unproven)))
        return code or TESTS_FAILED
    return code


def _tell_in_short(failures: Failures) -> None:
    """Print the message of each first failure: the end of the output is what is kept longest."""
    _heading("first failures in short")
    for test, text in failures.values():
        lines = [line for line in text.splitlines() if line.startswith("E  ")]
        events = next((n for n, line in enumerate(lines) if EVENTS in line), len(lines))
        seeds = [line for line in lines[events:] if SEED in line]
        print(test, *lines[:events][-SHORT_LINES:], *seeds, sep="\n")


def _pytest(arguments: list[str], place: Path) -> int:
    for old in place.iterdir():
        old.unlink()
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        env=os.environ | {"K_TESTS_PLACE": str(place)},
        process_group=0,
    )
    try:
        return run.wait(_seconds_left())
    except subprocess.TimeoutExpired:
        _tell_what_is_running(place)
        return OUT_OF_TIME
    finally:
        for stacks in sorted(place.glob(f"*{STACKS}")):
            if stacks.stat().st_size:
                _heading(f"stacks of process {stacks.stem}")
                print(stacks.read_text(errors="replace"))
        sys.stdout.flush()
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def _seconds_left() -> float | None:
    end = os.environ.get("K_TESTS_END")
    return max(0.0, float(end) - time.time()) if end else None


def _tell_what_is_running(place: Path) -> None:
    _heading("out of time; these tests were running")
    for running in sorted(place.glob(f"*{RUNNING}")):
        if test := running.read_text():
            print(test)
            try:
                os.kill(int(running.stem), signal.SIGUSR1)
            except ProcessLookupError:
                print("  (its process has ended)")
    time.sleep(STACKS_S)


def _failures(place: Path) -> Failures:
    path = place / FAILURES
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _passed(place: Path) -> set[str]:
    path = place / PASSED
    return set(json.loads(path.read_text())) if path.exists() else set()


def _heading(text: str) -> None:
    print(f"\n=== {text} ===", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
