"""The sink with exactlyOnce: each task writes in a transaction, and the driver ends them all.

    task     init_transactions -> marker? -> begin, write, marker -> hand over, and stay open
    driver   commit(messages): task 0's first, then the others; abort(messages): all

The transactional.id is PREFIX-QUERY-TASK; in a batch, which Spark runs once, QUERY is random and
there are no markers. If a batch of a stream is run again, the markers show what was committed
(markers.py). After a failure:

    failure                       open transactions  recovery
    a task dies as it writes      its own            the next attempt's init aborts it
    a task dies after handover    its own            likewise; its message does not count
    the driver dies before commit all                every task's init aborts, all is written again
    the driver dies in commit     all but some       task 0 is committed; the committed tasks skip
                                                     their rows, the others abort and write again
    the driver dies after commit  none               all tasks skip their rows
    a broker dies                 as before          requests are retried for max.block.ms
    the batch takes too long      none               the broker aborts after transaction.timeout.ms;
                                                     the driver's commit is refused, the query fails

    taken for dead, but alive:
    a task, before the batch is committed            its requests are refused once init of its
    a driver, as it commits                          transactional.id has been called; before that,
                                                     its work is what its successor finds done

A driver's request without a response may be repeated: a repeated commit has no further effect.
After a commit that failed midway Spark calls abort, which ends open transactions; committed ones
stay so, and are skipped next time. After abort it does not call commit, and must not: before
transaction.version 2 the marker of task 0 would begin a transaction of its own.

This holds as long as a batch that is run again has the same rows in the same tasks. Detected
differences are refused: another number of tasks, other counts of rows or bytes, an unexpected
marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kcli.client.admin.admin import Admin
from kcli.client.admin.groups import Groups
from kcli.client.blocking import Blocking
from kcli.client.config import AdminConfig
from kcli.client.errors import ClientError, ProducerFenced, TransactionFailed
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.producer.producer import Producer
from kcli.client.producer.transaction_successor import TransactionSuccessor
from kcli.spark.markers import TaskPart, expect_same, in_order, marker_of, written_before
from kcli.spark.row_producer import RowProducer, WriteFailed
from kcli.spark.write_options import WriteOptions
from kserver.config.setting import settings_of
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition

_logger = logging.getLogger(__name__)

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


class WriteTask(NamedTuple):
    """A task of a write; `batch_id` is None outside of streams."""

    number: int
    write: str
    """The query's id, or the name of a batch write."""
    batch_id: int | None

    def transactional_id(self, options: WriteOptions) -> str:
        return f"{options.transactional_id_prefix}-{self.write}-{self.number}"


@dataclass
class TaskMessage(WriterCommitMessage):
    """The message of one task."""

    part: TaskPart


def task_of_stream() -> WriteTask:
    """Return the task that runs here. Raises WriteFailed if exactly once is impossible."""
    context = _context()
    batch_id, query = context.getLocalProperty(_BATCH_ID), context.getLocalProperty(_QUERY_ID)
    if batch_id is None or query is None:
        raise WriteFailed(
            "exactlyOnce requires the ids of the query and its batch, but this Spark does not"
            f" provide {_QUERY_ID} and {_BATCH_ID}: use Spark 4.1 or later, and a trigger that"
            " makes micro-batches"
        )
    return WriteTask(context.partitionId(), query, int(batch_id))


def task_of_batch(name: str) -> WriteTask:
    """Return the task of a batch write; `name` is unique to this write. Raises WriteFailed
    likewise.
    """
    context = _context()
    if context.getLocalProperty(_BATCH_ID) is not None:
        raise WriteFailed(
            "exactlyOnce is not for writes within foreachBatch, which are done again with their"
            " batch: write the stream itself, writeStream.format('k')"
        )
    return WriteTask(context.partitionId(), name, None)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "not in a task"
    if (context.getLocalProperty("spark.speculation") or "").lower() == "true":
        raise WriteFailed(
            "exactlyOnce allows one attempt of a task at a time: set spark.speculation to false"
        )
    return context


# The task


def write_in_transaction(
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    columns: tuple[str, ...],
    task: WriteTask,
) -> TaskPart:
    """Write the rows in an open transaction, or skip them if they are committed already."""
    id = task.transactional_id(options)
    outlet = RowProducer(options, columns)
    client = options.client | {"transactional.id": id}
    with Blocking(Producer, client, on_batch=outlet.on_batch) as producer:
        try:
            producer.init_transactions()
            if task.batch_id is not None:
                marker = producer.run(lambda producer: _marker(producer, options, id))
                before = written_before(marker, task.batch_id, id)
                if before is not None:
                    # Consume all rows: earlier steps of the query may have to run to their end.
                    for batch in batches:
                        outlet.count(batch)
                    part = TaskPart(task.number, task.batch_id, outlet.amount, None)
                    expect_same(part, before)
                    return part._replace(amount=before)
            producer.begin_transaction()
            outlet.send_all(producer, batches)
            # Task 0's marker is added by the driver, which knows the number of tasks.
            if task.batch_id is not None and task.number:
                at = {_place(options): marker_of(task.batch_id, outlet.amount)}
                producer.send_offsets_to_transaction(at, id)
            handover = producer.hand_over_transaction()
        except (ClientError, KafkaError) as error:
            outlet.check()
            _refuse(error, id, options)
        return TaskPart(task.number, task.batch_id, outlet.amount, handover)


