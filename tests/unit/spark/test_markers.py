"""What a batch of a stream that is run anew finds of what was written before."""

from __future__ import annotations

import pytest

from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.producer.transactions import TransactionHandover
from kcli.spark.markers import (
    Amount,
    TaskPart,
    Unrepeatable,
    expect_same,
    in_order,
    marker_of,
    written_before,
)

AMOUNT = Amount(7, 70)


def part(task: int, *, done: bool = False, tasks: int | None = None) -> TaskPart:
    handover = None if done else TransactionHandover(f"k-q-{task}", 1, 0, 2, True)
    return TaskPart(task, 5, Amount(7, 70, tasks), handover)


@pytest.mark.parametrize(
    ("marker", "written"),
    [(None, False), (0, False), (5, False), (6, True)],
)
def test_a_marker_says_whether_its_batch_was_written(marker, written):
    noted = None if marker is None else marker_of(marker - 1, AMOUNT)
    assert written_before(noted, 5, "g") == (AMOUNT if written else None)


def test_a_marker_of_a_later_batch_is_refused():
    with pytest.raises(
        Unrepeatable, match=r"batch 5 comes next by the checkpoint, but batch 6 by group g"
    ):
        written_before(marker_of(6, AMOUNT), 5, "g")


@pytest.mark.parametrize("metadata", ["", None, "x", "[]", "{}", '{"lines":1}'])
def test_what_is_no_marker_is_refused(metadata):
    with pytest.raises(Unrepeatable, match="is not a marker of this sink"):
        written_before(CommittedOffset(6, None, metadata), 5, "g")


def test_other_rows_are_refused():
    expect_same(part(0), AMOUNT)
    expect_same(part(0), Amount(7, 70, 3))
    for other in (Amount(8, 70), Amount(7, 71)):
        with pytest.raises(Unrepeatable, match="has other rows"):
            expect_same(part(0), other)


def test_task_0_is_committed_first_and_says_how_many_there_were():
    first, rest = in_order([part(2), part(0), part(1)])
    assert first == [part(0, tasks=3)]
    assert rest == [part(1), part(2)]


def test_what_was_committed_before_is_not_committed_again():
    assert in_order([part(0, done=True, tasks=3), part(1, done=True), part(2)]) == ([], [part(2)])
    assert in_order([part(0, done=True, tasks=1)]) == ([], [])


def test_another_number_of_tasks_is_refused():
    with pytest.raises(Unrepeatable, match="run again by 2 tasks, and was written in part by 3"):
        in_order([part(0, done=True, tasks=3), part(1)])


def test_a_later_task_that_was_committed_before_the_first_is_refused():
    with pytest.raises(Unrepeatable, match="task 1 has written it before and task 0 has not"):
        in_order([part(0), part(1, done=True)])
