"""Rows of groups, commits and transactions: the same client, librdkafka, at each broker.

Each row is measured at its own warm broker, whose internal topics exist and whose groups do not
wait for more members (group.initial.rebalance.delay.ms=0).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.bench import clients
from tests.bench.figures import at_least_times, at_most, at_most_times
from tests.bench.row import Row, Work
from tests.bench.servers import Server
from tests.bench.size_rows import alone

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
)
FILL_BYTES = 1 << 28
MEMBERS, PARTITIONS, MESSAGES = 4, 12, 1_000_000
JOINING = (1, 10, 50)
GROUPS = 8
PRODUCERS = 4
RECORDS = 100
"""Records per transaction, for the rows that read them."""
READ = 200_000

MESSAGES_S, CPU_MESSAGE = "messages/s", "broker CPU us/message"
COMMITS_S, CPU_COMMIT = "commits/s", "broker CPU us/commit"
TRANSACTIONS_S, CPU_TRANSACTION = "transactions/s", "broker CPU us/transaction"
JOIN_CPU = f"broker CPU s, {JOINING[-1]} members"
COMMITTED_S, UNCOMMITTED_S = "committed messages/s", "uncommitted messages/s"
COST = "read_committed's share of read_uncommitted"

_names = (f"bench-{number}" for number in itertools.count())


def driven(server: Server, mode: str, **arguments: object) -> Mapping[str, float]:
    """Run the client once with a new group or new transactional ids.

    Returns its figures and `cpu_s`, the CPU time that the broker used during the run.
    """
    before = server.cpu_s()
    words = [mode, server.address, json.dumps(arguments | {"group": next(_names)})]
    found: dict[str, float] = clients.python_module(server, "tests.bench.python.groups", words)
    return found | {"cpu_s": server.cpu_s() - before}


@contextmanager
def coordinating(work: Work, server: Server) -> Iterator[Server]:
    with alone(work, server, *SETTINGS, warm=True) as fresh:
        with fresh.topic(1) as topic:
            work.load.fill(fresh, topic, 1, 1 << 20, "16k")
            driven(fresh, "join", topic=topic, members=1)
            driven(fresh, "commit", topic=topic, groups=GROUPS, for_s=1)
        yield fresh


def read(work: Work, server: Server, _: str) -> Mapping[str, float]:
    with coordinating(work, server) as fresh, fresh.topic(PARTITIONS) as topic:
        work.load.fill(fresh, topic, PARTITIONS, FILL_BYTES, "16k")
        found = driven(fresh, "read", topic=topic, members=MEMBERS, messages=MESSAGES)
    return {
        MESSAGES_S: found["messages"] / found["seconds"],
        CPU_MESSAGE: found["cpu_s"] / found["messages"] * 1e6,
    }


def join(work: Work, server: Server, _: str) -> Mapping[str, float]:
    with coordinating(work, server) as fresh, fresh.topic(JOINING[-1]) as topic:
        work.load.fill(fresh, topic, JOINING[-1], 1 << 20, "1")
        figures: dict[str, float] = {}
        for members in JOINING:
            found = driven(fresh, "join", topic=topic, members=members)
            figures[join_s(members)] = found["seconds"]
        return figures | {JOIN_CPU: found["cpu_s"]}


def join_s(members: int) -> str:
    return f"s to each first record, {members}"


def commit(work: Work, server: Server, _: str) -> Mapping[str, float]:
    with coordinating(work, server) as fresh, fresh.topic(1) as topic:
        found = driven(fresh, "commit", topic=topic, groups=GROUPS, for_s=work.seconds)
    return {
        COMMITS_S: found["count"] / found["seconds"],
        CPU_COMMIT: found["cpu_s"] / found["count"] * 1e6,
    }


def transact(work: Work, server: Server, _: str) -> Mapping[str, float]:
    with coordinating(work, server) as fresh, fresh.topic(1) as topic:
        for seconds in (1, work.seconds):
            found = driven(
                fresh, "transact", topic=topic, producers=PRODUCERS, records=1, for_s=seconds
            )
    return {
        TRANSACTIONS_S: found["count"] / found["seconds"],
        CPU_TRANSACTION: found["cpu_s"] / found["count"] * 1e6,
    }


def isolation(work: Work, server: Server, _: str) -> Mapping[str, float]:
    figures: dict[str, float] = {}
    with coordinating(work, server) as fresh, fresh.topic(1) as topic:
        written = 0.0
        while written < READ:
            found = driven(fresh, "transact", topic=topic, producers=1, records=RECORDS, for_s=1)
            written += found["count"] * RECORDS
        for level, figure in (
            ("read_uncommitted", UNCOMMITTED_S),
            ("read_committed", COMMITTED_S),
        ):
            read = driven(fresh, "isolated", topic=topic, messages=READ, level=level)
            figures[figure] = read["messages"] / read["seconds"]
    return figures | {COST: figures[COMMITTED_S] / figures[UNCOMMITTED_S]}


ROWS = (
    Row(
        "group-read",
        f"a group of {MEMBERS} consumers over {PARTITIONS} partitions, messages of 200 bytes",
        read,
        {MESSAGES_S: None, CPU_MESSAGE: None},
    ),
    Row(
        "group-join",
        "from subscribing until each member of a new group was given a record",
        join,
        {join_s(members): at_most_times(1) for members in JOINING} | {JOIN_CPU: at_most(0.6)},
    ),
    Row(
        "commits",
        f"offsets committed by {GROUPS} groups at once, each waiting for its answer",
        commit,
        {COMMITS_S: at_least_times(1.5), CPU_COMMIT: None},
    ),
    Row(
        "transactions",
        f"transactions of one record, {PRODUCERS} producers at once",
        transact,
        {TRANSACTIONS_S: at_least_times(1.5), CPU_TRANSACTION: None},
    ),
    Row(
        "read-committed",
        f"transactions of {RECORDS} records read, by read_committed and by read_uncommitted",
        isolation,
        {COMMITTED_S: None, UNCOMMITTED_S: None, COST: None},
    ),
)
