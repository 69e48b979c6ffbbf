"""What holds for every test, and what every run prints at its end: the tools it missed.

`pytest -n 2` runs the suite in two processes: a file's tests stay in one of them, and where a
directory's tests share brokers, the directory's do.  Scopes of many minutes begin first, else one
process would wait for the other at the end.  Seeds by the hundred go to whichever is free.

`--stage first` leaves out what needs a JVM for most of its time, and seeds by the hundred;
`--stage second` is that alone, and `--stage quick` is what a change is tried with before anything
else.
"""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import hypothesis
import pytest

# Before they are imported: their assertions show values, as those in tests do.
pytest.register_assert_rewrite("tests.support")

from tests.support import stage, tools  # noqa: E402
from tests.support.seeds import FIRST_SEED, FRESH_SEED  # noqa: E402

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
STAGES = ("first", "second", "quick")
SECOND_STAGE = (
    "conformance/",
    "integration/library/",
    "integration/scripts/",
    "integration/spark/",
    "integration/test_apache_zookeeper.py",
    "integration/test_compiled.py",
    "integration/test_configs.py",
    "integration/test_example_access_log.py",
    "integration/test_gigabyte_reassignment.py",
    "integration/test_groups_apache.py",
    "simulation/test_swarm_more.py",
)
"""Spark, Apache's brokers and scripts beside ours, a gigabyte, and seeds by the hundred."""
WHEREVER = ("simulation/test_swarm_fresh.py", "simulation/test_swarm_more.py")
"""Each of their tests goes to the process that is free."""
BROKEN_STORIES: dict[Path, str] = {}
"""File -> its first failure, after which the rest of the file is skipped: brokers that a failed
test left dead would make each test after it wait for its whole timeout."""
QUICK = ("tidy/", "unit/", "contract/", "simulation/test_determinism.py")
NOT_QUICK = ("contract/test_znodes_apache.py",)
LONGEST_FIRST = (
    "conformance/",
    "integration/spark/",
    "integration/library/",
    "integration/scripts/",
    "integration/clients/",
    "fault/",
    "simulation/",
    "integration/",
)


def pytest_report_header():
    again = f"FIRST_SEED={FIRST_SEED} FRESH_SEED={FRESH_SEED}"
    return f"simulation: {again} repeats what is new in this run"


def pytest_addoption(parser):
    parser.addoption("--stage", choices=STAGES, help="a part of the suite; all of it otherwise")


def pytest_configure(config):
    stage.configure(config)
    _end_nohup_for_children(config)


def _end_nohup_for_children(config):
    """Let a hangup end the processes that tests start, while pytest itself still ignores it.

    A handler is replaced by the default in a new program; SIG_IGN is inherited.  The process that
    only distributes tests keeps SIG_IGN, because its workers have to ignore a hangup too.
    """
    runs_tests = config.getoption("dist", "no") == "no"
    if runs_tests and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_modifyitems(config, items):
    name = config.getoption("stage")
    chosen = [item for item in items if name is None or is_of(name, path_of(item.nodeid))]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = sorted(chosen, key=lambda item: rank(path_of(item.nodeid)))
    for item in items:
        if limit := stage.limit_s(path_of(item.nodeid)):
            item.add_marker(pytest.mark.timeout(limit))


def path_of(nodeid):
    """The path of a test's file below tests/."""
    return nodeid.partition("::")[0].removeprefix("tests/")


def is_of(name, path):
    if name == "quick":
        return path.startswith(QUICK) and not path.startswith(NOT_QUICK)
    return path.startswith(SECOND_STAGE) is (name == "second")


def rank(path):
    if path in WHEREVER:
        return len(LONGEST_FIRST) + 1
    starts = (n for n, start in enumerate(LONGEST_FIRST) if path.startswith(start))
    return next(starts, len(LONGEST_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = path_of(nodeid)
            if path in WHEREVER:
                return nodeid
            directory = path.rpartition("/")[0]
            return directory if directory in SHARE_BROKERS else path

    return Together(config, log)


def pytest_collection_finish():
    keep_what_is_there()


def pytest_runtest_setup(item):
    if item.path in BROKEN_STORIES:
        pytest.skip(f"{BROKEN_STORIES[item.path]} failed, and this goes on there")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if stage.ends_its_file(item, report):
        setattr(report, stage.ENDS_FILE, True)
        BROKEN_STORIES.setdefault(item.path, item.name)
    return report


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
