"""Runs a command's work against a cluster: the event loop, the time limit, and errors.

Commands that print failures in Kafka's words catch `EXPECTED`, print `reason(error)` and return
`status_of(error)`; other errors are reported by `kcli.main`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kcli.client.errors import ClientError, ClusterUnreachable, TimedOut
from kcli.command import error_texts
from kcli.command.options import Declined, Refused, client_properties
from kcli.command.output import complain, transient
from kcli.command.statuses import FAILED, TIMED_OUT
from kserver.errors import ConfigError, KafkaError, ProtocolError

if TYPE_CHECKING:
    from kcli.client.config import AdminConfig
    from kcli.client.settings import Settings
    from kcli.command.command import Options

T = TypeVar("T")
C = TypeVar("C", bound="Settings")

EXPECTED = (Refused, ConfigError, KafkaError, ProtocolError, ClientError)
"""Errors that may end a command and are not bugs."""

CLUSTER = "the cluster"
"""The name of what most commands wait for."""
COLLECT_EVERY = 100_000
NOTICE_AFTER_S, NOTICE_EVERY_S = 1.5, 0.5
MAX_STEPS = 20
"""Maximum number of steps printed before a question; --dry-run prints all."""
MAX_TYPED_BYTES = 4096

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command like Ctrl-C."""

_is_asking = False
"""Whether a question is on the terminal, which notices must not replace."""


def run(
    work: Coroutine[Any, Any, T],
    timeout_s: float | None,
    awaited: str = "",
    *,
    while_read: bool = False,
) -> T:
    """Run the work to its end; with `while_read`, until the reader of standard output has closed
    it, which raises BrokenPipeError: a write would detect it, but the next one may never come.

    Raises TimeoutError after --timeout. SIGTERM, and the SIGHUP of a closed terminal, end it like
    Ctrl-C: resources are closed first, then SystemExit has the status of a shell for that signal. A
    signal that the parent ignores (nohup) stays ignored. `awaited` is shown at the terminal if the
    wait is long.
    """
    unread = False
    ended_by: signal.Signals | None = None

    async def bounded() -> T:
        task = asyncio.current_task()
        assert task is not None

        def terminate(number: signal.Signals) -> None:
            nonlocal ended_by
            ended_by = ended_by or number
            task.cancel()

        def reader_has_gone() -> None:
            nonlocal unread
            unread = True
            task.cancel()

        # Many thousands of records live for a moment, without cycles: a search for cycles at every
        # 700 new objects would cost a fifth of a consumer's time.
        gc.set_threshold(COLLECT_EVERY)
        loop = asyncio.get_running_loop()
        handled = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, terminate, number)
        waiting = _Waiting(awaited) if awaited else contextlib.nullcontext()
        watched = _watch_reader(reader_has_gone) if while_read else contextlib.nullcontext()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                with waiting, watched:
                    return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"not done within {timeout_s:g} s") from error
        finally:
            # While the loop closes, a Ctrl-C would keep it from removing them: the next signal
            # would be written to a closed descriptor.
            for number in handled:
                loop.remove_signal_handler(number)

    try:
        return asyncio.run(bounded())
    except asyncio.CancelledError:
        if unread:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        assert ended_by is not None
        raise SystemExit(128 + ended_by) from None


@contextlib.contextmanager
def _watch_reader(gone: Callable[[], None]) -> Iterator[None]:
    """Call `gone` once the reading end of standard output, if that is a pipe, is closed."""
    loop = asyncio.get_running_loop()
    try:
        pipe = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(pipe).st_mode)
    except (OSError, ValueError):
        is_pipe = False
    if not is_pipe:
        yield
        return

    def look() -> None:
        # epoll reports a closed end like readable bytes, which a pipe opened both ways may have.
        loop.remove_reader(pipe)
        poll = select.poll()
        poll.register(pipe, 0)
        if poll.poll(0):
            gone()

    loop.add_reader(pipe, look)
    try:
        yield
    finally:
        loop.remove_reader(pipe)


class _Waiting:
    """A line on the terminal of standard error, once the wait is long."""

    def __init__(self, awaited: str) -> None:
        self.awaited = awaited
        self.loop = asyncio.get_running_loop()
        self.started = self.loop.time()
        self.timer = self.loop.call_later(NOTICE_AFTER_S, self._show_notice)

    def _show_notice(self) -> None:
        if not _is_asking:
            transient(f"waiting for {self.awaited}, {self.loop.time() - self.started:.0f} s")
        self.timer = self.loop.call_later(NOTICE_EVERY_S, self._show_notice)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *ended: object) -> None:
        self.timer.cancel()
        transient("")


async def confirm(options: Options, *steps: str) -> None:
    """Ask on the terminal whether to go on with steps that lose data: "delete topic orders".

    Does not ask with --yes, and without a terminal, as Kafka's scripts do not. Any answer except y
    or yes raises Declined.
    """
    global _is_asking
    if options.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    for step in steps[:MAX_STEPS]:
        complain(f"This will {step}.")
    if len(steps) > MAX_STEPS:
        complain(f"And {len(steps) - MAX_STEPS:,} more; --dry-run lists them all.")
    # The loop waits for the line, so that Ctrl-C and --timeout end the wait.
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    terminal = sys.stdin.fileno()
    _is_asking = True
    try:
        transient("")
        sys.stderr.write("Go on? [y/N] ")
        sys.stderr.flush()
        loop.add_reader(terminal, typed.set)
        await typed.wait()
        line = os.read(terminal, MAX_TYPED_BYTES)
    finally:
        loop.remove_reader(terminal)
        _is_asking = False
    if line.strip().lower() not in (b"y", b"yes"):
        raise Declined("nothing was changed")


def reason(error: Exception) -> str:
    """Return the reason for a person: the broker's own text without the code's name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return error_texts.text(error) if isinstance(error, KafkaError) else str(error)


def status_of(error: Exception) -> int:
    return TIMED_OUT if isinstance(error, ClusterUnreachable | TimedOut) else FAILED


def unwrap(result: T | KafkaError) -> T:
    """Return one item's result, or raise its error."""
    if isinstance(result, KafkaError):
        raise result
    return result


def raise_first(results: Mapping[Any, object]) -> None:
    """Raise the first error, if any."""
    for result in results.values():
        unwrap(result)


def with_warnings(config: C) -> C:
    """Return the configuration after printing its warnings on standard error."""
    for warning in config.warnings:
        complain(warning)
    return config


def admin_config(options: Options, **defaults: str) -> AdminConfig:
    """Return the configuration of --command-config and --bootstrap-server."""
    from kcli.client.config import AdminConfig

    return with_warnings(AdminConfig.of(client_properties(options, **defaults)))
