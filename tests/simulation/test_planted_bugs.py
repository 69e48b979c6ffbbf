"""Each check of a cluster's history finds a bug that is planted for it: in the replicas, the
controller, the coordinators or the client, in place of one decision of theirs.  So does each
workload that judges by itself what it saw."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

import kserver.controller.context
import kserver.group.classic
import kserver.log.retention
import kserver.metadata
import kserver.replica.fetch
import kserver.replica.partition
import kserver.txn.shard
from kcli.client.consumer.completed_fetch import CompletedFetch, FetchedBatch
from kcli.client.topic_metadata import LeaderEpochs, TopicMetadata
from kserver import znodes
from kserver.controller import election, reassignment
from kserver.controller.context import LiveBroker, Returned
from kserver.controller.partitions import state_of, with_state
from kserver.controller.request_batch import RequestBatch
from kserver.errors import KafkaError
from kserver.group.group import ClassicGroup
from kserver.group.offsets import Offsets
from kserver.log.log import Log
from kserver.log.manager import LogManager
from kserver.log.producer_state import ProducerStateManager
from kserver.log.record_filter import KeyMap
from kserver.metadata import PartitionInfo
from kserver.model import NO_PRODUCER_ID, LeaderAndIsr
from kserver.replica.isr import Leader
from kserver.replica.partition import Partition
from kserver.replica.purgatory import Purgatory
from kserver.txn.markers import Marker, MarkerLog
from tests.support.checks import CHECKS, Anomalies
from tests.support.loop import simulate
from tests.support.swarm import MEDDLER, swarm

SEEDS = 150


@dataclass(frozen=True)
class Planted:
    """`owner.decision` is `wrong`; searched for in seeds of these workloads and faults."""

    what: str
    plants: Sequence[tuple[Any, str, Any]]
    workload: str = "idempotent append"
    faults: Sequence[str] = ("kill",)
    has_long_one: bool = False
    is_meddled: bool = False
    """Whether an administrator reassigns partitions meanwhile."""

    @property
    def workloads(self) -> list[str]:
        return [self.workload, MEDDLER] if self.is_meddled else [self.workload]


synced = kserver.group.classic._synced
append_as_leader, take = Partition.append_as_leader, CompletedFetch.take
begin_generation, commit = ClassicGroup.begin_generation, Offsets.commit
offset_for_timestamp, newest = Log.offset_for_timestamp, KeyMap.newest
expired = kserver.log.retention.expired
append_marker, fetched, run_logs = MarkerLog._append, Leader.fetched, LogManager.run
updated_partitions = kserver.metadata._updated_partitions
check, led = ProducerStateManager.check, election._with_leader
decode_topic, stops = znodes.decode_topic, RequestBatch.stops
begun, checked = reassignment.begun, reassignment.checked


def answers_wrong_offsets(self: Partition, *given: Any, **named: Any) -> Any:
    """Now and then those of records that came long before."""
    appended = append_as_leader(self, *given, **named)
    if appended.first_offset % 5 == 4 and not self.topic_partition.topic.startswith("__"):
        return appended._replace(first_offset=appended.first_offset - 3)
    return appended


TAKES = itertools.count()
LAST: dict[Any, Any] = {}
"""The last record that was given of each partition."""


def skips(self: CompletedFetch, most: int) -> FetchedBatch | None:
    """Now and then a whole batch."""
    batch = take(self, most)
    if batch is None or next(TAKES) % 4:
        return batch
    return batch._replace(rows=batch.rows[:0])


def again(self: CompletedFetch, most: int) -> FetchedBatch | None:
    """Now and then with the last record that was given of the partition before."""
    batch = take(self, most)
    if batch is None or not batch.rows:
        return batch
    before, LAST[self._partition] = LAST.get(self._partition), batch.rows[-1]
    if before is None or next(TAKES) % 4:
        return batch
    return batch._replace(rows=[before, *batch.rows])


def in_sync_end(self: Leader, end: int, now_ms: int) -> int:
    return end


def takes_all(self: ProducerStateManager, *given: Any) -> None:
    with contextlib.suppress(KafkaError):
        check(self, *given)


def not_kept(self: Offsets, request: Any, ticket: Any, step: Any) -> None:
    commit(self, request, ticket, step)
    for event in step.events:
        self.replay(event, NO_PRODUCER_ID)
    step.events.clear()


def same_generation(self: ClassicGroup, now_ms: int) -> None:
    begin_generation(self, now_ms)
    self.generation = max(1, self.generation - 1)


def same_epoch(*given: Any) -> Any:
    return replace(led(*given), leader_epoch=given[0].leader_epoch)


def nobody(replicas: Sequence[int], last: Any, live: Any, epoch: int, **named: Any) -> Any:
    if last is None:
        return election.elect_offline(replicas, last, live, epoch, **named)
    return None


def all_whole(
    cls: type[Returned], brokers: Mapping[int, LiveBroker], returned: Iterable[int]
) -> Returned:
    all_of_them = frozenset(returned)
    return cls(all_of_them, all_of_them, frozenset())


def knows_the_first(
    self: LeaderEpochs, reported: TopicMetadata, known: TopicMetadata | None, *_: Any
) -> TopicMetadata:
    return known or reported


def looks_for_later(self: Log, timestamp: int) -> Any:
    return offset_for_timestamp(self, timestamp + 200)


def newer(self: KeyMap, key: bytes) -> int:
    return newest(self, key) + 1


def one_more(segments: Sequence[Any], *given: Any, **named: Any) -> int:
    count = expired(segments, *given, **named)
    return min(count + 1, len(segments) - 1) if count else 0


ANSWERED: dict[Partition, Any] = {}
"""The answer to the last append."""


def writes_nothing(self: Partition, *given: Any, **named: Any) -> Any:
    """Now and then a batch is acknowledged and not written."""
    before = ANSWERED.get(self)
    if before is not None and before.first_offset % 5 == 4:
        del ANSWERED[self]
        return before
    ANSWERED[self] = append_as_leader(self, *given, **named)
    return ANSWERED[self]


async def reads_nothing_again(*_: Any) -> None:
    """The controller lets it be."""


def in_sync_at_once(
    self: Leader, broker: int, offset: int, end: int, high_watermark: int, *given: Any, **named: Any
) -> Any:
    self.epoch_start = 0
    return fetched(self, broker, offset, end, 0, *given, **named)


def keeps_the_isr(before: Any, told: Any) -> Any:
    known = {partition.partition: partition.isr for partition in before}
    return tuple(
        replace(partition, isr=known.get(partition.partition, partition.isr))
        for partition in updated_partitions(before, told)
    )


async def leaves_a_task(self: LogManager) -> None:
    asyncio.get_running_loop().create_task(asyncio.sleep(1_000_000))
    await run_logs(self)


def other_end(self: MarkerLog, marker: Marker, partition: Partition) -> None:
    """In every other partition."""
    commit = marker.commit == (partition.topic_partition.partition % 2 == 0)
    append_marker(self, replace(marker, commit=commit), partition)


def never(*_: Any, **__: Any) -> None:
    return None


def forgets_the_removed(name: str, data: bytes) -> znodes.TopicAssignment:
    return replace(decode_topic(name, data), removing={})


def done_at_once(
    partition: PartitionInfo, online: Any, epoch: int
) -> tuple[PartitionInfo, LeaderAndIsr]:
    """Led by a replica that may not be in sync."""
    target = reassignment.target(partition)
    state = state_of(partition, epoch)
    state = replace(
        state,
        leader=target[0],
        isr=target,
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )
    placed = replace(partition, replicas=target, adding=(), removing=())
    return with_state(placed, state), state


def stops_none(self: RequestBatch, *given: Any, delete: bool = False) -> None:
    if not delete:
        stops(self, *given)


def cancels_nothing(partition: PartitionInfo, wanted: Any, *given: Any, **named: Any) -> Any:
    return checked(partition, partition.replicas if wanted is None else wanted, *given, **named)


def begun_in_the_same_epoch(partition: PartitionInfo, *given: Any) -> Any:
    placed, state = begun(partition, *given)
    state = replace(state, leader_epoch=max(partition.leader_epoch, 0))
    return with_state(placed, state), state


IN_CONTEXT = kserver.controller.context
STABLE = property(lambda self: self.high_watermark)
END = property(lambda self: self.log_end_offset)
SHORT = property(lambda self: max(self.log_start_offset, self.high_watermark - 1))

PLANTED: Mapping[str, Planted] = {
    "lost-write": Planted(
        "what only the leader has is acknowledged",
        [(Leader, "in_sync_end", in_sync_end)],
        faults=("isolate", "kill"),
    ),
    "hw-monotonic": Planted(
        "what only the leader has is acknowledged",
        [(Leader, "in_sync_end", in_sync_end)],
        faults=("isolate", "kill"),
    ),
    "read-lost": Planted(
        "what only the leader has is read",
        [(Log, "last_stable_offset", END)],
        "append to leader",
        ("isolate",),
        has_long_one=True,
    ),
    "leader-write-lost": Planted(
        "a batch is acknowledged and not written",
        [(Partition, "append_as_leader", writes_nothing)],
        "append to leader",
        faults=("reset",),
    ),
    "isr-complete": Planted(
        "a follower is in sync wherever it is",
        [(Leader, "fetched", in_sync_at_once)],
        faults=("kill", "slow_disk"),
    ),
    "context-equals-znodes": Planted(
        "brokers ignore changes of the ISR",
        [(kserver.metadata, "_updated_partitions", keeps_the_isr)],
    ),
    "placed-as-asked": Planted(
        "a cancelled reassignment keeps the added replicas",
        [(reassignment, "checked", cancels_nothing)],
        is_meddled=True,
    ),
    "ownerless-task": Planted(
        "a task is started and never awaited",
        [(LogManager, "run", leaves_a_task)],
    ),
    "memory-bounded": Planted(
        "a request that was answered is still waited for", [(Purgatory, "forget", never)]
    ),
    "G1a": Planted(
        "the list of aborted transactions is empty", [(Log, "aborted", lambda *_: [])], "mixed"
    ),
    "G1c": Planted("what is not decided is stable", [(Log, "last_stable_offset", STABLE)], "mixed"),
    "precommitted-read": Planted(
        "what is not decided is stable", [(Log, "last_stable_offset", STABLE)], "mixed"
    ),
    "torn-txn": Planted(
        "every other partition gets the opposite marker",
        [(MarkerLog, "_append", other_end)],
        "mixed",
    ),
    "inconsistent-offsets": Planted(
        "the wrong offset is answered", [(Partition, "append_as_leader", answers_wrong_offsets)]
    ),
    "unseen-after-final-poll": Planted(
        "the last stable offset is one too low", [(Log, "last_stable_offset", SHORT)]
    ),
    "duplicate": Planted(
        "what comes again is written again",
        [(ProducerStateManager, "check", takes_all)],
        faults=("kill", "reset", "clients_cut"),
    ),
    "nonmonotonic-send": Planted(
        "the wrong offset is answered", [(Partition, "append_as_leader", answers_wrong_offsets)]
    ),
    "int-nonmonotonic-send": Planted(
        "the wrong offset is answered",
        [(Partition, "append_as_leader", answers_wrong_offsets)],
        "mixed",
    ),
    "poll-skip": Planted(
        "a reader skips a batch",
        [(CompletedFetch, "take", skips)],
    ),
    "int-poll-skip": Planted(
        "a reader skips a batch",
        [(CompletedFetch, "take", skips)],
    ),
    "nonmonotonic-poll": Planted(
        "a reader is given a record twice",
        [(CompletedFetch, "take", again)],
    ),
    "int-nonmonotonic-poll": Planted(
        "a reader is given a record twice",
        [(CompletedFetch, "take", again)],
    ),
    "lso-stuck": Planted(
        "the last stable offset is one too low", [(Log, "last_stable_offset", SHORT)]
    ),
    "commit-regression": Planted(
        "offsets are not in the log", [(Offsets, "commit", not_kept)], "classic group"
    ),
    "one-owner": Planted(
        "a generation is used again",
        [(ClassicGroup, "begin_generation", same_generation)],
        "classic group",
    ),
    "group-liveness": Planted(
        "the assignments of the group's leader are lost",
        [(kserver.group.classic, "_synced", lambda group, _: synced(group, b""))],
        "classic group",
        ("reset",),
    ),
    "epoch-monotonic": Planted(
        "an election begins no epoch",
        [(election, "_with_leader", same_epoch)],
        faults=("kill", "stop"),
    ),
    "replica-equal": Planted(
        "diverging logs are not truncated",
        [
            (kserver.replica.partition, "divergence", never),
            (kserver.replica.fetch, "divergence", never),
        ],
        faults=("kill", "isolate", "pause"),
    ),
    "recovery": Planted(
        "no replica joins the ISR again", [(Leader, "fetched", never)], faults=("isolate", "kill")
    ),
    "led": Planted(
        "no leader is elected", [(IN_CONTEXT, "elect_offline", nobody)], faults=("kill_all", "kill")
    ),
    "acked-survives-power-loss": Planted(
        "a broker that returns is taken to have all its records",
        [(Returned, "of", classmethod(all_whole))],
        faults=("power_and_kill_all",),
    ),
    "progress-during-fault": Planted(
        "a client keeps to the leader that it knew first",
        [(LeaderEpochs, "choose", knows_the_first)],
        faults=("kill",),
        has_long_one=True,
    ),
    "zombie-fenced": Planted(
        "the epoch of a transactional id's producer is not checked",
        [(kserver.txn.shard, "_check_epoch", never)],
        "transform",
    ),
}


JUDGED: Mapping[str, tuple[str, Planted]] = {
    "times": (
        ": it is ",
        Planted(
            "a later time is looked for", [(Log, "offset_for_timestamp", looks_for_later)], "times"
        ),
    ),
    "compacted": (
        " has lost ",
        Planted("the last record of a key goes as well", [(KeyMap, "newest", newer)], "compacted"),
    ),
    "trimmed": (
        "sized-0 has ",
        Planted(
            "a segment more goes than the size allows",
            [(kserver.log.retention, "expired", one_more)],
            "trimmed",
        ),
    ),
    "churn": (
        "churned-",
        Planted(
            "a move ends where it began",
            [(reassignment, "target", reassignment.origin)],
            "churn",
        ),
    ),
}
"""By workload: what it says that does not hold, and the bug."""


@pytest.mark.parametrize("name", JUDGED)
def test_a_planted_bug_is_found_by_the_workload_that_looks_for_it(name: str) -> None:
    said, planted = JUDGED[name]
    assert any(said in text for found in runs(planted) for text in found)


REASSIGNED: Mapping[str, Planted] = {
    what: Planted(what, [(owner, decision, wrong)], is_meddled=True)
    for what, owner, decision, wrong in [
        ("a reassignment ends before all are in sync", reassignment, "done", done_at_once),
        ("removed replicas are not stopped", RequestBatch, "stops", stops_none),
        ("a reassignment begins no epoch", reassignment, "begun", begun_in_the_same_epoch),
    ]
}


RARE = {
    "placed-as-asked": Planted(
        "a controller that takes over forgets the replicas to remove",
        [(znodes, "decode_topic", forgets_the_removed)],
        faults=("kill", "stop"),
        is_meddled=True,
    ),
}
"""Bugs that few seeds find, so the soak test alone searches for them."""


@pytest.mark.parametrize("what", REASSIGNED)
def test_a_planted_bug_of_reassignments_is_found(what: str) -> None:
    assert any(runs(REASSIGNED[what]))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_by_its_check(name: str) -> None:
    assert any(name in found for found in runs(PLANTED[name]))


def runs(planted: Planted, seeds: int = SEEDS) -> Iterator[frozenset[str]]:
    """The checks that found something, or what a workload says that does not hold, seed by seed."""
    run = partial(
        swarm,
        workloads=planted.workloads,
        faults=planted.faults,
        with_a_long_one=planted.has_long_one,
    )
    with pytest.MonkeyPatch.context() as patch:
        for owner, decision, wrong in planted.plants:
            patch.setattr(owner, decision, wrong)
        for seed in range(seeds):
            try:
                simulate(run, seed)
                yield frozenset()
            except Anomalies as error:
                yield error.names
            except AssertionError as error:
                yield frozenset({str(error)})
            except (RuntimeError, OSError, ExceptionGroup):
                # The planted bug broke something else before.
                yield frozenset()


def test_every_check_has_its_bug() -> None:
    assert set(PLANTED) == set(CHECKS)
