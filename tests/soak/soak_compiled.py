"""Run the tests of the compiled modules on a build with K_COMPILE=1: the same source must behave
the same. The short form is tests/integration/test_compiled.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.bench import compiled

TESTS = (
    "tests/unit/wire",
    "tests/unit/world",
    "tests/unit/log",
    "tests/unit/network",
    "tests/unit/replica",
    "tests/unit/api",
    "tests/unit/client",
    "tests/unit/spark",
    "tests/contract/test_shells.py",
    "tests/contract/test_disk.py",
    "tests/contract/api",
    "tests/simulation",
    "tests/fault/test_kill.py",
    "tests/fault/test_torn.py",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return compiled.build_with_tests(tmp_path_factory.mktemp("compiled") / "tree")


def test_what_is_compiled_is_what_runs(tree):
    code = "import kserver.log.log as log, kserver.wire.records as records\n"
    code += "import kcli.spark._columns as columns\n"
    code += "print(log.__file__, records.__file__, columns.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True
    )
    for path in ran.stdout.split():
        assert path.startswith(str(tree))
        assert path.endswith(".so")


def test_compiled_it_does_the_same(tree):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *TESTS]
    ran = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-10_000:]


def test_what_is_in_c_stays_within_bounds(tree):
    """Built with sanitizers: an access out of bounds or an undefined operation ends the process."""
    flags = "-g -fsanitize=address,undefined -fno-sanitize-recover"
    libraries = " ".join(
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    )
    environment = {
        "K_C_FLAGS": flags,
        "LD_PRELOAD": libraries,
        "PYTHONMALLOC": "malloc",  # one allocation per object, so that its bounds are checked
        "ASAN_OPTIONS": "detect_leaks=0",  # ignore Python's own leaks
    }
    files = ["tests/unit/spark/test_compiled_columns.py", "tests/contract/test_record_decoders.py"]
    command = [sys.executable, "-m", "pytest", "-q", *files]
    ran = subprocess.run(
        command, cwd=tree, env=os.environ | environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
