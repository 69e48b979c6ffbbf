"""`k transactions`: lists and describes transactions, and ends those that hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from kcli.command.command import OLDER, Integer, Manual, Milliseconds, Options, command
from kcli.command.command_runner import (
    CLUSTER,
    EXPECTED,
    admin_config,
    confirm,
    reason,
    run,
    status_of,
    unwrap,
)
from kcli.command.options import (
    INT,
    LONG,
    Refused,
    cluster,
    dry_run,
    is_set,
    option,
    option_group,
    refuse,
    yes,
)
from kcli.command.output import print_output, would
from kcli.command.statuses import DONE, FAILED
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.admin.transaction_admin import AbortTransactionSpec

MANUAL = Manual(
    kafka="kafka-transactions.sh",
    examples=(
        ("k transactions list --duration-filter 60000", "Transactions open for over a minute."),
        ("k transactions describe --transactional-id payments-1", "One transaction."),
        (
            "k transactions describe-producers --topic orders --partition 0",
            "Producers of a partition, and open transactions that hold back its last stable "
            "offset.",
        ),
        (
            "k transactions find-hanging --broker-id 1 -o json",
            "Transactions that no coordinator knows.",
        ),
        (
            "k transactions abort --topic orders --partition 0 --start-offset 4711",
            "End one of them.",
        ),
    ),
    differences=(
        "Options may stand before and after the name of the action, and names of options are not "
        "abbreviated.",
        "Without --bootstrap-server, the usual default is used.",
        "abort and forceTerminateTransaction ask at a terminal before they change anything, unless "
        "--yes is given.",
        "A partition that does not exist is refused at once; the script retries for a minute.",
        "Errors do not recommend enabling debug logging.",
    ),
    see_also=("k-get-offsets", "k-console-consumer", "k-features"),
)

_ID = RowField("transactional_id", "string", "The transactional.id.")
_COORDINATOR = RowField("coordinator", "integer", "The id of the broker that leads it.")
_PRODUCER_ID = RowField("producer_id", "integer", "The producer id.")
_EPOCH = RowField("producer_epoch", "integer", "Its epoch.")
_STATE = RowField(
    "state",
    "string",
    "Ongoing, PrepareAbort, PrepareCommit, CompleteAbort, CompleteCommit, Empty, "
    "PrepareEpochFence or Unknown.",
)
_TOPIC = RowField("topic", "string", "Its topic.")
_PARTITION = RowField("partition", "integer", "Its number.")
_COORDINATOR_EPOCH = RowField(
    "coordinator_epoch",
    "integer or null",
    "The epoch of the coordinator that ended a transaction of its here last, if any.",
)
_LAST_TIMESTAMP = RowField(
    "last_timestamp", "integer", "Time of its last write here, in ms since 1970."
)

LIST = RowShape(
    "k.transactions.list", 1, "A transactional.id.", (_ID, _COORDINATOR, _PRODUCER_ID, _STATE)
)
DESCRIBE = RowShape(
    "k.transactions.describe",
    1,
    "A transactional.id.",
    (
        _COORDINATOR,
        _ID,
        _PRODUCER_ID,
        _EPOCH,
        _STATE,
        RowField(
            "timeout_ms", "integer", "Time after which the coordinator aborts a transaction, in ms."
        ),
        RowField(
            "started_at_ms",
            "integer or null",
            "Start time of the open transaction; null if none is open.",
        ),
        RowField("duration_ms", "integer or null", "How long the transaction has been open."),
        RowField(
            "partitions", "list of string", "Partitions of the transaction, as topic-partition."
        ),
    ),
)
PRODUCERS = RowShape(
    "k.transactions.describe-producers",
    1,
    "A producer that wrote to the partition.",
    (
        _PRODUCER_ID,
        _EPOCH,
        _COORDINATOR_EPOCH,
        RowField(
            "last_sequence", "integer", "The sequence number of its last record; -1 for none."
        ),
        _LAST_TIMESTAMP,
        RowField(
            "transaction_start", "integer or null", "First offset of its open transaction here."
        ),
    ),
)
HANGING = RowShape(
    "k.transactions.find-hanging",
    1,
    "A transaction in a partition, which no coordinator knows of.",
    (
        _TOPIC,
        _PARTITION,
        _PRODUCER_ID,
        _EPOCH,
        _COORDINATOR_EPOCH,
        RowField("start_offset", "integer", "Its first offset."),
        _LAST_TIMESTAMP,
        RowField("duration_min", "integer", "Minutes since the last write."),
    ),
)

HEADS = {
    LIST: ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
    DESCRIBE: (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    ),
    PRODUCERS: (
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"),
        *("LastTimestamp", "CurrentTransactionStartOffset"),
    ),
    HANGING: (
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"),
        *("LastTimestamp", "Duration(min)"),
    ),
}
"""Kafka's columns, in the order of the shapes' fields."""

SHORT = Integer(16)
MINUTE_MS = 60_000

Row: TypeAlias = dict[str, Any]

# Options of each action in addition to those of all; the first tuple are required ones.
ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "list": ((), ("duration-filter", "transactional-id-pattern", "state")),
    "describe": (("transactional-id",), ()),
    "describe-producers": (("topic", "partition"), ("broker-id",)),
    "abort": (
        ("topic", "partition"),
        ("start-offset", "producer-id", "producer-epoch", "coordinator-epoch", "dry-run", "yes"),
    ),
    "find-hanging": ((), ("broker-id", "max-transaction-timeout", "topic", "partition")),
    "forceTerminateTransaction": (("transactional-id",), ("dry-run", "yes")),
}
CHANGING = ("abort", "forceTerminateTransaction")


@command(manual=MANUAL)
@click.argument("action", nargs=-1, metavar="|".join(ACTIONS))
@option_group(
    option("--transactional-id", "The transactional.id.", "ID"),
    option(
        "--duration-filter",
        "list: only transactions open for longer: milliseconds, or with a unit: 500ms, 2s, 5m; "
        "below 0: all.",
        "TIME",
        type=Milliseconds(),
    ),
    option(
        "--transactional-id-pattern",
        "list: only ids that match this whole expression (RE2).",
        "PATTERN",
    ),
    option("--state", "list: only ids in one of these states.", "STATE,..."),
    option("--topic", "The topic, or find-hanging: only there.", "TOPIC"),
    option("--partition", "The partition, or find-hanging: only there.", "NUMBER", type=INT),
    option(
        "--broker-id",
        "describe-producers: the replica on this broker, not the leader.  find-hanging: in the "
        "partitions that have a replica there.",
        "ID",
        type=INT,
    ),
    option(
        "--max-transaction-timeout",
        "find-hanging: exclude transactions with a write within this many minutes.  Default: 15.",
        "MINUTES",
        type=INT,
    ),
    option("--start-offset", "abort: the first offset of the transaction.", "OFFSET", type=LONG),
    option(
        "--producer-id",
        "abort: instead of --start-offset, with the next two, before Kafka 3.0.",
        "ID",
        type=LONG,
    ),
    option("--producer-epoch", "abort: the producer's epoch.", "EPOCH", type=SHORT),
    option("--coordinator-epoch", "abort: the coordinator's epoch.", "EPOCH", type=INT),
    dry_run,
    yes,
    formatted(LIST, DESCRIBE, PRODUCERS, HANGING),
    cluster,
    option(
        "--transactionalId",
        "The same as --transactional-id.",
        "ID",
        instead="--transactional-id",
        section=OLDER,
    ),
)
def transactions(options: Options) -> int:
    """Lists and describes transactions and their producers, finds hanging transactions, and ends
    them.

    list prints all transactional ids, describe one of them.  describe-producers prints the producer
    state of a partition.  find-hanging prints transactions that are open in a partition and unknown
    to every coordinator: they hold back readers of committed records for good.  abort ends one of
    those in one partition.  forceTerminateTransaction aborts the open transaction of a
    transactional id, and fences its producer.
    """
    action = _action(options)
    if action == "abort":
        return run(_abort(options), options.timeout, CLUSTER)
    if action == "forceTerminateTransaction":
        return run(_terminate(options), options.timeout, CLUSTER)
    shape, rows_of = LISTINGS[action]
    with rows_if_asked(options, shape) as out:
        return run(_show(options, shape, rows_of, out), options.timeout, CLUSTER)


def _action(options: Options) -> str:
    if len(options.action) != 1 or options.action[0] not in ACTIONS:
        refuse(f"name exactly one action: {', '.join(ACTIONS)}")
    action: str = options.action[0]
    needed, possible = ACTIONS[action]
    every = {name for names in ACTIONS.values() for of in names for name in of}
    for name in sorted(every.difference(needed, possible)):
        if is_set(options, name):
            refuse(f"--{name} is not allowed with {action}")
    for name in needed:
        if not is_set(options, name):
            refuse(f"argument --{name} is required")
    if action in CHANGING and options.output is not None:
        refuse(f"--output is not allowed with {action}")
    if action == "find-hanging":
        if not (is_set(options, "topic") or is_set(options, "broker-id")):
            refuse(
                "The `find-hanging` command requires either --topic or --broker-id to limit the "
                "scope of the search"
            )
        if is_set(options, "partition") and not is_set(options, "topic"):
            refuse("The --partition argument requires --topic to be provided")
    if action == "abort" and not is_set(options, "start-offset"):
        if not is_set(options, "producer-id"):
            refuse(
                "The transaction to abort must be identified either with --start-offset (for "
                "brokers on 3.0 or above) or with --producer-id, --producer-epoch, and "
                "--coordinator-epoch (for older brokers)"
            )
        for name in ("producer-epoch", "coordinator-epoch"):
            if not is_set(options, name):
                refuse(f"Missing required argument --{name}")
    return action


async def _show(
    options: Options,
    shape: RowShape,
    rows_of: Callable[[Options, Admin], Coroutine[Any, Any, Iterable[Row]]],
    out: Rows | None,
) -> int:
    async with _admin(options) as admin:
        items = await rows_of(options, admin)
    if out is None:
        print_output("\n".join(_table(HEADS[shape], [_cells(shape, row) for row in items])))
        return DONE
    for row in items:
        out.row(**row)
    return DONE


def _cells(shape: RowShape, row: Row) -> list[str]:
    return [_cell(name, row[name]) for name in shape.names]


def _cell(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    if value is None:
        return "-1" if name == "coordinator_epoch" else "None"
    return str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield Kafka's table: each column as wide as its longest cell, and a tab after every cell."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        yield "".join(f"{cell:{width}}\t" for cell, width in zip(row, widths, strict=True))


async def _list(options: Options, admin: Admin) -> list[Row]:
    with _failing("Failed to list transactions"):
        listed = await admin.transactions.listings(
            states=[] if options.state is None else _states(options.state),
            longer_than_ms=-1 if options.duration_filter is None else options.duration_filter,
            pattern=options.transactional_id_pattern,
        )
    return [listing._asdict() for listing in listed]


def _states(text: str) -> list[str]:
    from kcli.client.admin.transaction_admin import STATES

    by_name = {state.lower(): state for state in STATES}
    words = [word.strip() for word in text.split(",")]
    if unknown := [word for word in words if word.lower() not in by_name]:
        raise Refused(f"'{unknown[0]}' is not a state of a transaction: {', '.join(STATES)}")
    return [by_name[word.lower()] for word in words]


async def _describe(options: Options, admin: Admin) -> list[Row]:
    name = options.transactional_id
    with _failing(f"Failed to describe transaction state of transactional-id `{name}`"):
        description = unwrap((await admin.transactions.describe([name]))[name])
    started_at = description.started_at
    return [
        {
            "coordinator": description.coordinator,
            "transactional_id": name,
            "producer_id": description.producer_id,
            "producer_epoch": description.producer_epoch,
            "state": description.state,
            "timeout_ms": description.timeout_ms,
            "started_at_ms": started_at,
            "duration_ms": None if started_at is None else _now_ms() - started_at,
            "partitions": [str(partition) for partition in description.partitions],
        }
    ]


async def _describe_producers(options: Options, admin: Admin) -> list[Row]:
    partition = TopicPartition(options.topic, options.partition)
    where = "leader" if options.broker_id is None else f"broker {options.broker_id}"
    with _failing(f"Failed to describe producers for partition {partition} on {where}"):
        results = await admin.transactions.producers([partition], options.broker_id)
        states = unwrap(results[partition])
    return [state._asdict() for state in states]


async def _find_hanging(options: Options, admin: Admin) -> list[Row]:
    minutes = 15 if options.max_transaction_timeout is None else options.max_transaction_timeout
    now_ms = _now_ms()
    with _failing("Failed to find hanging transactions"):
        transactions = await admin.transactions.find_hanging(
            await _partitions(options, admin),
            last_before_ms=now_ms - minutes * MINUTE_MS,
            broker=options.broker_id,
        )
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "coordinator_epoch": state.coordinator_epoch,
            "start_offset": state.transaction_start,
            "last_timestamp": state.last_timestamp,
            "duration_min": (now_ms - state.last_timestamp) // MINUTE_MS,
        }
        for partition, state in transactions
    ]


async def _partitions(options: Options, admin: Admin) -> list[TopicPartition]:
    """Return the partitions to search."""
    if options.partition is not None:
        return [TopicPartition(options.topic, options.partition)]
    if options.topic is None:
        names = [topic.name for topic in await admin.list_topics()]
    else:
        names = [options.topic]
    described = await admin.describe_topics(names)
    return [
        TopicPartition(name, number.partition)
        for name in names
        for number in unwrap(described[name]).partitions
        if options.broker_id is None or options.broker_id in number.replicas
    ]


LISTINGS = {
    "list": (LIST, _list),
    "describe": (DESCRIBE, _describe),
    "describe-producers": (PRODUCERS, _describe_producers),
    "find-hanging": (HANGING, _find_hanging),
}


async def _abort(options: Options) -> int:
    async with _admin(options) as admin:
        transaction = await _open_transaction(options, admin)
        step = (
            f"abort the transaction of producer {transaction.producer_id} in "
            f"{transaction.partition}, with the records that are in it"
        )
        if options.dry_run:
            would(step)
            return DONE
        await confirm(options, step)
        with _failing(f"Failed to abort transaction {transaction}"):
            await admin.transactions.abort(transaction)
    return DONE


async def _open_transaction(options: Options, admin: Admin) -> AbortTransactionSpec:
    from kcli.client.admin.transaction_admin import AbortTransactionSpec

    partition = TopicPartition(options.topic, options.partition)
    if options.start_offset is None:
        # The epoch of a transaction that hangs since its producer's first one is unknown: 0 is
        # lower than that of any later coordinator.
        epoch = max(0, options.coordinator_epoch)
        return AbortTransactionSpec(partition, options.producer_id, options.producer_epoch, epoch)
    with _failing(f"Failed to validate producer state for partition {partition}"):
        states = unwrap((await admin.transactions.producers([partition]))[partition])
    for state in states:
        if state.transaction_start == options.start_offset:
            epoch = state.coordinator_epoch or 0
            return AbortTransactionSpec(partition, state.producer_id, state.producer_epoch, epoch)
    raise Refused(
        f"Could not find any open transactions starting at offset {options.start_offset} on "
        f"partition {partition}"
    )


async def _terminate(options: Options) -> int:
    name = options.transactional_id
    step = f"abort the open transaction of {name}, and fence its producer"
    async with _admin(options) as admin:
        if options.dry_run:
            with _failing(f"Failed to describe transaction state of transactional-id `{name}`"):
                unwrap((await admin.transactions.describe([name]))[name])
            would(step)
            return DONE
        await confirm(options, step)
        with _failing(f"Failed to force terminate transactionalId `{name}`"):
            unwrap((await admin.transactions.fence([name]))[name])
    return DONE


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Raise errors with the failed step before the reason; a cluster that does not respond is
    reported as in other commands.
    """
    try:
        yield
    except EXPECTED as error:
        if status_of(error) != FAILED:
            raise
        raise Refused(f"{what}: {reason(error)}") from error


def _admin(options: Options) -> Admin:
    from kcli.client.admin.admin import Admin

    return Admin(admin_config(options))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
