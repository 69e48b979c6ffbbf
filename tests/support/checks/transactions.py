"""Checks of what transactions guarantee."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.support.history import (
    Committed,
    Ended,
    Fetched,
    History,
    Looked,
    Partition,
    Polled,
    Result,
    Sent,
    ends_reached,
    values_read,
)


def aborted_read(history: History) -> Iterator[str]:
    """Check that nothing is read of an aborted transaction, nor of one whose commit was refused."""
    aborted = {
        event.transaction
        for event in history
        if isinstance(event, Ended) and (not event.commit or event.result is Result.REFUSED)
    }
    yield from _reads_of(history, aborted, lambda at, transaction: True)


def precommitted_read(history: History) -> Iterator[str]:
    """Check that no record is read before a commit of its transaction was requested."""
    asked_at: dict[str, int] = {}
    aborted: set[str] = set()
    transactions: set[str] = set()
    for event in history:
        if isinstance(event, Ended):
            if event.commit:
                asked_at.setdefault(event.transaction, event.since)
            else:
                aborted.add(event.transaction)
        elif isinstance(event, Sent | Committed) and event.transaction is not None:
            transactions.add(event.transaction)
    never = len(history)
    yield from _reads_of(
        history,
        transactions - aborted,
        lambda at, transaction: at < asked_at.get(transaction, never),
    )


def _reads_of(
    history: History, transactions: set[str], counts: Callable[[int, str], bool]
) -> Iterator[str]:
    """Yield records and offsets that readers saw and that only these transactions wrote."""
    of_value: dict[tuple[Partition, str], str] = {}
    of_offset: defaultdict[tuple[str, Partition, int], set[str | None]] = defaultdict(set)
    for event in history:
        if isinstance(event, Sent) and event.transaction is not None:
            of_value[event.partition, event.value] = event.transaction
        elif isinstance(event, Committed) and event.result is not Result.REFUSED:
            of_offset[event.group, event.partition, event.offset].add(event.transaction)
    for at, event in enumerate(history):
        if isinstance(event, Polled):
            transaction = of_value.get((event.partition, event.value), "")
            if transaction in transactions and counts(at, transaction):
                yield f"{event.reader} read {event.value} of {transaction} (event {at})"
        elif isinstance(event, Fetched):
            writers = of_offset.get((event.group, event.partition, event.offset))
            if writers and all(
                writer is not None and writer in transactions and counts(at, writer)
                for writer in writers
            ):
                yield (
                    f"{event.group} is at {event.offset} of {event.partition}, as"
                    f" {', '.join(sorted(map(str, writers)))} had it (event {at})"
                )


def torn_txn(history: History) -> Iterator[str]:
    """Check that readers that pass a transaction read all of it, or nothing."""
    read, passed = values_read(history), ends_reached(history)
    written: defaultdict[str, list[Sent]] = defaultdict(list)
    for event in history:
        if isinstance(event, Sent) and event.transaction is not None and event.result is Result.OK:
            written[event.transaction].append(event)
    for transaction, sent in written.items():
        seen = [s for s in sent if (s.partition, s.value) in read]
        unseen = [
            s
            for s in sent
            if s.offset < passed.get(s.partition, 0) and (s.partition, s.value) not in read
        ]
        if seen and unseen:
            yield f"{transaction}: {seen[0].value} is there and {unseen[0].value} is not"


def lso_stuck(history: History) -> Iterator[str]:
    """Check that the last stable offset reaches the end once all transactions have ended."""
    for event in history:
        if isinstance(event, Looked) and event.last_stable_offset < event.high_watermark:
            yield (
                f"{event.partition} is kept back at {event.last_stable_offset} of"
                f" {event.high_watermark}"
            )


def circular_reads(history: History) -> Iterator[str]:
    """Check that no committed transactions read each other's records in a cycle (G1c of write and
    read edges).
    """
    writer: dict[tuple[Partition, str], str] = {}
    reads: defaultdict[str, dict[str, str]] = defaultdict(dict)
    """By transaction: the transactions whose records it read, each with one such record."""
    for event in history:
        if isinstance(event, Sent) and event.transaction is not None:
            writer[event.partition, event.value] = event.transaction
    for event in history:
        if isinstance(event, Polled) and event.transaction is not None:
            of = writer.get((event.partition, event.value))
            if of is not None and of != event.transaction:
                reads[event.transaction].setdefault(of, event.value)
    done: set[str] = set()
    for first in list(reads):
        circle = _circle(reads, first, done)
        if circle:
            yield " read of ".join(circle)
            return


def _circle(reads: dict[str, dict[str, str]], first: str, done: set[str]) -> list[str] | None:
    """Return transactions that each read records of the next, back to the first."""
    path: list[str] = []
    waiting: list[tuple[str, Iterator[str]]] = []
    if first not in done:
        path.append(first)
        waiting.append((first, iter(reads.get(first, ()))))
    while waiting:
        name, others = waiting[-1]
        other = next(others, None)
        if other is None:
            done.add(name)
            path.pop()
            waiting.pop()
        elif other in path:
            return [*path[path.index(other) :], other]
        elif other not in done:
            path.append(other)
            waiting.append((other, iter(reads.get(other, ()))))
    return None
