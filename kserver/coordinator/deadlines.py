"""Many deadlines by key, most of which are postponed before they pass.

Pure: the time is an argument.

A heap has the time at which each key is checked.  A key whose deadline was postponed is pushed
again when its old time comes.  So a heartbeat only costs a write into a dict.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    __slots__ = ("_at_ms", "_heap", "_looked_at_ms", "_serial")

    def __init__(self) -> None:
        self._at_ms: dict[K, int] = {}
        self._looked_at_ms: dict[K, int] = {}
        """Time of each key's valid entry in the heap, in ms."""
        self._heap: list[tuple[int, int, K]] = []
        self._serial = 0
        """Orders keys with the same time by insertion, so that keys are never compared."""

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._at_ms

    def set(self, key: K, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        looked_at_ms = self._looked_at_ms.get(key)
        if looked_at_ms is None or at_ms < looked_at_ms:
            self._look_at(key, at_ms)

    def drop(self, key: K) -> None:
        """Remove a deadline; its entry in the heap is ignored later."""
        self._at_ms.pop(key, None)

    @property
    def next_ms(self) -> int | None:
        """Time at which the next deadline may pass, or an earlier time."""
        return self._heap[0][0] if self._heap else None

    def passed(self, now_ms: int) -> list[K]:
        """Remove and return the keys whose deadlines have passed, in order."""
        passed = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            looked_at_ms, _, key = heapq.heappop(heap)
            if self._looked_at_ms.get(key) != looked_at_ms:
                continue  # replaced by an earlier entry
            del self._looked_at_ms[key]
            at_ms = self._at_ms.get(key)
            if at_ms is None:
                continue
            if at_ms <= now_ms:
                del self._at_ms[key]
                passed.append(key)
            else:
                self._look_at(key, at_ms)
        return passed

    def _look_at(self, key: K, at_ms: int) -> None:
        self._looked_at_ms[key] = at_ms
        self._serial += 1
        heapq.heappush(self._heap, (at_ms, self._serial, key))

    def check(self) -> None:
        for key, at_ms in self._at_ms.items():
            assert self._looked_at_ms[key] <= at_ms
        entries = {(at_ms, key) for at_ms, _, key in self._heap}
        assert entries >= {(at_ms, key) for key, at_ms in self._looked_at_ms.items()}
