"""Output of commands: results on standard output, everything else on standard error.

Text from a cluster may contain terminal controls: escape sequences in a topic's configuration, in a
record, in an error's text. On a terminal such characters are printed as `\\xNN`; a pipe or a file
gets the text as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

# C0 and C1 control characters and DEL, except tab and newline, which format our own lines.
_VISIBLE = {c: f"\\x{c:02x}" for c in (*range(0x20), *range(0x7F, 0xA0)) if c not in (0x09, 0x0A)}
# Line separators, and characters that change the direction of text.
_VISIBLE |= {c: f"\\u{c:04x}" for c in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))}

COLUMNS = 80
"""The width of a terminal that does not report it."""

TERMINALS_WITHOUT_CURSOR = ("", "dumb", "unknown")
"""Values of TERM for terminals that cannot overwrite a line; the same if TERM is not set."""

_transient = ""
"""The transient line on the terminal of standard error."""


def visible(text: str) -> str:
    """Return the text with control characters except tab and newline as `\\xNN`, and line
    separators and characters that change the text's direction as `\\uNNNN`.
    """
    return text.translate(_VISIBLE)


def is_redrawable(stream: TextIO) -> bool:
    """Whether the stream is a terminal on which lines can be overwritten."""
    return stream.isatty() and os.environ.get("TERM", "") not in TERMINALS_WITHOUT_CURSOR


def print_output(text: str = "", end: str = "\n") -> None:
    """Print a result of the command."""
    _write(sys.stdout, text + end)


def prompt(lines: int) -> None:
    """Prompt for `lines` lines of input, as Kafka's console does."""
    if lines:
        sys.stdout.write(">" * lines)
        sys.stdout.flush()


def complain(text: str) -> None:
    """Print a notice or the reason of a failure; errors in printing it are ignored."""
    with contextlib.suppress(OSError):
        _write(sys.stderr, text + "\n")
        sys.stderr.flush()


def would(*steps: str) -> None:
    """Print the changes that --dry-run omits, a line for each: "delete topic orders"."""
    for step in steps:
        print_output(f"Would {step}.")


def transient(text: str) -> None:
    """Show a line on the terminal of standard error that the next output replaces; an empty one
    removes it. Does nothing if standard error is not a terminal, or cannot move the cursor.
    """
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
    """Redirect standard output to /dev/null if the caller closed it: for a log, not for results."""
    import fcntl

    if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def print_bytes(*pieces: bytes) -> None:
    """Print bytes as they are, on a terminal without its controls; flush at once."""
    if sys.stdout.isatty():
        transient("")
        sys.stdout.write(visible(b"".join(pieces).decode(errors="replace")))
    else:
        sys.stdout.buffer.writelines(pieces)
    sys.stdout.flush()
