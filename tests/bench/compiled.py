"""Build the packages as a wheel with K_COMPILE=1 has them: with hot loops as C extensions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.machine import BenchError

DIRECTORY = "compiled"
"""Name of the build's directory in the directory of a run."""
ROOT = Path(__file__).parents[2]
PARTS = ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "kserver", "kcli")


def build(directory: Path) -> Path:
    """Build into `directory`, which takes two minutes; if it exists, return it unchanged."""
    if directory.exists():
        return directory
    new = directory.with_name(f"{directory.name}.new")
    new.mkdir(parents=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, new / part)
        else:
            shutil.copy(ROOT / part, new)
    ran = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=new,
        env=os.environ | {"K_COMPILE": "1"},
        capture_output=True,
        text=True,
    )
    if ran.returncode or not list((new / "kserver").glob("**/*.so")):
        raise BenchError(f"it does not compile (pip install mypy): {ran.stderr[-2000:]}")
    return new.rename(directory)


def build_with_tests(directory: Path) -> Path:
    """Build into `directory`, and copy the tests: pytest, run in there, tests what is compiled."""
    tree = build(directory)
    ignore = shutil.ignore_patterns("node_modules", "__pycache__")
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=ignore)
    return tree
