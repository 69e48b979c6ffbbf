"""Progress of long work, on the terminal of standard error; never in a log, a pipe or a mail.

If results are printed on a terminal no progress is shown; work without output is `silent`.
"""

from __future__ import annotations

import sys
import time

from kcli.command.output import transient

FIRST_S = 1.0
"""Seconds: shorter work shows no progress."""
EVERY_S = 0.25


class Progress:
    """Call `at(done)` as often as needed, and `end()`."""

    def __init__(self, what: str, total: int, *, silent: bool = False) -> None:
        self.what = what
        self.total = total
        self.is_shown = sys.stderr.isatty() and (silent or not sys.stdout.isatty())
        self.started = time.monotonic()
        self.next = self.started + FIRST_S

    def at(self, done: int) -> None:
        if not self.is_shown or (now := time.monotonic()) < self.next:
            return
        self.next = now + EVERY_S
        self.total = max(self.total, done)
        left_s = (now - self.started) * (self.total - done) / done if done else 0
        transient(f"{done / self.total:4.0%} of {self.total:,} {self.what}, {left_s:.0f} s left")

    def end(self) -> None:
        transient("")
