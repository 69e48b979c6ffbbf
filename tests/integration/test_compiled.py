"""Run some tests on a build with K_COMPILE=1: the short form of tests/soak/soak_compiled.py."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.bench import compiled

TESTS = ("tests/contract/test_shells.py", "tests/fault/test_torn.py")
PATHS = """
import kserver.log.log, kserver.wire.batch
print(kserver.log.log.__file__, kserver.wire.batch.__file__)
"""


def test_a_compiled_broker_serves_and_recovers(tmp_path):
    tree = compiled.build_with_tests(tmp_path / "tree")
    for path in run(tree, "-c", PATHS).split():
        assert path.startswith(str(tree))
        assert path.endswith(".so")
    run(tree, "-m", "pytest", "-q", *TESTS)


def run(tree, *words):
    # Without the variables of the run of pytest that this test belongs to.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("K_TESTS_", "PYTEST_"))}
    ran = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2000:]
    return ran.stdout
