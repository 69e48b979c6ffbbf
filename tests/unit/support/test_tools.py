from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

from tests.support import tools


@pytest.fixture
def nothing_installed(monkeypatch):
    """No program is found, and what was missed here is not told at the end of the run."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    before = dict(tools.absent)
    yield
    tools.absent.clear()
    tools.absent.update(before)


@pytest.mark.usefixtures("nothing_installed")
def test_an_absent_tool_skips_with_its_install_line():
    with pytest.raises(pytest.skip.Exception, match="kcat is absent: apt-get install kcat"):
        tools.require("kcat")
    assert tools.absent["kcat"] == "apt-get install kcat"


@pytest.mark.usefixtures("nothing_installed")
def test_an_absent_tool_fails_in_ci(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="java is absent: apt-get install"):
        tools.require("java")


def test_a_program_is_found_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "go").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.require("go") == str(tmp_path / "go")


def test_a_package_is_found_where_it_lies():
    assert tools.find("hypothesis") == str(Path(hypothesis.__file__).parent)
    assert tools.find("no_such_package") is None
