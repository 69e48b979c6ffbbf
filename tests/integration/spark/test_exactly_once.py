"""Test writes of a stream with exactlyOnce that is killed at any point, without Spark.

Tasks and the driver's calls are made as Spark makes them; a kill is simulated by an omitted call.
"""

from __future__ import annotations

import contextlib
import itertools

import pyarrow as pa
import pytest

from kcli.client.blocking import Blocking
from kcli.client.errors import TransactionFailed
from kcli.client.producer.transaction_successor import TransactionSuccessor
from kcli.spark.markers import Unrepeatable, in_order
from kcli.spark.options import batch_options
from kcli.spark.range_fetcher import read_ranges
from kcli.spark.row_producer import WriteFailed
from kcli.spark.sink import write
from kcli.spark.transactional_sink import (
    TaskMessage,
    WriteTask,
    abort,
    commit,
    commit_part,
    write_in_transaction,
)
from kcli.spark.write_options import WriteOptions, write_options
from tests.support.brokers import append, until
from tests.support.frames import T0, planned

TASKS = 3
_queries = (f"q{n}" for n in itertools.count(1))


@pytest.fixture
def query() -> str:
    return next(_queries)


def options_of(broker, topic: str, **options: object) -> WriteOptions:
    given = {"kafka.bootstrap.servers": broker.address, "topic": topic, "exactlyOnce": "true"}
    return write_options(given | {name: str(value) for name, value in options.items()})


def rows(task: int, batch: int, count: int = 4) -> list[pa.RecordBatch]:
    values = [b"%d:%d:%d" % (batch, task, n) for n in range(count)]
    return [pa.record_batch({"value": pa.array(values, pa.binary())})]


def run(options: WriteOptions, query: str, batch: int, tasks: int = TASKS) -> list[TaskMessage]:
    """Run all tasks of a batch; return their commit messages."""
    return [
        TaskMessage(
            write_in_transaction(
                iter(rows(n, batch)), options, ("value",), WriteTask(n, query, batch)
            )
        )
        for n in range(tasks)
    ]


def committed(broker, topic: str) -> list[str]:
    read = batch_options(
        {
            "kafka.bootstrap.servers": broker.address,
            "subscribe": topic,
            "kafka.isolation.level": "read_committed",
        }
    )
    batches = [batch for _, batch in read_ranges(read, planned(read), ["value"])]
    return sorted(bytes(value).decode() for batch in batches for value in batch[0].to_pylist())


def expect(broker, topic: str, values: list[str]) -> None:
    """Wait for these committed values: Apache's brokers respond to a commit before it is
    visible."""
    with contextlib.suppress(AssertionError):
        until(lambda: committed(broker, topic) == values)
    assert committed(broker, topic) == values


def expected(*batches: int, tasks: int = TASKS) -> list[str]:
    return sorted(f"{b}:{t}:{n}" for b in batches for t in range(tasks) for n in range(4))


def test_nothing_counts_before_the_driver_commits_and_all_does_then(broker, topic, query):
    options = options_of(broker, topic)
    handed = run(options, query, 0)
    assert committed(broker, topic) == []
    commit(handed, options)
    expect(broker, topic, expected(0))
    commit(run(options, query, 1), options)
    expect(broker, topic, expected(0, 1))


@pytest.mark.parametrize("ended", range(TASKS + 1))
def test_a_driver_that_dies_between_transactions_writes_the_rest_when_it_is_back(
    broker, topic, query, ended
):
    options = options_of(broker, topic)
    commit(run(options, query, 0), options)
    dead = run(options, query, 1)
    kill_after(dead, ended, options)
    again = run(options, query, 1)
    assert [message.part.handover is None for message in again] == [n < ended for n in range(TASKS)]
    commit(again, options)
    expect(broker, topic, expected(0, 1))
    # The former driver comes back, and cannot change anything any more.
    with pytest.raises(WriteFailed, match=f"transaction k-{query}-0: .* another run of the query"):
        commit(dead, options)
    abort(dead, options)
    expect(broker, topic, expected(0, 1))


