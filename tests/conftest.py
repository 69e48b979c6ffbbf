"""What holds for every test, and what every run prints at its end: the tools it missed."""

from __future__ import annotations

import hypothesis

from tests.support import tools

# Timing decides no test: a slow machine is not a broken one.
hypothesis.settings.register_profile("k", deadline=None, print_blob=True)
hypothesis.settings.load_profile("k")


def pytest_terminal_summary(terminalreporter):
    if tools.absent:
        terminalreporter.section("absent tools")
        for tool, install in sorted(tools.absent.items()):
            terminalreporter.line(f"{tool}: {install}")
