"""CPU time of a process and of all processes that it started."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.bench.machine import TICKS_PER_S


def tree_cpu_s(root: int) -> float:
    """Return user and system time, including that of ended children that were waited for."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children[int(fields[1])].append(int(entry.name))
        ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found, left = 0, [root]
    while left:
        pid = left.pop()
        found += ticks.get(pid, 0)
        left += children[pid]
    return found / TICKS_PER_S
