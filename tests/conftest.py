"""What every test run prints at its end: the tools it missed."""

from __future__ import annotations

from tests.support import tools


def pytest_terminal_summary(terminalreporter):
    if tools.absent:
        terminalreporter.section("absent tools")
        for tool, install in sorted(tools.absent.items()):
            terminalreporter.line(f"{tool}: {install}")
