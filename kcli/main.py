"""`k`: finds the command, runs it, and turns every end into an exit status.

Commands are modules of `kcli.commands` and are imported when they are named: an import costs more
than most commands' own work.  What must be quick (`k --version`) needs nothing but this module.

The exit statuses are those of `kcli.statuses`.  A reader of standard output that has had enough,
as in `k topics --list | head -1`, ends a command quietly, with 0.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable, Sequence

from kcli.command_list import COMMANDS
from kcli.output import complain
from kcli.statuses import DONE, FAILED, INTERRUPTED, TIMED_OUT, USAGE

SIGINT = 2
"""What `signal` has, which takes a while to import."""

HALF_MADE = "BaseEventLoop.__del__"
"""What complains of a loop that Ctrl-C kept from being made."""
COMPLETE = "__complete"
"""What the scripts of `k completion` call."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `k` with these words (by default those of the process) and return the exit status."""
    if argv is not None:
        return ended(argv, _run)
    _open_missing_streams()
    sys.unraisablehook = _unraisable
    # A character that the terminal's encoding lacks is shown by number, not by a crash.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    words = sys.argv[1:]
    if words == ["--version"]:
        return ended(words, _version)
    if words[:1] == [COMPLETE]:
        from kcli.shell import completion

        return ended([], lambda _: completion.main(words[1:]))
    status = ended(words, _run)

    import signal

    # Another Ctrl-C while the interpreter ends is no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status


def ended(words: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """Run, and turn whatever ends it into an exit status; only the reason goes to stderr."""
    try:
        return _ended(words, run)
    except KeyboardInterrupt:
        # Ctrl-C once more, or while a reason was told.
        return INTERRUPTED


def _ended(words: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    name = f"k {words[0]}" if words and not words[0].startswith("-") else "k"
    try:
        status = run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        import warnings

        # What was about to begin is said never to have been awaited: so it was.
        warnings.simplefilter("ignore", RuntimeWarning)
        status = INTERRUPTED
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else FAILED
    except BrokenPipeError:
        status = DONE
    except Exception as error:
        # Python 3.11 wraps what a __set_name__ raises, Ctrl-C while a class is made too.
        is_interrupt = isinstance(error.__cause__, KeyboardInterrupt)
        status = INTERRUPTED if is_interrupt else _end(name, _named(error, words))
    try:
        sys.stdout.flush()
    except OSError as error:
        # The reader has gone, or the disk is full.  What is left in the buffer must not be tried
        # again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if status == DONE and not isinstance(error, BrokenPipeError):
            status = _end(name, error)
    return status


def _open_missing_streams() -> None:
    """Give back what the caller closed, before a file takes its number.  What is written to a
    standard output that is not there fails; a command never claims to have answered."""
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
    """Ctrl-C while an object went away, where Python tells of it and goes on: it comes again."""
    if isinstance(raised.exc_value, KeyboardInterrupt):
        # From a thread, for it would be raised, and ignored, in here before this had returned.
        # Where no thread can be had, the interpreter is ending anyway.
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

    from kcli.command import Overview

    k = Overview("k", COMMANDS)
    try:
        with k.make_context("k", list(words)) as context:
            status = k.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return DONE if status is None else int(status)


def _named(error: Exception, words: Sequence[str]) -> Exception:
    """Return the error, or if a text could not be encoded, one that names the text."""
    if not isinstance(error, UnicodeEncodeError):
        return error
    for word in words:
        shown = os.fsencode(word).decode(errors="backslashreplace")
        if shown != word:
            import click

            return click.UsageError(f"the argument {shown} is not UTF-8; write it in UTF-8")

    from kcli.options import Refused

    return Refused(f"{error.object!a} has half of a surrogate pair, which UTF-8 does not have")


def _end(name: str, error: Exception) -> int:
    """Say on standard error why `name` ended, and return the exit status that goes with it."""
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

    from kcli import running

    if isinstance(error, running.EXPECTED):
        complain(f"{name}: {running.reason(error)}")
        return running.status_of(error)
    if os.environ.get("K_DEBUG"):
        raise error
    complain(f"{name}: internal error: {type(error).__name__}: {error}")
    complain("K_DEBUG=1 shows where.")
    return FAILED
