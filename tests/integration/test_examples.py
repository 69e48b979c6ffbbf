"""Every example is a script that runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import BrokerProcess

ROOT = Path(__file__).parents[2]
LINES = ["plain", "", "tab\there", "naïve ünïcode", "x" * 5000, "last"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The tree as a user has it, with a virtual environment that leads to this one."""
    for name in ("examples", "LICENSE"):
        (tmp_path / name).symlink_to(ROOT / name)
    bin_directory = tmp_path / ".venv/bin"
    bin_directory.mkdir(parents=True)
    k = bin_directory / "k"
    k.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from kcli.main import main; main()" "$@"\n')
    k.chmod(0o755)
    return tmp_path


def run_first_minute(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # `cd dirname $0/..` must lead to the checkout, not to where the link points.
    script = checkout / "first-minute.sh"
    text = (ROOT / "examples/first-minute.sh").read_text()
    script.write_text(text.replace('cd "$(dirname "$0")/.."', 'cd "$(dirname "$0")"'))
    return subprocess.run(
        ["sh", str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("ending", ["\n", ""], ids=["whole last line", "cut last line"])
def test_the_first_minute_brings_every_line_back(checkout: Path, ending: str) -> None:
    file = checkout / "lines.log"
    file.write_text("\n".join(LINES) + ending)
    ran = run_first_minute(checkout, str(file))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "compared    every line is there, in order" in ran.stdout
    assert f"read back   {len(LINES)} lines" in ran.stdout


def test_the_first_minute_says_when_the_file_is_not_there(checkout: Path) -> None:
    ran = run_first_minute(checkout, str(checkout / "no.log"))
    assert ran.returncode != 0
    assert "no.log" in ran.stderr


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    with BrokerProcess(tmp_path / "broker") as broker:
        ran = subprocess.run(
            [sys.executable, "-c", code.replace("127.0.0.1:9092", broker.address)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
        )
    assert ran.returncode == 0, ran.stderr
    assert "orders" in ran.stdout
    assert "offset=0" in ran.stdout
