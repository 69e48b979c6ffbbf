"""Replication throttling: bytes per second that throttled replicas send and fetch.

Pure: no I/O, no clock; times are passed in.

    side      rate                                    replicas, by topic
    leader    leader.replication.throttled.rate       leader.replication.throttled.replicas
    follower  follower.replication.throttled.rate     follower.replication.throttled.replicas

A replica is throttled if its topic's list has `*` or `partition:broker`; all bytes that it sends or
fetches are counted.  In-sync replicas are never delayed: producers wait for them.

The rate is the bytes in the last `replication.quota.window.num` windows of
`replication.quota.window.size.seconds`, divided by the time since the first of them began, at least
one window.  While it is above the bound, nothing more is sent.  Averaged over several windows the
rate then meets the bound, whatever the size of one response.

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
    """Quota of one side; `bound` in bytes per second."""

    def __init__(self, bound: int, windows: int, window_ms: int) -> None:
        self.bound = bound
        self._windows = windows
        self._window_ms = window_ms
        self._counted: deque[tuple[int, int]] = deque()
        """Start in ms and bytes of each window, oldest first."""

    def record(self, size: int, now_ms: int) -> None:
        self._forget(now_ms)
        if self._counted and now_ms - self._counted[-1][0] < self._window_ms:
            began_ms, before = self._counted.pop()
            self._counted.append((began_ms, before + size))
        else:
            self._counted.append((now_ms, size))

    def rate(self, now_ms: int) -> float:
        """Return the current rate in bytes per second."""
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
