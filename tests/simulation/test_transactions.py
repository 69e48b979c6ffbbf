"""Transactions under producers that crash, sleep and are replaced, and coordinators that move.

Thousands of runs of the shards alone, in virtual time; each says its seed when it fails.  What is
transformed is read once: in the end the outputs of an input partition are those of each offset
below the one that is committed, and nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kserver.group.offsets import Offsets
from kserver.group.shard import GroupShard
from kserver.metadata import TRANSACTION_VERSION, Features
from kserver.txn import shard
from kserver.txn.shard import TransactionShard, WriteMarkers
from kserver.txn.transaction import Transaction, TransactionState
from tests.simulation.test_groups import (
    CHUNK,
    config,
    found_alone,
    image,
    names_found,
    planted,
)
from tests.support.checks import verify
from tests.support.history import Event, Fetched, Polled
from tests.support.seeds import chunks
from tests.support.virtual import VirtualCoordinator, VirtualNetwork, VirtualTime, Weather
from tests.support.workers import INPUT, OUTPUT, Errands, Output, Reader, Setting, Worker

RUNS = 600
CHUNKS = chunks(RUNS, CHUNK, CHUNK)
CALM_MS = 30_000


class Run:
    def __init__(self, seed: int) -> None:
        self.time = time = VirtualTime(seed)
        random = time.random
        self.history: list[Event] = []
        version = random.choice([0, 1, 2])
        levels = {TRANSACTION_VERSION: version}
        topics = dataclasses.replace(image(**{INPUT: 3, OUTPUT: 3}), features=Features(levels, 0))
        settings = config(
            transaction_abort_timed_out_transaction_cleanup_interval_ms=random.choice([500, 5000])
        )
        mean_commit_ms, mean_load_ms = random.choice([1, 20]), random.choice([10, 1000])
        self.transactions = VirtualCoordinator(
            time,
            lambda: TransactionShard(lambda: settings),
            topics,
            mean_commit_ms=mean_commit_ms,
            mean_load_ms=mean_load_ms,
            perform=lambda effect: self.errands.perform(effect),
        )
        self.groups = VirtualCoordinator(
            time,
            lambda: GroupShard(lambda: settings, lambda: str(uuid.UUID(int=random.getrandbits(9)))),
            topics,
            mean_commit_ms=mean_commit_ms,
            mean_load_ms=mean_load_ms,
        )
        for coordinator in (self.transactions, self.groups):
            coordinator.check = lambda shard: shard.check()
            coordinator.fails = random.choice([0, 0, 0.02])
        weather = Weather(
            random.choice([1, 20]), random.choice([0, 0, 0.03]), random.choice([0, 0, 0.05])
        )
        ids = itertools.count(1000)
        self.network = VirtualNetwork(time, weather)
        self.setting = Setting(
            time,
            self.network,
            self.transactions,
            self.groups,
            [],
            self.history,
            version,
            random.choice([3000, 8000]),
            lambda: next(ids),
        )
        self.setting.outputs.extend(Output(self.setting, n) for n in range(random.randint(1, 3)))
        self.errands = Errands(self.setting)
        self.transactions.on_end = self.errands.drop
        self.readers = [Reader(self.setting, f"r{n}") for n in range(2)]
        self.workers: list[Worker] = []
        self.current: dict[int, Worker] = {}
        self.inputs = range(random.randint(1, 3))
        self.ends = False

    def start(self, index: int, transactional_id: str) -> None:
        random = self.time.random
        worker = Worker(self.setting, transactional_id, f"w{len(self.workers)}", index)
        worker.on_end = lambda worker: self.replace_soon(worker, random.choice([2, 1000]))
        self.workers.append(worker)
        self.current[index] = worker

    def replace_soon(self, worker: Worker, mean_ms: float) -> None:
        self.time.after(self.time.some(mean_ms), self.replace, worker)

    def replace(self, worker: Worker) -> None:
        """Another goes on where it ended; one that may wake is fenced by who has its id."""
        index = worker.input[1]
        if self.ends or self.current[index] is not worker:
            return
        may_wake = any(one.process.is_alive and one.input == worker.input for one in self.workers)
        is_same = may_wake or self.time.random.random() < 0.5
        self.start(index, worker.transactional_id if is_same else f"id-{len(self.workers)}")

    def main(self) -> list[Event]:
        time, random = self.time, self.time.random
        for index in self.inputs:
            self.start(index, f"id-{index}")
        until_ms = random.randint(3000, 15_000)
        pause_ms = random.choice([500, 3000])
        while time.now_ms < until_ms:
            time.run(time.now_ms + 1 + round(time.some(pause_ms)))
            self.trouble()
            random.choice(self.readers).poll()
        self.calm()
        for _ in range(CALM_MS // 1000):
            time.run(time.now_ms + 1000)
            random.choice(self.readers).poll()
        self.network.end()
        for reader in self.readers:
            reader.poll_to_the_end()
        self.look()
        return self.history

    def trouble(self) -> None:
        random, time = self.time.random, self.time
        alive = [worker for worker in self.workers if worker.process.is_alive]
        worker = random.choice(alive) if alive else None
        match random.randrange(8):
            case 0 | 1 if worker is not None:
                worker.crash()
            case 2 if worker is not None and not worker.process.is_asleep:
                # It may wake as a zombie: who replaces it does so under its transactional id.
                worker.process.is_asleep = True
                time.after(time.some(8000), worker.process.wake)
                if random.random() < 0.7:
                    self.replace_soon(worker, 2000)
            case 3 | 6 if worker is not None:
                worker.stops = True
            case 4:
                random.choice([self.transactions, self.groups]).crash(time.some(1000))
            case 5:
                random.choice([self.transactions, self.groups]).move()

    def calm(self) -> None:
        self.ends = True
        self.network.weather = self.network.weather._replace(loss=0, repeats=0)
        self.groups.fails = self.transactions.fails = 0
        for worker in self.workers:
            worker.process.wake()
            worker.stops = True

    def look(self) -> None:
        """At the end the committed offsets are those of a worker that only reads them."""
        self.ends = True
        for index in self.inputs:
            last = Worker(self.setting, f"last-{index}", f"last-{index}", index)
            last.stops = True
        self.time.run(self.time.now_ms + 5000)

    def check(self) -> None:
        verify(self.history)
        committed = {e.partition[1]: e.offset for e in self.history if isinstance(e, Fetched)}
        expected = {
            f"{index}:{offset}" for index in self.inputs for offset in range(committed[index])
        }
        found = {e.value.partition("#")[0] for e in self.history if isinstance(e, Polled)}
        assert found == expected, "what is there is not what the offsets say"


def run(seed: int) -> Run:
    """A failure names its seed."""
    one = Run(seed)
    try:
        one.main()
        one.check()
    except BaseException as error:
        error.add_note(f"seed {seed}, version {one.setting.version}; the last events:")
        for event in one.history[-20:]:
            error.add_note(f"    {event}")
        raise
    return one


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_transactions_hold_whatever_befalls_them(seeds):
    for seed in seeds:
        run(seed)


# Planted bugs


def one_left_out(prepared: Transaction) -> WriteMarkers:
    wanted = markers(prepared)
    left_out = frozenset(sorted(wanted.partitions)[2:]) if wanted.commit else frozenset()
    return dataclasses.replace(wanted, partitions=wanted.partitions - left_out)


def always_committed(self: Transaction, *, commit: bool, **given: Any) -> Transaction:
    return ended(self, commit=True, **given)


def committed_in_its_place(self: Transaction, version: int, now_ms: int) -> Transaction:
    return dataclasses.replace(fenced(self, version, now_ms), state=TransactionState.PREPARE_COMMIT)


def with_the_same_epoch(self: Transaction, *given: Any) -> Transaction:
    new = initialized(self, *given)
    return dataclasses.replace(new, epoch=self.epoch)


markers, ended, fenced = shard._markers, Transaction.ended, Transaction.fenced
initialized, end = Transaction.initialized, Offsets.end

PLANTED: dict[str, tuple[set[str], Any, str, Callable[..., Any]]] = {
    "a partition hears nothing of a commit": ({"torn-txn"}, shard, "_markers", one_left_out),
    "an abort commits": ({"G1a"}, Transaction, "ended", always_committed),
    "who is late is committed": (
        {"precommitted-read"},
        Transaction,
        "fenced",
        committed_in_its_place,
    ),
    "nobody is late": ({"lso-stuck"}, Transaction, "has_timed_out", lambda *_: False),
    "the epoch stays": ({"zombie-fenced"}, Transaction, "initialized", with_the_same_epoch),
    "offsets count that were aborted": (
        {"G1a"},
        Offsets,
        "end",
        lambda self, producer_id, committed: end(self, producer_id, committed=True),
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_by_its_check(bug):
    names, owner, decision, wrong = PLANTED[bug]
    with planted(owner, decision, wrong):
        assert found_alone(names, (names_found(run, seed) for seed in range(300)))


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_gives_the_same_run_event_by_event(seed):
    first, second = run(seed), run(seed)
    assert first.history == second.history
    assert first.time.trace == second.time.trace
    assert len(first.history) > 10