def kill_after(messages: list[TaskMessage], ended: int, options: WriteOptions) -> None:
    """Let the driver commit the first `ended` transactions only."""
    first, rest = in_order([message.part for message in messages])
    with Blocking(TransactionSuccessor, options.client) as heir:
        for part in (first + rest)[:ended]:
            heir.run(lambda heir, part=part: commit_part(heir, part, options))


def test_a_task_that_is_run_again_counts_once(broker, topic, query):
    options = options_of(broker, topic)
    first, second = run(options, query, 0, tasks=1), run(options, query, 0, tasks=1)
    with pytest.raises(WriteFailed, match="another run of the query has begun"):
        commit(first, options)
    commit(second, options)
    expect(broker, topic, expected(0, tasks=1))


def test_to_end_a_transaction_once_more_changes_nothing(broker, topic, query):
    options = options_of(broker, topic)
    first, second, third = (message.part.handover for message in run(options, query, 0))
    with Blocking(TransactionSuccessor, options.client) as heir:
        heir.abort(first)
        heir.commit(second)
        heir.commit(second)
        heir.abort(third)
        heir.abort(third)
        with pytest.raises(TransactionFailed):
            heir.abort(second)
        with pytest.raises(TransactionFailed):
            heir.commit(third)
    expect(broker, topic, [f"0:1:{n}" for n in range(4)])


def test_a_batch_that_takes_too_long_is_refused(broker, topic, query):
    options = options_of(broker, topic, **{"kafka.transaction.timeout.ms": 3000})
    handed = run(options, query, 0, tasks=1)
    for partition in range(2):
        append(broker.address, topic, [(T0, None, b"after", ())], partition)
    expect(broker, topic, ["after"] * 2)
    told = r"the batch took longer than kafka\.transaction\.timeout\.ms \(3000 ms\)"
    with pytest.raises(WriteFailed, match=told):
        commit(handed, options)
    in_time = options_of(broker, topic)
    commit(run(in_time, query, 0), in_time)
    expect(broker, topic, sorted([*expected(0), "after", "after"]))


def test_what_failed_tasks_left_is_aborted(broker, topic, query):
    options = options_of(broker, topic)
    first, _ = run(options, query, 0, tasks=2)
    for partition in range(2):
        append(broker.address, topic, [(T0, None, b"after", ())], partition)
    assert committed(broker, topic) in ([], ["after"])
    # The second task was killed before its message arrived.
    abort([first, None], options)
    expect(broker, topic, ["after"] * 2)
    commit(run(options, query, 0), options)
    expect(broker, topic, sorted([*expected(0), "after", "after"]))


def test_other_tasks_or_other_rows_are_refused(broker, topic, query):
    options = options_of(broker, topic)
    kill_after(run(options, query, 0), 2, options)
    fewer = run(options, query, 0, tasks=2)
    with pytest.raises(Unrepeatable, match="run again by 2 tasks, and was written in part by 3"):
        commit(fewer, options)
    other = WriteTask(1, query, 0)
    with pytest.raises(Unrepeatable, match="task 1 has other rows: 5 rows and 25 bytes now"):
        write_in_transaction(iter(rows(1, 0, 5)), options, ("value",), other)
    commit(run(options, query, 0), options)
    commit(run(options, query, 1), options)
    with pytest.raises(Unrepeatable, match="the checkpoint is older than the written rows"):
        run(options, query, 0)
    expect(broker, topic, expected(0, 1))


def test_a_timeout_longer_than_the_brokers_is_refused(broker, topic, query):
    options = options_of(broker, topic, **{"kafka.transaction.timeout.ms": 1_000_000_000})
    with pytest.raises(WriteFailed, match=r"timeout\.ms is 1000000000, and the broker allows no"):
        run(options, query, 0)


def test_the_plain_sink_writes_twice_what_is_run_anew(broker, topic):
    options = options_of(broker, topic, exactlyOnce=False)
    for _ in range(2):
        for n in range(TASKS):
            write(iter(rows(n, 0)), options, ("value",))
    expect(broker, topic, sorted(expected(0) * 2))
