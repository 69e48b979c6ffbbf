"""Test that the example of an access log prints what its README shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_examples import ROOT, program
from tests.support.spark_jobs import run_all
from tests.support.tools import K, require

pytest.importorskip("pyspark", reason="the extra spark")
pytest.importorskip("deltalake", reason="the extra spark")

SCRIPT = "examples/access-log/run.sh"
SMALL = {
    "PYTHONPATH": str(ROOT),
    "SPARK_DRIVER_MEMORY": "512m",
    "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_SECONDS = re.compile(r"[0-9.]+ s$", re.M)


def shown() -> str:
    """Return the output shown in the README."""
    blocks = re.findall(
        r"^```\n(\$ .*?)^```$", (ROOT / SCRIPT).with_name("README.md").read_text(), re.M | re.S
    )
    (block,) = blocks
    return block


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A source tree as a user has it after installing k with the extra spark."""
    shutil.copytree((ROOT / SCRIPT).parent, (tmp_path / SCRIPT).parent)
    bin_directory = tmp_path / ".venv/bin"
    bin_directory.mkdir(parents=True)
    program(bin_directory / "k", shlex.join(K))
    program(bin_directory / "python", sys.executable)
    program(bin_directory / "spark-submit", "false")
    return tmp_path


def test_an_access_log_lands_is_counted_and_audited_as_the_readme_shows(checkout: Path) -> None:
    require("java")
    names = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"}
    environment = {name: text for name, text in os.environ.items() if name not in names}
    # A file keeps the output of all commands in order, as a terminal does.
    printed = checkout / "printed"
    with printed.open("w") as file:
        ran = run_all(
            ["sh", SCRIPT],
            cwd=checkout,
            env=environment | SMALL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout_s=900,
        )
    text = printed.read_text()
    assert ran.returncode == 0, text
    assert _SECONDS.sub("SECONDS", text) == _SECONDS.sub("SECONDS", shown())