async def _marker(producer: Producer, options: WriteOptions, group: str) -> CommittedOffset | None:
    place = _place(options)
    groups = Groups(producer.cluster, _admin_config(options))
    offsets = (await groups.offsets({group: [place]}, require_stable=True))[group]
    if isinstance(offsets, KafkaError):
        raise KafkaError(offsets.code, f"what group {group} committed: {offsets}")
    marker = offsets.get(place)
    if isinstance(marker, KafkaError):
        raise KafkaError(marker.code, f"what group {group} committed for {place}: {marker}")
    return marker


def _admin_config(options: WriteOptions) -> AdminConfig:
    table = settings_of(AdminConfig)
    return AdminConfig.of({key: text for key, text in options.client.items() if key in table})


def _place(options: WriteOptions) -> TopicPartition:
    """Return an existing partition: an offset is committed for it, but nothing is written to it."""
    return TopicPartition(options.marker_topic, 0)


# The driver


def commit(messages: Sequence[object], options: WriteOptions) -> None:
    """Commit all transactions. Raises WriteFailed if any fails, which then is open or aborted."""
    parts = _parts(messages)
    if not parts:
        return
    first, rest = in_order(parts) if parts[0].batch_id is not None else ([], parts)
    with Blocking(TransactionSuccessor, options.client) as heir:
        heir.run(lambda heir: _commit(heir, first, options))
        heir.run(lambda heir: _commit(heir, rest, options))


async def _commit(heir: TransactionSuccessor, parts: list[TaskPart], options: WriteOptions) -> None:
    outcomes = await asyncio.gather(
        *(commit_part(heir, part, options) for part in parts), return_exceptions=True
    )
    failed = [
        (part, error)
        for part, error in zip(parts, outcomes, strict=True)
        if isinstance(error, BaseException)
    ]
    if not failed:
        return
    part, error = failed[0]
    if not isinstance(error, (ClientError, KafkaError)):
        raise error
    assert part.handover is not None
    beside = ""
    if part.batch_id is None and len(failed) < len(parts):
        beside = f" ({len(parts) - len(failed)} of {len(parts)} tasks' are committed)"
    _refuse(error, part.handover.transactional_id, options, beside)


async def commit_part(heir: TransactionSuccessor, part: TaskPart, options: WriteOptions) -> None:
    """Commit one transaction; that of task 0 in a stream with its marker."""
    handover = part.handover
    assert handover is not None
    if part.batch_id is None or part.task:
        await heir.commit(handover)
    else:
        at = {_place(options): marker_of(part.batch_id, part.amount)}
        await heir.commit(handover, at, handover.transactional_id)


def abort(messages: Sequence[object], options: WriteOptions, write: str | None = None) -> None:
    """Abort the open transactions of these tasks. Those of tasks that were killed without a message
    are ended by taking over their transactional.ids; `write` is as in WriteTask, if known.
    """
    parts = _parts(messages)
    base = None if write is None else f"{options.transactional_id_prefix}-{write}"
    handovers = []
    for part in parts:
        if part.handover is not None:
            handovers.append(part.handover)
            base = part.handover.transactional_id.removesuffix(f"-{part.task}")
    silent = sorted({*range(len(messages))} - {part.task for part in parts})
    ids = [] if base is None else [f"{base}-{number}" for number in silent]

    async def end_all(heir: TransactionSuccessor) -> list[BaseException | None]:
        return await asyncio.gather(*map(heir.abort, handovers), return_exceptions=True)

    outcomes: list[object] = []
    try:
        if handovers:
            with Blocking(TransactionSuccessor, options.client) as heir:
                outcomes += heir.run(end_all)
        if ids:
            with Blocking(Admin, _admin_config(options)) as admin:
                outcomes += admin.run(lambda admin: admin.transactions.fence(ids)).values()
    except (ClientError, KafkaError) as error:
        outcomes.append(error)
    for outcome in outcomes:
        if isinstance(outcome, (ClientError, KafkaError)):
            _logger.warning("transactions %s-*: %s; the broker will abort them", base, outcome)
        elif isinstance(outcome, BaseException):
            raise outcome


def _parts(messages: Sequence[object]) -> list[TaskPart]:
    """Return the parts; a failed task has none."""
    return [message.part for message in messages if isinstance(message, TaskMessage)]


def _refuse(error: Exception, id: str, options: WriteOptions, beside: str = "") -> NoReturn:
    """Raises WriteFailed with one line that has the remedy."""
    cause = error.cause if isinstance(error, TransactionFailed) else error
    timeout_ms = options.client["transaction.timeout.ms"]
    remedy = ""
    if isinstance(cause, KafkaError) and cause.code is ErrorCode.invalid_transaction_timeout:
        remedy = (
            f": kafka.transaction.timeout.ms is {timeout_ms}, and the broker allows no more than"
            " its transaction.max.timeout.ms; lower the one or raise the other"
        )
    elif isinstance(error, ProducerFenced):
        remedy = (
            f": another run of the query has begun, or the batch took longer than"
            f" kafka.transaction.timeout.ms ({timeout_ms} ms): raise that"
        )
    raise WriteFailed(f"transaction {id}{beside}: {cause}{remedy}") from error
