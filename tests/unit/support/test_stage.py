"""Failures run once more, flakes are listed, and what is running at the end of time is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.stage import MAX_FAILURES
from tests.support.stage import LIMIT_S, LIMITS_S, limit_s

ROOT = Path(__file__).parents[3]
FLAKY = """
from pathlib import Path
def test_one():
    mark = Path(__file__).with_suffix(".mark")
    seen, _ = mark.exists(), mark.touch()
    assert seen
"""
FRESH_SEEDS = """
from pathlib import Path
from tests.support.seeds import FRESH_SEED
def test_one():
    mark = Path(__file__).with_suffix(".mark")
    before = mark.read_text() if mark.exists() else None
    mark.write_text(str(FRESH_SEED))
    assert before not in (None, str(FRESH_SEED))
"""
FAILING = "def test_one(): assert 1 == 2\n"
FAILING_SIMULATION = """
from tests.support.loop import simulate
async def main(loop):
    for number in range(50):
        loop.trace.add(f"event {number}")
    assert 1 == 2
def test_one():
    simulate(main, 7)
"""
HANGING = """
import time
def wait_for_ever():
    time.sleep(300)
def test_one():
    wait_for_ever()
"""
AT_THE_END_OF_TIME = """
import os, time
from pathlib import Path
import pytest
def test_one():
    mark = Path(__file__).with_suffix(".mark")
    if mark.exists():
        {second_time}
        return
    mark.touch()
    time.sleep(max(0, float(os.environ["K_TESTS_START_UNTIL"]) - time.time()))
    assert 1 == 2
"""
STORY = f"""
import pytest
pytestmark = pytest.mark.story
state = []
def test_begins(): state.append(1)
{FLAKY.replace("test_one", "test_goes_on")}
def test_ends(): assert state == [1]
"""


def stage(path: Path, test: str, **env: str) -> subprocess.CompletedProcess[str]:
    file = path / "test_planted.py"
    file.write_text(test)
    words = ["-p tests.conftest -p no:cacheprovider --noconftest"]
    inherited = {key: value for key, value in os.environ.items() if key != "FRESH_SEED"}
    words += [f"-c {ROOT}/setup.cfg --rootdir={path}"]
    return subprocess.run(
        [sys.executable, ROOT / "tests" / "stage.py", file.name],
        cwd=path,
        env=inherited | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": " ".join(words)} | env,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_failure_that_passes_alone_is_listed_and_does_not_fail_the_stage(tmp_path: Path) -> None:
    done = stage(tmp_path, STORY)
    assert done.returncode == 0, done.stdout + done.stderr
    flaky = done.stdout.partition("=== FLAKY ===")[2]
    assert "failed, then passed alone" in flaky
    assert "assert seen" in flaky


def test_a_test_that_fails_again_fails_the_stage(tmp_path: Path) -> None:
    done = stage(tmp_path, FAILING)
    assert done.returncode == 1
    assert done.stdout.count("assert 1 == 2") >= 2
    assert "FLAKY" not in done.stdout


def test_a_test_runs_again_with_other_new_seeds(tmp_path: Path) -> None:
    done = stage(tmp_path, FRESH_SEEDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "=== FLAKY ===" in done.stdout


def test_many_failures_fail_the_stage_at_once(tmp_path: Path) -> None:
    done = stage(
        tmp_path, "\n".join(FAILING.replace("one", f"no_{n}") for n in range(MAX_FAILURES))
    )
    assert done.returncode not in (0, 5), done.stdout
    assert "once more" not in done.stdout
    short = done.stdout.partition("=== first failures in short ===")[2]
    assert short.count("assert 1 == 2") == MAX_FAILURES


def test_a_failed_simulation_in_short_is_its_message_and_its_seed(tmp_path: Path) -> None:
    done = stage(tmp_path, FAILING_SIMULATION)
    short = done.stdout.partition("=== first failures in short ===")[2]
    assert "assert 1 == 2" in short
    assert "simulated with seed 7" in short
    assert "event 49" in done.stdout
    assert "event 49" not in short


def test_at_the_end_of_time_the_running_test_is_named_with_its_stack(tmp_path: Path) -> None:
    done = stage(tmp_path, HANGING, K_TESTS_END=str(time.time() + 15))
    assert done.returncode == 124, done.stdout + done.stderr
    told = done.stdout.partition("out of time; these tests were running")[2]
    assert "test_planted.py::test_one" in told
    assert "in wait_for_ever" in told


def test_what_has_not_begun_in_time_is_left_out_and_counted(tmp_path: Path) -> None:
    done = stage(tmp_path, FAILING, K_TESTS_START_UNTIL="1")
    assert done.returncode == 0, done.stdout
    assert "left out: no time was left for it" in done.stdout


@pytest.mark.parametrize(
    ("second_time", "code"), [("assert 1 == 2", 1), ("pytest.skip('late')", 1), ("pass", 0)]
)
def test_a_failure_is_run_again_though_it_is_late(
    tmp_path: Path, second_time: str, code: int
) -> None:
    done = stage(
        tmp_path,
        AT_THE_END_OF_TIME.format(second_time=second_time),
        K_TESTS_START_UNTIL=str(time.time() + 10),
    )
    assert done.returncode == code, done.stdout
    assert ("=== FLAKY ===" in done.stdout) is (code == 0)


def test_every_test_has_a_limit_of_at_most_five_minutes() -> None:
    assert limit_s("unit/test_one.py") == LIMIT_S
    for start, (limit, why) in LIMITS_S.items():
        assert limit_s(f"{start}test_one.py") == limit <= 300
        assert why
        assert (ROOT / "tests" / start).exists()
