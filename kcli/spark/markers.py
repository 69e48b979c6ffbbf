"""Markers: the batches of a streaming query that each of its tasks has written.

Pure: no I/O.

A task's marker is an offset that is committed in the same transaction as its rows, for a group with
the name of the transactional.id: the number of the next batch to write. So if a batch is run again,
the marker shows whether it was committed before:

    none, or up to its number     not written: write it
    its number + 1                written: skip the rows
    more                          the checkpoint is older than the written rows: refuse

The metadata has the amount that was written, to detect other rows or rows in other tasks. Task 0's
also has the number of tasks; its transaction is committed before all others, so the number is known
if any of them is committed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.producer.transactions import TransactionHandover


class Unrepeatable(Exception):
    """The rows to write contradict those written before."""


@dataclass(frozen=True)
class Amount:
    """The amount that a task had to write; `tasks` is only in task 0's."""

    rows: int
    bytes: int
    tasks: int | None = None


class TaskPart(NamedTuple):
    """One task's part of a batch: its transaction, or None if it had been committed before.

    `batch_id` is None outside of streams.
    """

    task: int
    batch_id: int | None
    amount: Amount
    handover: TransactionHandover | None


def marker_of(batch_id: int, amount: Amount) -> CommittedOffset:
    fields = {name: value for name, value in asdict(amount).items() if value is not None}
    return CommittedOffset(batch_id + 1, None, json.dumps(fields))


def written_before(marker: CommittedOffset | None, batch_id: int, group: str) -> Amount | None:
    """Return the amount of this batch that was committed before, or None."""
    if marker is None or marker.offset <= batch_id:
        return None
    if marker.offset > batch_id + 1:
        raise Unrepeatable(
            f"batch {batch_id} comes next by the checkpoint, but batch {marker.offset - 1} by"
            f" group {group}: the checkpoint is older than the written rows; continue from the"
            " newer checkpoint, or begin a new query with a new one"
        )
    try:
        return Amount(**json.loads(marker.metadata or ""))
    except (ValueError, TypeError) as error:
        raise Unrepeatable(
            f"group {group} committed an offset that is not a marker of this sink:"
            f" {marker.metadata!r}; set transactionalIdPrefix to a name that nothing else uses"
        ) from error


def expect_same(part: TaskPart, before: Amount) -> None:
    """Raises Unrepeatable if a task has other rows than when it wrote them."""
    if (part.amount.rows, part.amount.bytes) != (before.rows, before.bytes):
        raise Unrepeatable(
            f"batch {part.batch_id} is run again, and task {part.task} has other rows:"
            f" {part.amount.rows} rows and {part.amount.bytes} bytes now, {before.rows} and"
            f" {before.bytes} before. {_NEED}"
        )


def in_order(parts: list[TaskPart]) -> tuple[list[TaskPart], list[TaskPart]]:
    """Return the parts to commit first, and the others. Raises Unrepeatable if other tasks wrote
    the batch before.
    """
    first, *rest = sorted(parts)
    if first.handover is not None:
        if done := [part.task for part in rest if part.handover is None]:
            raise Unrepeatable(
                f"batch {first.batch_id}: task {done[0]} has written it before and task"
                f" {first.task} has not: the offsets of its group no longer exist. {_NEED}"
            )
        amount = replace(first.amount, tasks=len(parts))
        return [first._replace(amount=amount)], rest
    if first.amount.tasks != len(parts):
        raise Unrepeatable(
            f"batch {first.batch_id} is run again by {len(parts)} tasks, and was written in part "
            f"by {first.amount.tasks} before. {_NEED}"
        )
    return [], [part for part in rest if part.handover is not None]


_NEED = (
    "exactlyOnce requires a query that gives the same rows to the same tasks each time; with"
    " exactlyOnce=false the query continues, and part of this batch is written again"
)
