"""Planning: the ranges that tasks read, and the end of a micro-batch.

Pure: values in, values out.

    split        ranges of offsets into parts
    grouped      parts into tasks
    limited      the end of a micro-batch under maxOffsetsPerTrigger
    bounded      offsets from a user, checked against the log
    changed      data lost between a checkpoint and the cluster
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from kcli.spark.options import Offsets
from kserver.model import Offset, TopicPartition

MANY = 64
"""Number of tasks; with fewer, each reads one range."""
TASK_OFFSETS = 20_000
"""Maximum number of offsets in a task that reads several ranges."""


class DataLost(Exception):
    """Records that were requested no longer exist, and failOnDataLoss is true."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; records may have aged out or been deleted, or the topic was deleted and"
            " created again. To continue with the records that exist, set the option"
            " failOnDataLoss to false, or give a job --ignore-data-loss"
        )


@dataclass(frozen=True)
class KafkaOffsetRange:
    """Offsets from `start` on, before `end`; `topic_id` is None if the cluster has no topic ids.
    Not every offset need have a record.
    """

    partition: TopicPartition
    start: Offset
    end: Offset
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def split(
    ranges: Sequence[KafkaOffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[KafkaOffsetRange]:
    """Split ranges into parts of at most `max_records` offsets, and into at least `min_partitions`
    parts if there are that many offsets: the largest are split further. Empty ranges are dropped.
    """
    whole = [r for r in ranges if r.size > 0]
    parts = [1 if max_records is None else -(-r.size // max_records) for r in whole]
    count = min(min_partitions or 0, sum(r.size for r in whole))
    largest = [(-r.size / n, i) for i, (r, n) in enumerate(zip(whole, parts, strict=True))]
    heapq.heapify(largest)
    for _ in range(count - sum(parts)):
        _, i = largest[0]
        parts[i] += 1
        heapq.heapreplace(largest, (-whole[i].size / parts[i], i))
    return [part for r, n in zip(whole, parts, strict=True) for part in _even_parts(r, n)]


def _even_parts(whole: KafkaOffsetRange, count: int) -> list[KafkaOffsetRange]:
    at = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [
        KafkaOffsetRange(whole.partition, start, end, whole.topic_id)
        for start, end in pairwise(at)
        if start < end
    ]


def grouped(
    parts: Sequence[KafkaOffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[list[KafkaOffsetRange]]:
    """Group parts into tasks: one part each, or several small ones.

    A task costs 20 ms of processor time and more, whatever it reads. But there are at least MANY
    tasks, to keep processors busy. The grouping depends only on the parts, because a micro-batch
    that is run again has to have the same tasks.
    """
    fewest = max(MANY, min_partitions or 0)
    if len(parts) <= fewest:
        return [[part] for part in parts]
    most = min(max_records or TASK_OFFSETS, TASK_OFFSETS)
    most = min(most, sum(part.size for part in parts) // fewest)
    groups: list[list[KafkaOffsetRange]] = []
    size = 0
    for n, part in enumerate(parts):
        is_full = size + part.size > most or len(parts) - n <= fewest - len(groups)
        if is_full or not groups:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part.size
    return groups


def limited(start: Offsets, latest: Offsets, most: int) -> Offsets:
    """Return ends that include `most` offsets in total, or all, shared by lag.

    A partition that lags gets at least one if possible, so that none starves.
    """
    lag = {p: end - start[p] for p, end in latest.items() if end > start[p]}
    total = sum(lag.values())
    if total <= most:
        return {p: max(end, start[p]) for p, end in latest.items()}
    least = 1 if most >= len(lag) else 0
    rest, total = most - least * len(lag), total - least * len(lag)
    share = {p: least + rest * (n - least) // total for p, n in lag.items()}
    more = most - sum(share.values())
    # Give the rest to the shares that were rounded down the most.
    for p in sorted(lag, key=lambda p: (-(rest * (lag[p] - least) % total), -lag[p], p))[:more]:
        share[p] += 1
    return {p: start[p] + share.get(p, 0) for p in latest}


def clamp(
    offsets: Offsets, earliest: Offsets, latest: Offsets, option: str, *, fail_on_data_loss: bool
) -> Offsets:
    """Return each offset within its log. Raises DataLost for one outside, if
    `fail_on_data_loss`.
    """
    result = {}
    for partition, offset in offsets.items():
        low, high = earliest[partition], latest[partition]
        if fail_on_data_loss and not low <= offset <= high:
            raise DataLost(
                f"{option} names offset {offset} of {partition}, which holds {low} to {high}"
            )
        result[partition] = min(max(offset, low), high)
    return result


def changed(start: Offsets, end: Offsets, earliest: Mapping[TopicPartition, Offset]) -> list[str]:
    """Return the data lost between a micro-batch's start and its ends, a line for each partition:
    it was deleted, it ends before its start, or it is new and has lost its first records.
    """
    lost = [f"partition {p} was deleted" for p in sorted(start.keys() - end.keys())]
    lost += [
        f"partition {p} ended at {start[p]} and ends at {end[p]} now"
        for p in sorted(start.keys() & end.keys())
        if end[p] < start[p]
    ]
    return lost + [
        f"partition {p} is new and begins at {earliest[p]}, not at 0"
        for p in sorted(end.keys() - start.keys())
        if earliest[p] > 0
    ]
