"""Run one stage of the suite, tell a failure from a flake, and end in bounded time.

    python tests/stage.py [PYTEST ARGUMENTS]

Tests that failed run once more at the end, alone and in one process.  A test that passes then is
listed under FLAKY with its first failure and does not fail the stage; it is still a bug.  After
MAX_FAILURES failures the stage ends at once and nothing runs again.

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

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.stage import FAILURES, RUNNING, STACKS

MAX_FAILURES = 4
STACKS_S = 2
"""How long a process may take to write its stacks after SIGUSR1."""
OUT_OF_TIME = 124
TESTS_FAILED = 1


def main(arguments: list[str]) -> int:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="k-stage-") as name:
        place = Path(name)
        parallel = ["-n", "2", "--no-loadscope-reorder"]
        code = _pytest([*parallel, f"--maxfail={MAX_FAILURES}", *arguments], place)
        failures = _failures(place)
        if code == TESTS_FAILED and 0 < len(failures) < MAX_FAILURES:
            code = _again(failures, place)
    print(f"stage: {' '.join(arguments)}: {time.monotonic() - began_s:.0f} s, exit code {code}")
    return code


def _again(failures: dict[str, str], place: Path) -> int:
    """Run what failed once more, and list what passes now."""
    _heading("once more, alone: " + ", ".join(failures))
    code = _pytest(["-n", "0", "--durations=0", "--durations-min=1", *failures], place)
    still = _failures(place)
    if flaky := {test: text for test, text in failures.items() if test not in still}:
        _heading("FLAKY")
        for test, text in flaky.items():
            print(f"{test} failed, then passed alone. Its first failure:\n{text}\n")
    return code


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


def _failures(place: Path) -> dict[str, str]:
    """What to run again, and the text of its first failure."""
    path = place / FAILURES
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _heading(text: str) -> None:
    print(f"\n=== {text} ===", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
