"""librdkafka's own deadlock, seen from outside (its issue 5476).

Where a partition's leader goes away while a consumer asks it where an epoch ended, its main thread
and that broker's each wait for a lock that the other holds, for ever: the consumer reads nothing
more, and cannot be closed.  A thread of librdkafka that is well waits with a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

TASKS = Path("/proc/self/task")
FUTEX = "202"
"""The system call of a wait, on x86-64: its number, the address, the operation, the value that it
is to have there, and the limit."""
NO_LIMIT = "0x0"
FOR_EVER_S = 10
LOOK_S = 1


def waiting_for_locks() -> frozenset[tuple[str, str]]:
    """The thread and the address of the lock, of each of librdkafka's threads that waits for one
    without a limit."""
    found = set()
    for task in TASKS.iterdir():
        try:
            if not (task / "comm").read_text().startswith("rdk:"):
                continue
            call, *arguments = (task / "syscall").read_text().split()
        except OSError:
            continue  # it has just ended
        if call == FUTEX and arguments[3] == NO_LIMIT:
            found.add((task.name, arguments[0]))
    return frozenset(found)


class DeadlockWatch:
    """Tells once of each deadlock in this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: dict[tuple[str, str], float] = {}
        self._told: frozenset[tuple[str, str]] = frozenset()
        self._looked = 0.0

    def is_new(self) -> bool:
        """Whether threads have waited for FOR_EVER_S, of which it has not told.  To be asked often;
        it looks every LOOK_S."""
        now = self._now()
        if now < self._looked + LOOK_S:
            return False
        self._looked = now
        self._since = {wait: self._since.get(wait, now) for wait in waiting_for_locks()}
        stuck = frozenset(w for w, since in self._since.items() if now - since >= FOR_EVER_S)
        is_new = bool(stuck - self._told)
        self._told |= stuck
        return is_new
