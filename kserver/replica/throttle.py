"""What replication may cost: bytes a second that throttled replicas send and take.

Pure: no I/O, no clock; times come in.

    side      rate                                    replicas, by topic
    leader    leader.replication.throttled.rate       leader.replication.throttled.replicas
    follower  follower.replication.throttled.rate     follower.replication.throttled.replicas

A replica is throttled where its topic's list has `*` or `partition:broker`; all that it sends or
takes is counted.  What is in sync is never held back: producers wait for it.

The rate is what was counted in the last `replication.quota.window.num` windows of
`replication.quota.window.size.seconds`, by the time since the first of them began, one window at
the least.  Once it is above the bound, nothing more is sent until it has fallen: what is measured
over several windows comes to the bound, however much one answer carries.
(Kafka: ReplicationQuotaManager, SimpleRate.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kserver.model import BrokerId

ALL = "*"


def is_listed(replicas: Sequence[str], partition: int, broker: BrokerId) -> bool:
    """Whether `replicas`, a topic's list, throttles this broker's replica of a partition."""
    return bool(replicas) and (ALL in replicas or f"{partition}:{broker}" in replicas)


class ReplicationQuota:
    """Of one side; `bound` in bytes a second."""

    def __init__(self, bound: int, windows: int, window_ms: int) -> None:
        self.bound = bound
        self._windows = windows
        self._window_ms = window_ms
        self._counted: deque[tuple[int, int]] = deque()
        """The begin of each window, and its bytes; the latest last."""

    def record(self, size: int, now_ms: int) -> None:
        self._forget(now_ms)
        if self._counted and now_ms - self._counted[-1][0] < self._window_ms:
            began_ms, before = self._counted.pop()
            self._counted.append((began_ms, before + size))
        else:
            self._counted.append((now_ms, size))

    def rate(self, now_ms: int) -> float:
        """Bytes a second."""
        self._forget(now_ms)
        if not self._counted:
            return 0.0
        elapsed_ms = max(now_ms - self._counted[0][0], self._window_ms)
        return sum(size for _, size in self._counted) * 1000 / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        return self.rate(now_ms) > self.bound

    def _forget(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows * self._window_ms
        while self._counted and self._counted[0][0] <= oldest_ms:
            self._counted.popleft()
