"""`k`: finds the command, runs it, and turns every end into an exit status.

Commands are modules of `kcli.commands` and are imported when they are named: an import costs more
than most commands' own work. `k --version`, which has to be quick, needs only this module.

The exit statuses are in `kcli.command.statuses`. If the reader of standard output closes it, as in
`k topics --list | head -1`, the command ends quietly, with 0.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable, Sequence

from kcli.command.command_list import COMMANDS
from kcli.command.output import complain
from kcli.command.statuses import DONE, FAILED, INTERRUPTED, TIMED_OUT, USAGE

SIGINT = 2
"""As in `signal`, whose import takes a while."""

HALF_MADE = "BaseEventLoop.__del__"
"""Reports a loop whose creation was interrupted by Ctrl-C."""
COMPLETE = "__complete"
"""Called by the scripts of `k completion`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `k` with these words (by default those of the process) and return the exit status."""
    if argv is not None:
        return ended(argv, _run)
    _open_missing_streams()
    sys.unraisablehook = _unraisable
    # A character that the terminal's encoding lacks is printed as a number.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    words = sys.argv[1:]
    if words == ["--version"]:
        return ended(words, _version)
    if words[:1] == [COMPLETE]:
        from kcli.shell_completion import completion

        return ended([], lambda _: completion.main(words[1:]))
    return _release_ctrl_c(ended(words, _run))


def _release_ctrl_c(status: int) -> int:
    """From here on, Ctrl-C ends the process at once: Python's handler would print a traceback while
    the interpreter ends. Return the status, or INTERRUPTED if a Ctrl-C came first.
    """
    while True:
        try:
            import signal

            signal.signal(signal.SIGINT, signal.SIG_DFL)
            return status
        except KeyboardInterrupt:
            status = INTERRUPTED


def ended(words: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """Run, and turn any end into an exit status; only the reason goes to stderr."""
    try:
        return _run_to_status(words, run)
    except KeyboardInterrupt:
        # Ctrl-C once more, or while a reason was printed.
        return INTERRUPTED


def _run_to_status(words: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    name = f"k {words[0]}" if words and not words[0].startswith("-") else "k"
    try:
        status = run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        import warnings

        # Suppress warnings that a coroutine was never awaited: it was interrupted.
        warnings.simplefilter("ignore", RuntimeWarning)
        status = INTERRUPTED
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else FAILED
    except BrokenPipeError:
        status = DONE
    except Exception as error:
        # Python 3.11 wraps exceptions of __set_name__, including Ctrl-C while a class is created.
        is_interrupt = isinstance(error.__cause__, KeyboardInterrupt)
        status = INTERRUPTED if is_interrupt else _end(name, _with_argument_name(error, words))
    try:
        sys.stdout.flush()
    except OSError as error:
        # The reader has closed it, or the disk is full. The rest of the buffer must not be written
        # again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if status == DONE and not isinstance(error, BrokenPipeError):
            status = _end(name, error)
    return status


def _open_missing_streams() -> None:
    """Open streams that the caller closed, before a file takes their numbers. Writing to a missing
    standard output fails, so a command never seems to have succeeded.
    """
    for number, name, flags, mode in (
        (0, "stdin", os.O_RDONLY, "r"),
        (1, "stdout", os.O_RDONLY, "w"),
        (2, "stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _unraisable(raised: sys.UnraisableHookArgs) -> None:
    """Send Ctrl-C again if it was raised in a destructor, where Python only reports it."""
    if isinstance(raised.exc_value, KeyboardInterrupt):
        # From a thread, because here it would be raised, and ignored, before this returns. If no
        # thread can be started, the interpreter is ending anyway.
        try:
            _thread.start_new_thread(os.kill, (os.getpid(), SIGINT))
        except RuntimeError:
            pass
    elif getattr(raised.object, "__qualname__", "") != HALF_MADE:
        sys.__unraisablehook__(raised)


def _version(_words: Sequence[str]) -> int:
    from kserver import __version__

    print(f"k {__version__}")
    return DONE


def _run(words: Sequence[str]) -> int:
    import click

    from kcli.command.command import Overview

    k = Overview("k", COMMANDS)
    try:
        with k.make_context("k", list(words)) as context:
            status = k.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return DONE if status is None else int(status)


def _with_argument_name(error: Exception, words: Sequence[str]) -> Exception:
    """Return the error, or if a text could not be encoded, one that names the text."""
    if not isinstance(error, UnicodeEncodeError):
        return error
    for word in words:
        shown = os.fsencode(word).decode(errors="backslashreplace")
        if shown != word:
            import click

            return click.UsageError(f"the argument {shown} is not UTF-8; write it in UTF-8")

    from kcli.command.options import Refused

    return Refused(f"{error.object!a} has half of a surrogate pair, which UTF-8 does not have")


def _end(name: str, error: Exception) -> int:
    """Print on standard error why `name` ended, and return the exit status for it."""
    import click

    if isinstance(error, click.exceptions.Abort):
        return INTERRUPTED
    if isinstance(error, click.UsageError):
        complain(f"{name}: {error.format_message()}")
        if error.ctx is not None:
            complain(f"Try '{error.ctx.command_path} --help'.")
        return USAGE
    if isinstance(error, TimeoutError):
        complain(f"{name}: {error}")
        return TIMED_OUT
    if isinstance(error, OSError):
        subject = "" if error.filename is None else f"{error.filename}: "
        complain(f"{name}: {subject}{error.strerror or error}")
        return FAILED

    from kcli.command import command_runner

    if isinstance(error, command_runner.EXPECTED):
        complain(f"{name}: {command_runner.reason(error)}")
        return command_runner.status_of(error)
    if os.environ.get("K_DEBUG"):
        raise error
    complain(f"{name}: internal error: {type(error).__name__}: {error}")
    complain("K_DEBUG=1 shows where.")
    return FAILED
