"""Detection of a deadlock in librdkafka (its issue 5476).

It occurs if a partition's leader fails while a consumer requests the end of an epoch from it. The
main thread and the broker's thread each wait for a lock that the other holds, for ever: the
consumer reads nothing more, and cannot be closed. A healthy thread of librdkafka waits with a
timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

TASKS = Path("/proc/self/task")
FUTEX = "202"
"""The system call of a wait, on x86-64: its number, the address, the operation, the expected value
at the address, and the timeout.
"""
NO_LIMIT = "0x0"
FOR_EVER_S = 10
LOOK_S = 1


def waiting_for_locks() -> frozenset[tuple[str, str]]:
    """Return each thread of librdkafka that waits for a lock without a timeout, with the lock's
    address.
    """
    found = set()
    for task in TASKS.iterdir():
        try:
            if not (task / "comm").read_text().startswith("rdk:"):
                continue
            call, *arguments = (task / "syscall").read_text().split()
        except OSError:
            continue  # the thread has just ended
        if call == FUTEX and arguments[3] == NO_LIMIT:
            found.add((task.name, arguments[0]))
    return frozenset(found)


class DeadlockWatch:
    """Reports each deadlock in this process once, and none that was there before: its threads stay
    when the client that had it is given up.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: dict[tuple[str, str], float] = {}
        self._told = waiting_for_locks()
        self._looked = 0.0

    def is_new(self) -> bool:
        """Return whether threads have waited for FOR_EVER_S, and this was not reported yet. Call it
        often; it checks every LOOK_S.
        """
        now = self._now()
        if now < self._looked + LOOK_S:
            return False
        self._looked = now
        waits = waiting_for_locks()
        self._told &= waits
        self._since = {wait: self._since.get(wait, now) for wait in waits}
        stuck = frozenset(w for w, since in self._since.items() if now - since >= FOR_EVER_S)
        is_new = bool(stuck - self._told)
        self._told |= stuck
        return is_new
