"""Test that every example runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.process import BrokerProcess
from tests.support.tools import require

ROOT = Path(__file__).parents[2]
TOOLS = "4.3.1"
LINES = ["plain", "", "tab\there", "naïve ünïcode", "x" * 5000, "last"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A source tree as a user has it, with a virtual environment that leads to this one."""
    for name in ("examples", "LICENSE"):
        (tmp_path / name).symlink_to(ROOT / name)
    bin_directory = tmp_path / ".venv/bin"
    bin_directory.mkdir(parents=True)
    program(
        bin_directory / "k",
        f'{sys.executable} -c "import sys; from kcli.main import main; sys.exit(main())"',
    )
    return tmp_path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker


def program(path: Path, command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)


def run(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )


def run_first_minute(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # `cd dirname $0/..` must lead to the checkout, not to the target of the link.
    script = checkout / "first-minute.sh"
    text = (ROOT / "examples/first-minute.sh").read_text()
    script.write_text(text.replace('cd "$(dirname "$0")/.."', 'cd "$(dirname "$0")"'))
    return run("sh", script, *arguments, cwd=checkout)


@pytest.mark.parametrize("ending", ["\n", ""], ids=["whole last line", "cut last line"])
def test_the_first_minute_brings_every_line_back(checkout: Path, ending: str) -> None:
    file = checkout / "lines.log"
    file.write_text("\n".join(LINES) + ending)
    ran = run_first_minute(checkout, str(file))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "compared    all lines match, in order" in ran.stdout
    assert f"read back   {len(LINES)} lines" in ran.stdout


def test_the_first_minute_says_when_the_file_is_not_there(checkout: Path) -> None:
    ran = run_first_minute(checkout, str(checkout / "no.log"))
    assert ran.returncode != 0
    assert "no.log" in ran.stderr


def test_a_cluster_loses_nothing_when_a_leader_is_killed(checkout: Path) -> None:
    path = f"{checkout / '.venv/bin'}:{os.environ['PATH']}"
    ran = run("sh", ROOT / "examples/cluster-in-a-minute.sh", cwd=checkout, PATH=path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = ran.stdout.splitlines()
    ((died, pid),) = re.findall(
        r"^broker (\d) \(pid (\d+)\) died: killed by SIGKILL$", ran.stdout, re.M
    )
    assert re.findall(rf"^broker {died} ready on (\S+), pid {pid}$", ran.stdout, re.M)
    assert "10000 lines read back, each once and in order" in said
    assert re.fullmatch(rf"broker {died} ready on \S+, pid (?!{pid})\d+", said[-2])
    isr = re.search(r"\tIsr: (\S+)\t", said[-1])
    assert isr is not None
    assert sorted(isr[1].split(",")) == ["1", "2", "3"]


def test_temperatures_come_back_as_means_of_each_room(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    ran = run(sys.executable, ROOT / "examples/temperatures.py", broker.address, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    means = {room: float(mean) for room, mean, _ in map(str.split, ran.stdout.splitlines())}
    assert means == pytest.approx({"attic": 10, "cellar": 15, "kitchen": 20}, abs=0.5)


def test_each_order_is_invoiced_once_although_the_program_crashes(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "quick", {"group.initial.rebalance.delay.ms": 0}) as broker:
        ran = run(sys.executable, ROOT / "examples/exactly_once.py", broker.address, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    told = re.fullmatch(r"(\d+) crashes, 500 orders invoiced, each 1 time\n", ran.stdout)
    assert told, ran.stdout
    assert int(told[1]) > 0


def test_a_project_tests_itself_with_a_broker(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples/project-with-tests", project)
    ran = run(sys.executable, "-m", "pytest", "-v", cwd=project)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "7 passed" in ran.stdout


def test_a_script_moved_from_kafkas_tools_says_the_same(
    checkout: Path, broker: BrokerProcess
) -> None:
    script = ROOT / "examples/moved-to-k.sh"
    path = f"{checkout / '.venv/bin'}:{os.environ['PATH']}"
    at = {"PATH": path, "K_BOOTSTRAP_SERVER": broker.address}
    expected = "audit holds 0 records in 3 partitions\n"
    after = run("sh", script, "audit", cwd=checkout, **at)
    assert (after.returncode, after.stdout, after.stderr) == (0, expected, "")
    (checkout / "by-sed.sh").write_text(re.sub(r"kafka-([a-z-]+)\.sh", r"k \1", script.read_text()))
    by_sed = run("sh", "by-sed.sh", "before", "audit", cwd=checkout, **at)
    assert (by_sed.returncode, by_sed.stdout, by_sed.stderr) == (0, expected, "")
    require("java")
    for name in ("kafka-topics.sh", "kafka-get-offsets.sh"):
        tool = f"{sys.executable} {apache_kafka.__file__} tool {TOOLS} {name}"
        program(checkout / ".venv/bin" / name, tool)
    at["KAFKA_JVM_PERFORMANCE_OPTS"] = QUICK_START
    before = run("sh", script, "before", "audit", cwd=checkout, **at)
    assert (before.returncode, before.stdout) == (0, expected), before.stderr


def test_the_python_of_the_readme_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    """The README has a script, tests for pytest, and a Spark job that is not run here."""
    script, tests, _spark = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    (tmp_path / "script.py").write_text(script.replace("127.0.0.1:9092", broker.address))
    ran = run(sys.executable, "script.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "orders" in ran.stdout
    assert "offset=0" in ran.stdout
    (tmp_path / "test_readme.py").write_text(tests)
    ran = run(sys.executable, "-m", "pytest", "--strict-markers", "test_readme.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
