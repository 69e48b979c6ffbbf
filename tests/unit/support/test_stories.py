"""After a failure nothing more is told of a story."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"
STORY = """
import pytest
{mark}
def test_begins(): pass
def test_breaks(): assert False
def test_goes_on(): pass
"""


@pytest.mark.parametrize(
    ("mark", "outcome"),
    [
        ("pytestmark = pytest.mark.story", "1 failed, 1 passed, 1 skipped"),
        ("", "1 failed, 2 passed"),
    ],
)
def test_what_comes_after_a_failure_is_not_run(tmp_path, mark, outcome):
    test = tmp_path / "test_one.py"
    test.write_text(STORY.format(mark=mark))
    words = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--noconftest", "-c", "setup.cfg"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(test)],
        cwd=CONFTEST.parents[1],
        capture_output=True,
        text=True,
    )
    assert outcome in done.stdout, done.stdout + done.stderr
    assert ("test_breaks failed, and this goes on there" in done.stdout) is bool(mark)
