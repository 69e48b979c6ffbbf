"""History: a line of JSON for each run of a performance test, and the baseline of earlier runs.

Pure: texts and values.

Runs are comparable if test and workload are the same: number, size and rate of records, and the
client's properties; topic, brokers and host may differ. The baseline is the median, metric by
metric, over the last few of those that failed no check, so that a bad run does not become the
baseline of the next.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "k.perf-test.run/1"

# Properties that do not affect the speed.
_UNCOMPARED = ("bootstrap.servers", "client.id", "client.rack", "group.id", "transactional.id")
_UNCOMPARED_PREFIXES = ("ssl.", "sasl.")


@dataclass(frozen=True, slots=True)
class Run:
    """`at` is the end in ISO 8601; `failed` are the findings of its checks."""

    test: str
    at: str
    version: str
    topic: str
    servers: str
    workload: Mapping[str, Any]
    host: Mapping[str, Any]
    results: Mapping[str, float]
    failed: list[str] = field(default_factory=list)

    def line(self) -> str:
        return json.dumps({"schema": SCHEMA} | asdict(self)) + "\n"

    def is_like(self, other: Run) -> bool:
        return self.test == other.test and self.workload == other.workload


def read(lines: Iterable[str]) -> tuple[list[Run], int]:
    """Return the runs, and the number of other lines: truncated by a full disk, or of another
    version.
    """
    runs, others = [], 0
    for line in lines:
        run = _run(line)
        if run is not None:
            runs.append(run)
        elif line.strip():
            others += 1
    return runs, others


def _run(line: str) -> Run | None:
    try:
        fields = json.loads(line)
        if fields.pop("schema") != SCHEMA:
            return None
        run = Run(**fields)
        numbers = all(isinstance(value, int | float) for value in run.results.values())
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return run if numbers else None


def baseline(runs: Sequence[Run], like: Run, last: int) -> tuple[dict[str, float], int]:
    """Return the median of each metric over the last comparable runs that failed no check, and
    their number.
    """
    alike = [run for run in runs if run.is_like(like) and not run.failed][-last:]
    values: dict[str, list[float]] = {}
    for run in alike:
        for metric, value in run.results.items():
            values.setdefault(metric, []).append(value)
    return {metric: statistics.median(of) for metric, of in values.items()}, len(alike)


def comparable(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the client's properties that affect the speed, sorted; without passwords and
    addresses.
    """
    return {
        key: value
        for key, value in sorted(properties.items())
        if key not in _UNCOMPARED and not key.startswith(_UNCOMPARED_PREFIXES)
    }
