"""Groups under members that come, go, sleep and crash, and a coordinator that does the same.

Thousands of runs of the shard alone, in virtual time; each says its seed when it fails.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kserver.config.broker import BrokerConfig, ConfigEntry
from kserver.coordinator.shard import Step
from kserver.group.classic import ClassicGroups
from kserver.group.consumer import ConsumerGroups
from kserver.group.consumer_group import ConsumerGroup
from kserver.group.group import ClassicGroup
from kserver.group.offsets import Offsets
from kserver.group.shard import GroupShard
from kserver.metadata import ClusterMetadata, PartitionInfo, TopicInfo
from kserver.model import NO_PRODUCER_ID
from tests.support.checks import Anomalies, verify
from tests.support.history import Disturbed, Event, Fetched, Wanted
from tests.support.members import (
    GROUP,
    ClassicMember,
    ConsumerMember,
    Limits,
    Member,
    Setting,
    fetch_request,
)
from tests.support.seeds import chunks
from tests.support.virtual import Line, VirtualCoordinator, VirtualNetwork, VirtualTime, Weather

RUNS, CHUNK = 700, 50
CHUNKS = chunks(RUNS, CHUNK, CHUNK)
CALM_MS = 32_000
KINDS = [ClassicMember, ConsumerMember]


class Run:
    """One group from its first member on, through trouble, into the calm after it."""

    def __init__(self, seed: int, kind: type[Member]) -> None:
        self.time = time = VirtualTime(seed)
        random = time.random
        self.history: list[Event] = []
        partitions = tuple(("t", n) for n in range(random.randint(1, 6)))
        self.config = config(
            group_initial_rebalance_delay_ms=random.choice([0, 500, 3000]),
            group_max_size=random.choice([3, 100]),
            group_consumer_max_size=random.choice([3, 100]),
            group_consumer_min_session_timeout_ms=1000,
            group_consumer_session_timeout_ms=random.choice([6000, 10_000]),
        )
        self.coordinator = VirtualCoordinator(
            time,
            lambda: GroupShard(lambda: self.config, self._new_id),
            image(t=len(partitions)),
            mean_commit_ms=random.choice([1, 20]),
            mean_load_ms=random.choice([10, 1000]),
        )
        self.coordinator.check = lambda shard: shard.check()
        self.coordinator.fails = random.choice([0, 0, 0.02])
        weather = Weather(
            random.choice([1, 20]), random.choice([0, 0, 0.02]), random.choice([0, 0, 0.05])
        )
        self.network = VirtualNetwork(time, weather)
        self.network.on_loss = lambda: self.disturbed("a loss")
        self.setting = Setting(
            time,
            self.network,
            self.coordinator,
            self.history,
            partitions,
            Limits(
                session_ms=random.choice([6000, 10_000]),
                rebalance_ms=random.choice([6000, 10_000]),
                heartbeat_ms=random.choice([1500, 3000]),
                commit_ms=random.choice([1000, 3000]),
            ),
        )
        self.kind = kind
        self.members: list[Member] = []
        self.named = 0

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.time.random.getrandbits(128)))

    def disturbed(self, what: str) -> None:
        self.history.append(Disturbed(self.time.now_s, what))

    def join(self, name: str | None = None) -> None:
        self.named += 1
        if name is None:
            is_static = self.time.random.random() < 0.3
            name = f"s{self.named}#1" if is_static else f"m{self.named}"
        self.members.append(self.kind(self.setting, name))

    def main(self) -> list[Event]:
        time, random = self.time, self.time.random
        self.history.append(Wanted(0.0, GROUP, frozenset(self.setting.partitions)))
        for _ in range(random.randint(1, 3)):
            self.join()
        until_ms = random.randint(10_000, 40_000)
        pause_ms = random.choice([500, 3000, 10_000])
        while time.now_ms < until_ms:
            time.run(time.now_ms + 1 + round(time.some(pause_ms)))
            self.trouble()
        self.calm()
        time.run(time.now_ms + CALM_MS)
        self.disturbed("the end")
        self.look()
        return self.history

    def trouble(self) -> None:
        random, time = self.time.random, self.time
        self.members = [member for member in self.members if member.process.is_alive]
        member = random.choice(self.members) if self.members else None
        match random.randrange(8):
            case 0 | 1:
                if len(self.members) < 5:
                    self.join()
            case 2 if member is not None and not member.process.is_asleep:
                member.leave()
            case 3 if member is not None:
                member.crash()
                if member.instance_id is not None and random.random() < 0.8:
                    self.come_back(member)
            case 4 if member is not None and not member.process.is_asleep:
                member.sleep()
                time.after(time.some(8000), self.wake, member)
            case 5 if member is not None and member.instance_id is not None:
                self.come_back(member)  # while the one before is still there
            case 6:
                self.disturbed("a crash")
                self.coordinator.crash(time.some(1000))
            case 7:
                self.disturbed("a move")
                self.coordinator.move()

    def come_back(self, member: Member) -> None:
        """A static member starts again."""
        self.join(f"{member.instance_id}#{self.named + 1}")

    def wake(self, member: Member) -> None:
        if member.process.is_asleep and member.process.is_alive:
            member.wake()

    def calm(self) -> None:
        self.network.weather = self.network.weather._replace(loss=0, repeats=0)
        self.coordinator.fails = 0
        for member in self.members:
            self.wake(member)
        self.disturbed("the calm")

    def look(self) -> None:
        """What is committed in the end."""
        since = len(self.history)
        partitions = self.setting.partitions

        def told(answer: Any) -> None:
            for topic, offsets in answer:
                for one in offsets:
                    self.history.append(
                        Fetched(self.time.now_s, since, GROUP, (topic, one.partition), one.offset)
                    )

        self.network.call(
            Line(), self.coordinator.ask, fetch_request(partitions), told, timeout_ms=1000
        )
        self.time.run(self.time.now_ms + 2000)
        self.network.end()


def config(**settings: object) -> BrokerConfig:
    given = {"log.dirs": "/data"} | {k.replace("_", "."): v for k, v in settings.items()}
    return BrokerConfig.of([ConfigEntry(k, str(v), "simulation") for k, v in given.items()])


def image(**partitions: int) -> ClusterMetadata:
    topics = {
        name: TopicInfo(
            name,
            uuid.uuid5(uuid.NAMESPACE_DNS, name),
            tuple(PartitionInfo(n, 0, 0, (0,), (0,)) for n in range(count)),
        )
        for name, count in partitions.items()
    }
    return ClusterMetadata("cluster", 0).with_topics(topics)


def run(seed: int, kind: type[Member]) -> Run:
    """A failure names its seed."""
    one = Run(seed, kind)
    try:
        verify(one.main())
    except BaseException as error:
        error.add_note(f"seed {seed} of {kind.__name__}; the last events:")
        for event in one.history[-20:]:
            error.add_note(f"    {event}")
        raise
    return one


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_groups_hold_whatever_befalls_them(kind, seeds):
    for seed in seeds:
        run(seed, kind)


# Planted bugs


@contextlib.contextmanager
def planted(owner: Any, decision: str, wrong: Callable[..., Any]) -> Iterator[None]:
    """Instead of this decision of the coordinator a wrong one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, decision, wrong)
        yield


