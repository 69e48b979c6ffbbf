"""Commands on a terminal of their own."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
from collections.abc import Mapping, Sequence

TIMEOUT_S = 60
"""Seconds for the command to exit after its end of the terminal is closed."""


def on_a_terminal(
    words: Sequence[str],
    *,
    typed: bytes = b"",
    environment: Mapping[str, str] | None = None,
    only_stderr: bool = False,
    interrupt_at: bytes | None = None,
) -> tuple[int, bytes]:
    """Return the status, and the output, with this input; press Ctrl-C when a text is shown.

    With `only_stderr` the other streams are not a terminal, and their output is discarded.
    """
    ours, its = pty.openpty()
    others = subprocess.DEVNULL if only_stderr else its
    if environment is None:
        environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(
        words, stdin=others, stdout=others, stderr=its, env=environment
    ) as running:
        os.close(its)
        os.write(ours, typed)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while data := os.read(ours, 4096):
                if interrupt_at and interrupt_at not in shown and interrupt_at in shown + data:
                    running.send_signal(signal.SIGINT)
                shown += data
        os.close(ours)
        return running.wait(TIMEOUT_S), shown
