"""Work runs to its end, or to the end that it is given; every failure has its reason and status."""

import asyncio
import contextlib
import io
import os
import pty
import select
import signal
import sys
import termios
from types import SimpleNamespace

import pytest

from kcli.client.errors import ClusterUnreachable, NoOffset, TimedOut
from kcli.command.command_runner import confirm, raise_first, reason, run, status_of, unwrap
from kcli.command.options import Declined, Refused
from kserver.errors import ConfigError, ErrorCode, KafkaError


async def forever():
    await asyncio.Event().wait()


def test_work_gives_its_result():
    async def work():
        return 7

    assert run(work(), None) == 7


def test_the_time_limit_is_named():
    with pytest.raises(TimeoutError, match=r"not done within 0\.01 s"):
        run(forever(), 0.01)


def test_a_timeout_of_the_work_s_own_is_let_through():
    async def work():
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run(work(), None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_work_in_order(number):
    closed = []

    async def work():
        try:
            os.kill(os.getpid(), number)
            await forever()
        finally:
            closed.append(True)

    with pytest.raises(SystemExit) as end:
        run(work(), None)
    assert (end.value.code, closed) == (128 + number, [True])


def test_ctrl_c_while_the_loop_closes_leaves_no_closed_descriptor_for_signals():
    loops = []

    async def work():
        loops.append(loop := asyncio.get_running_loop())
        loop.close = interrupted

    def interrupted():
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            run(work(), None)
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        del loops[0].close
        loops[0].close()


def test_a_signal_that_the_parent_ignores_stays_ignored():
    async def work():
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0)
        return "done"

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(work(), None) == "done"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("error", "text", "status"),
    [
        (KafkaError(ErrorCode.invalid_partitions, "too few"), "too few", 1),
        (KafkaError(ErrorCode.invalid_partitions), "Number of partitions is below 1.", 1),
        (KafkaError(ErrorCode.invalid_record), "invalid_record", 1),
        (Refused("no"), "no", 1),
        (ConfigError("bad"), "bad", 1),
        (NoOffset([]), "Undefined offset with no reset policy for partitions: []", 1),
        (TimedOut("late"), "late", 124),
        (
            ClusterUnreachable("listTopics"),
            "Timed out waiting for a node assignment. Call: listTopics",
            124,
        ),
    ],
)
def test_every_failure_has_its_reason_and_status(error, text, status):
    assert (reason(error), status_of(error)) == (text, status)


def test_the_first_refusal_is_raised():
    first = KafkaError(ErrorCode.invalid_topic_exception, "first")
    with pytest.raises(KafkaError, match="first"):
        raise_first({"a": None, "b": first, "c": KafkaError(ErrorCode.invalid_config)})
    raise_first({"a": None, "b": 1})
    assert unwrap(5) == 5


UNSURE = SimpleNamespace(yes=False)
PATIENCE_S = 60


@contextlib.contextmanager
def terminal(typed):
    """Standard input and error are a terminal where this is typed; tells what it has shown, as
    soon as that ends with a question."""
    ours, its = pty.openpty()
    # What is typed would be shown too, sooner or later.
    settings = termios.tcgetattr(its)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(its, termios.TCSANOW, settings)
    os.write(ours, typed.encode())

    def shown():
        text = b""
        while not text.endswith(b"? [y/N] "):
            assert select.select([ours], [], [], PATIENCE_S)[0], text
            text += os.read(ours, 65536)
        return text.decode()

    with (
        os.fdopen(its, "r+b", 0) as both,
        open(its, closefd=False) as read,
        io.TextIOWrapper(both) as written,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", read)
        patch.setattr(sys, "stderr", written)
        yield shown
    os.close(ours)


@pytest.mark.parametrize("typed", ["y\n", "Yes\n", " YES \n"])
def test_a_yes_at_the_terminal_goes_on(typed):
    with terminal(typed) as shown:
        run(confirm(UNSURE, "delete all"), None)
        assert shown().endswith("This will delete all.\r\nGo on? [y/N] ")


@pytest.mark.parametrize("typed", ["\n", "n\n", "yess\n", "no\n", "\x04"])
def test_anything_else_at_the_terminal_ends_it(typed):
    with terminal(typed), pytest.raises(Declined, match="nothing was changed"):
        run(confirm(UNSURE, "delete all"), None)


def test_many_steps_are_counted():
    with terminal("y\n") as shown:
        run(confirm(UNSURE, *(f"delete {n}" for n in range(1022))), None)
        told = "This will delete 19.\r\nAnd 1,002 more; --dry-run lists them all.\r\nGo on?"
        assert told in shown()


def test_an_unanswered_question_ends_with_the_time_limit():
    with terminal("") as shown:
        with pytest.raises(TimeoutError):
            run(confirm(UNSURE, "delete all"), 0.01)
        assert shown().endswith("Go on? [y/N] ")


def test_nothing_is_asked_with_yes_or_without_a_terminal():
    with terminal("n\n"):
        run(confirm(SimpleNamespace(yes=True), "delete all"), 1)
        # Undone before the terminal is: else standard input would be that, closed, ever after.
        with open(os.devnull) as nothing, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", nothing)
            run(confirm(UNSURE, "delete all"), 1)