def names_found(run: Callable[..., Any], *given: Any) -> frozenset[str]:
    """Of the checks that found something."""
    try:
        run(*given)
    except Anomalies as error:
        return error.names
    return frozenset()


def found_alone(names: set[str], runs: Iterable[frozenset[str]]) -> bool:
    """Whether these checks find it, in a run where no other finds anything: what a bug leads to in
    the end may have more names."""
    return any(found == names for found in runs)


def same_generation(self: ClassicGroup, now_ms: int) -> None:
    begin_generation(self, now_ms)
    self.generation = max(1, self.generation - 1)


def not_kept(self: Offsets, request: Any, ticket: Any, step: Step) -> None:
    commit(self, request, ticket, step)
    for event in step.events:
        self.replay(event, NO_PRODUCER_ID)
    step.events.clear()


begin_generation, commit = ClassicGroup.begin_generation, Offsets.commit

PLANTED: dict[str, tuple[set[str], type[Member], Any, str, Callable[..., Any]]] = {
    "a generation is used again": (
        {"one-owner"},
        ClassicMember,
        ClassicGroup,
        "begin_generation",
        same_generation,
    ),
    "a member that is silent is waited for": (
        {"group-liveness"},
        ClassicMember,
        ClassicGroups,
        "_session_expired",
        lambda *_: None,
    ),
    "a consumer that is silent is waited for": (
        {"group-liveness"},
        ConsumerMember,
        ConsumerGroups,
        "expired",
        lambda *_: None,
    ),
    "a commit is answered and not written": (
        {"commit-regression"},
        ClassicMember,
        Offsets,
        "commit",
        not_kept,
    ),
    "any member may commit": (
        {"zombie-fenced"},
        ClassicMember,
        ClassicGroup,
        "check_commit",
        lambda *_, **__: None,
    ),
    "any consumer may commit": (
        {"zombie-fenced"},
        ConsumerMember,
        ConsumerGroup,
        "check_commit",
        lambda *_, **__: None,
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_by_its_check(bug):
    names, kind, owner, decision, wrong = PLANTED[bug]
    with planted(owner, decision, wrong):
        assert found_alone(names, (names_found(run, seed, kind) for seed in range(300)))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_run_event_by_event(kind, seed):
    first, second = run(seed, kind), run(seed, kind)
    assert first.history == second.history
    assert first.time.trace == second.time.trace
    assert len(first.history) > 10
