"""What holds for every test, and what every run prints at its end: the tools it missed.

`pytest -n 2` runs the suite in two processes: a file's tests stay in one of them, and where a
directory's tests share brokers, the directory's do.
"""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import hypothesis
import pytest

from tests.support import tools

# Timing decides no test: a slow machine is not a broken one.
hypothesis.settings.register_profile("k", deadline=None, print_blob=True)
hypothesis.settings.load_profile("k")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell has it for what it starts in the background; all that tests start would be so too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
SHARE_BROKERS = (
    "conformance",
    "contract/api",
    "integration/library",
    "integration/clients",
    "integration/scripts",
    "integration/spark",
    "security",
)
ABSENT = "absent tools"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.partition("::")[0].removeprefix("tests/")
            directory = path.rpartition("/")[0]
            return directory if directory in SHARE_BROKERS else path

    return Together(config, log)


def pytest_collection_finish():
    keep_what_is_there()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item, nextitem):
    yield
    if nextitem is not None and nextitem.path != item.path:
        keep_what_is_there()


def keep_what_is_there():
    """What pytest and the modules hold, those too that tests were the first to import, stays to the
    end: simulations collect their garbage often, and need not look through this each time, which
    took 80 ms of each at the end of the suite."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session):
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[ABSENT] = tools.absent


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    tools.absent.update(getattr(node, "workeroutput", {}).get(ABSENT, {}))


def pytest_terminal_summary(terminalreporter):
    if tools.absent:
        terminalreporter.section(ABSENT)
        for tool, install in sorted(tools.absent.items()):
            terminalreporter.line(f"{tool}: {install}")
