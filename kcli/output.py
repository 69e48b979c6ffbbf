"""What a command prints: answers on standard output, everything else on standard error.

Text that comes from a cluster may hold what a terminal would obey: escape sequences in a topic's
configuration, in a record, in an error's text.  On a terminal such characters are shown as
`\\xNN`; a pipe or a file receives the text as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

# C0 and C1 control characters and DEL, but for tab and newline, which lay out our own lines.
_VISIBLE = {c: f"\\x{c:02x}" for c in (*range(0x20), *range(0x7F, 0xA0)) if c not in (0x09, 0x0A)}
# Separators of lines, and what makes a terminal write from right to left.
_VISIBLE |= {c: f"\\u{c:04x}" for c in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))}

COLUMNS = 80
"""The width of a terminal that does not tell."""

TERMINALS_WITHOUT_CURSOR = ("", "dumb", "unknown")
"""Values of TERM for terminals that cannot overwrite a line; as when TERM is not set."""

_transient = ""
"""What stands on the terminal of standard error until something takes its place."""


def visible(text: str) -> str:
    """The text with each control character but tab and newline written as `\\xNN`, and what
    separates lines or turns their direction as `\\uNNNN`."""
    return text.translate(_VISIBLE)


def is_redrawable(stream: TextIO) -> bool:
    """Whether the stream is a terminal on which what was shown can be overwritten."""
    return stream.isatty() and os.environ.get("TERM", "") not in TERMINALS_WITHOUT_CURSOR


def answer(text: str = "", end: str = "\n") -> None:
    """Print what the command was asked for."""
    _write(sys.stdout, text + end)


def prompt(lines: int) -> None:
    """Ask for so many lines of input, as Kafka's console does."""
    if lines:
        sys.stdout.write(">" * lines)
        sys.stdout.flush()


def complain(text: str) -> None:
    """Print a notice or the reason of a failure; one that cannot be printed is no failure."""
    with contextlib.suppress(OSError):
        _write(sys.stderr, text + "\n")
        sys.stderr.flush()


def would(*steps: str) -> None:
    """Print what --dry-run leaves undone, a line a step: "delete topic orders"."""
    for step in steps:
        answer(f"Would {step}.")


def transient(text: str) -> None:
    """Show a line on the terminal of standard error that the next line takes the place of; an empty
    one takes it away.  Nothing where standard error is no terminal, or has no cursor to move."""
    global _transient
    if (text or _transient) and is_redrawable(sys.stderr):
        _transient = text
        with contextlib.suppress(OSError):
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
            sys.stderr.write(f"\r\x1b[K{visible(text)[: columns - 1]}")
            sys.stderr.flush()


def _write(stream: TextIO, text: str) -> None:
    if stream.isatty():
        transient("")
        text = visible(text)
    stream.write(text)


def discard_unwritable() -> None:
    """Where the caller closed standard output, send it nowhere: for a log, which is no answer."""
    import fcntl

    if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def answer_bytes(*pieces: bytes) -> None:
    """Print bytes as they are, on a terminal without what it would obey; at once."""
    if sys.stdout.isatty():
        transient("")
        sys.stdout.write(visible(b"".join(pieces).decode(errors="replace")))
    else:
        sys.stdout.buffer.writelines(pieces)
    sys.stdout.flush()
