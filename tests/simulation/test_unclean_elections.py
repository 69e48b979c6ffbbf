"""A partition whose only in-sync replica is dead, with producers that go on writing to it.

It has no leader until that replica returns, or until an unclean election is allowed by a config or
requested by an administrator.  The controller may be killed before, during or after the election.
In the end the replicas are equal, and only acknowledged records that the elected replica lacked are
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import pytest

import kserver.controller.context
import kserver.controller.leader_elections
import kserver.controller.partition_states
import kserver.replica.fetch
import kserver.replica.partition
from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.admin.descriptions import ConfigChange, ConfigOp, ResourceType
from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError
from kcli.client.producer.producer import Producer
from kserver import znodes
from kserver.controller import election
from kserver.controller.context import next_state
from kserver.controller.failure_detector import BrokerFailureDetector
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_BROKER, ElectionType, LeaderAndIsr, TopicPartition
from kserver.wire.batch import batches
from kserver.world.zookeeper import NO_SESSION, Create, Op, SetData, WatchEvent
from tests.simulation.test_controller import controller
from tests.simulation.test_controller_operations import QUICK
from tests.support.checks.cluster import epoch_monotonic
from tests.support.history import Decided, Event, Leads
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SETTINGS, SimulatedCluster
from tests.support.zookeeper import SimZooKeeper

SEEDS = seeds(5, 1)
MISSED = [5, 53, 54, 58, *seeds(0, 1)]
"""In the first ones a controller that began missed the change of a config."""
T0 = TopicPartition("t", 0)
STATE = znodes.state_path(*T0)
ENABLE = "unclean.leader.election.enable"
BROKERS = (1, 2, 3)
SESSION_S = int(str(SETTINGS["zookeeper.session.timeout.ms"])) / 1000
SOON_S = 2.0
"""For a failover with a live controller."""
ELECTION_S = 5.0
"""For an election once every broker except the former leader is up."""
REQUEST_S = 15.0
"""For a request, which waits for a controller that was killed."""
HOLD_S = 1.5 * SESSION_S
"""Time in which no replica may be elected."""
PATIENCE_S = 120.0
NEVER, BEFORE, DURING, AFTER = KILLED = ("never", "before", "during", "after")
"""When the controller is killed, seen from the election."""
PRODUCER = {
    "acks": "all",
    "linger.ms": "0",
    "batch.size": "200",
    "request.timeout.ms": "2000",
    "max.block.ms": "600000",
    "delivery.timeout.ms": "600000",
}


@dataclass(frozen=True)
class UncleanElection:
    before: LeaderAndIsr
    state: LeaderAndIsr
    was_allowed: bool
    held: Sequence[str]
    """The values of the elected replica, in order."""
    acknowledged: frozenset[str]
    """The values that were acknowledged before."""


class Bereft:
    """Partition t-0, its producers, and a record of its states."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.random = Random(loop.random.random())
        self.cluster = SimulatedCluster(loop, len(BROKERS), QUICK)
        self.is_allowed = False
        self.is_over = asyncio.Event()
        self.states: list[LeaderAndIsr] = []
        self.history: list[Event] = []
        self.elections: list[UncleanElection] = []
        self.acknowledged: dict[str, int] = {}
        """Offsets by value."""
        self.failed: list[BaseException] = []
        self.kills = 0
        """Of controllers."""
        self.counted = 0
        """Unclean elections that the controllers of dead processes have counted."""
        self._last: dict[int, list[str]] = {}
        """The values of brokers that were killed."""
        self._running: list[asyncio.Task[None]] = []

    async def set_up(self, replicas: Sequence[int]) -> None:
        await self.cluster.start()
        async with self.admin() as admin:
            config = {"min.insync.replicas": "1", ENABLE: "false"}
            topic = NewTopic("t", assignments={0: replicas}, config=config)
            (made,) = (await admin.create_topics([topic])).values()
            assert not isinstance(made, Exception), made
        await self.cluster.until_in_sync("t", 1)
        self.cluster.ensemble.on_change = self._changed
        self._note_state()
        self._running = [
            self.loop.create_task(work)
            for work in (self._watch(), self._write("p1"), self._write("p2"))
        ]
        await self.until_acknowledged(5)

    def admin(self) -> Admin:
        quick = {"request.timeout.ms": "2000", "default.api.timeout.ms": "60000"}
        return Admin(self.cluster.bootstrap | quick, random=Random(self.random.random()))

    async def _write(self, name: str) -> None:
        config = ProducerConfig.of(self.cluster.bootstrap | PRODUCER)
        now_ms = self.cluster.ensemble.clock.now_ms
        async with Producer(config, now_ms=now_ms, random=Random(self.random.random())) as producer:
            number = 0
            while not self.is_over.is_set():
                number += 1
                value = f"{name}:{number}"
                outcome = await producer.send("t", value.encode(), partition=0)
                outcome.add_done_callback(partial(self._answered, value))
                await asyncio.sleep(self.random.expovariate(6))
            await producer.flush()

    def _answered(self, value: str, outcome: asyncio.Future[Any]) -> None:
        if outcome.cancelled():
            return
        error = outcome.exception()
        if error is None:
            self.acknowledged[value] = outcome.result().offset
        else:
            self.failed.append(error)

    async def _watch(self) -> None:
        """Record the leaders that brokers see."""
        while True:
            for id_, replica in self.cluster.replicas(*T0).items():
                if replica.is_leader:
                    self.history.append(Leads(self.loop.time(), "", T0, id_, replica.epoch))
            await asyncio.sleep(0.05)

    # The state of the partition

    def _changed(self, event: WatchEvent) -> None:
        if event.path == STATE:
            self._note_state()

    def _note_state(self) -> None:
        node = self.cluster.ensemble.tree.node(STATE)
        state = znodes.decode_state(*T0, node.data, node.version)
        before = self.states[-1] if self.states else state
        self.states.append(state)
        isr = frozenset(state.isr)
        at_s = self.loop.time()
        self.history.append(Decided(at_s, "", T0, state.leader, state.leader_epoch, isr))
        if state.leader not in (NO_BROKER, *before.isr):
            held, acknowledged = self.values(state.leader), frozenset(self.acknowledged)
            made = UncleanElection(before, state, self.is_allowed, held, acknowledged)
            self.elections.append(made)

    @property
    def state(self) -> LeaderAndIsr:
        return self.states[-1]

    def values(self, id_: int) -> list[str]:
        replica = self.cluster.replicas(*T0).get(id_)
        if replica is None:
            return self._last.get(id_, [])
        whole = self.cluster.whole(replica)
        return [str(r.value, "utf-8") for batch in batches(whole) for r in batch.records()]

    async def until(self, holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = self.loop.time() + patience_s
        while not holds():
            await asyncio.sleep(0.01)
            assert self.loop.time() < deadline, f"not in {patience_s} s: {self.state}"

    async def until_acknowledged(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        await self.until(lambda: len(self.acknowledged) >= wanted)

    # What befalls it

    async def kill(self, id_: int) -> None:
        self._last[id_] = self.values(id_)
        self.counted += self._counted_by(id_)
        await self.cluster.kill(id_)

    def _counted_by(self, id_: int) -> int:
        broker = self.cluster.brokers[id_].broker
        assert broker is not None
        return broker._parts.controller.meters.unclean_elections

    async def lose_leader(self) -> int:
        """Kill the only in-sync replica, which alone has the last acknowledged records.  Return it
        once all others are up, and the partition has no leader."""
        led_by = self.state.leader
        others = [id_ for id_ in BROKERS if id_ != led_by]
        followers = [id_ for id_ in self.cluster.replicas(*T0) if id_ != led_by]
        active = controller(self.cluster)
        is_cut = active not in followers and self.random.random() < 0.4
        for follower in self.random.sample(followers, len(followers)):
            if is_cut:
                self.loop.network.cut(f"b{led_by}", f"b{follower}")
            else:
                await self.kill(follower)
        await self.until(lambda: self.state.isr == (led_by,))
        await self.until_acknowledged(3)
        await self.kill(led_by)
        for follower in followers:
            if is_cut:
                self.loop.network.heal(f"b{led_by}", f"b{follower}")
            else:
                await self.cluster.start(follower)
        assert self.cluster.up == set(others)
        await self.until(lambda: self.state.leader == NO_BROKER, SOON_S)
        return led_by

    async def stays_unled(self, led_by: int) -> None:
        await asyncio.sleep(0.5)  # the last responses arrive
        acknowledged = len(self.acknowledged)
        await asyncio.sleep(HOLD_S)
        assert (self.state.leader, self.state.isr) == (NO_BROKER, (led_by,)), self.state
        assert len(self.acknowledged) == acknowledged

    async def kill_controller(self) -> None:
        """Kill it, and start it again after a while."""
        await self.until(lambda: controller(self.cluster) is not None)
        active = controller(self.cluster)
        assert active is not None
        await self._kill_and_start(active)

    async def _kill_and_start(self, id_: int) -> None:
        self.kills += 1
        await self.kill(id_)
        await asyncio.sleep(self.random.expovariate(0.5))
        await self.cluster.start(id_)

    async def killed_in_election(self, when: str) -> None:
        """Kill the controller that writes a leader: before the write arrives, or after it."""
        writers: asyncio.Queue[int] = asyncio.Queue()

        def written(client: SimZooKeeper, ops: Sequence[Op]) -> None:
            for op in ops:
                if isinstance(op, SetData) and op.path == STATE:
                    state = znodes.decode_state(*T0, op.data, 0)
                    if state.leader != NO_BROKER:
                        found = [i for i in self.cluster.up if self.cluster.zookeeper(i) is client]
                        for id_ in found:
                            writers.put_nowait(id_)

        self.cluster.ensemble.on_write = written
        writer = await writers.get()
        self.cluster.ensemble.on_write = lambda _client, _ops: None
        if when == AFTER:
            await self.until(lambda: self.state.leader != NO_BROKER)
        await asyncio.sleep(self.random.choice([0.0, 0.0005, 0.002, 0.01, 0.1]))
        if writer in self.cluster.up:
            await self._kill_and_start(writer)

    @contextlib.asynccontextmanager
    async def controller_killed(self, when: str) -> Any:
        task: asyncio.Task[None] | None = None
        if when == BEFORE:
            task = self.loop.create_task(self.kill_controller())
            await asyncio.sleep(self.random.choice([0.0, 0.001, 0.01, 0.1, 0.3]))
        elif when != NEVER:
            task = self.loop.create_task(self.killed_in_election(when))
            await asyncio.sleep(0)
        yield
        if task is not None:
            await task

    # What brings a leader

    async def allow(self) -> None:
        """Set the config: through an admin client, or in ZooKeeper, as Apache's old tools do."""
        self.is_allowed = True
        way = self.random.choice(["topic", "cluster", "znode"])
        if way == "znode":
            self.allow_in_zookeeper()
            return
        # A topic's own value wins over that of the brokers.
        changes = [ConfigChange(ENABLE, ConfigOp.SET, "true")]
        removed = [ConfigChange(ENABLE, ConfigOp.DELETE, None)]
        asked = (
            [((ResourceType.TOPIC, "t"), changes)]
            if way == "topic"
            else [((ResourceType.BROKER, ""), changes), ((ResourceType.TOPIC, "t"), removed)]
        )
        async with self.admin() as admin:
            for resource, wanted in asked:
                await self._insist(
                    partial(admin.incremental_alter_configs, {resource: wanted}),
                    (ErrorCode.none,),
                )

    def allow_in_zookeeper(self) -> None:
        self.is_allowed = True
        config = znodes.encode_config({"min.insync.replicas": "1", ENABLE: "true"})
        note = znodes.encode_config_change(znodes.TOPIC_CONFIGS, "t")
        ops: list[Op] = [
            SetData(znodes.config_path(znodes.TOPIC_CONFIGS, "t"), config),
            Create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True),
        ]
        self.cluster.ensemble.apply(ops, NO_SESSION)

    async def request(self) -> None:
        self.is_allowed = True
        async with self.admin() as admin:
            await self._insist(
                partial(admin.elect_leaders, ElectionType.UNCLEAN, [T0]),
                (ErrorCode.none, ErrorCode.election_not_needed),
            )

    async def _insist(self, call: Callable[[], Any], wanted: Collection[ErrorCode]) -> None:
        deadline = self.loop.time() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError, KafkaError, ClientError):
                (error,) = (await call()).values()
                if (ErrorCode.none if error is None else error.code) in wanted:
                    return
            assert self.loop.time() < deadline
            await asyncio.sleep(0.1)

    # The end

    async def finish(self) -> None:
        await self.until(lambda: self.cluster._has_full_isr("t", 0))
        self.is_over.set()
        watching, *writing = self._running
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*writing)
        watching.cancel()
        await self.cluster.until_in_sync("t", 1)
        self.cluster.check()

    def judge(self) -> None:
        """Check everything that has to hold of the states, whatever happened."""
        for made in self.elections:
            state = made.state
            assert made.was_allowed, f"not allowed: {state}"
            assert state.leader_epoch > made.before.leader_epoch, f"the old epoch: {state}"
            assert state.isr == (state.leader,), f"in sync although it lacks records: {state}"
        for before, state in zip(self.states, self.states[1:], strict=False):
            grown = state.leader_epoch - before.leader_epoch
            assert grown >= (state.leader != before.leader), f"the old epoch: {before}, {state}"
        assert not list(epoch_monotonic(self.history))

    def judge_at_rest(self) -> list[str]:
        """Check the logs, and return the acknowledged values that were lost."""
        replicas = self.cluster.replicas(*T0)
        assert len({self.cluster.whole(replica) for replica in replicas.values()}) == 1, "differ"
        epochs = {
            id_: [
                replica.log.end_offset_for_epoch(epoch) for epoch in range(self.state.leader_epoch)
            ]
            for id_, replica in replicas.items()
        }
        assert len({str(ends) for ends in epochs.values()}) == 1, epochs
        for replica in replicas.values():
            replica.log.check()
        final = self.values(self.state.leader)
        places = {value: offset for offset, value in enumerate(final)}
        assert len(places) == len(final), "doubled"
        for name in ("p1", "p2"):
            numbers = [int(v.partition(":")[2]) for v in final if v.startswith(f"{name}:")]
            assert numbers == sorted(numbers), f"reordered: {numbers}"
        assert not self.failed, self.failed
        lost = [value for value in self.acknowledged if value not in places]
        may_be_lost = {
            value for made in self.elections for value in made.acknowledged - set(made.held)
        }
        assert set(lost) <= may_be_lost, f"lost: {sorted(set(lost) - may_be_lost)}"
        if self.elections:
            held = list(self.elections[-1].held)
            assert final[: len(held)] == held, "the elected replica has lost records"
        for value, offset in self.acknowledged.items():
            assert offset in (-1, places.get(value, offset)), f"{value} has moved"
        return lost

    def judge_counts(self) -> None:
        """A controller that dies may have counted an election that it has not written."""
        counted = self.counted + sum(map(self._counted_by, BROKERS))
        assert len(self.elections) <= counted <= len(self.elections) + self.kills, counted

    async def end(self) -> None:
        for id_ in sorted(self.cluster.up):
            await self.cluster.stop(id_)
        assert not [bug for broker in self.cluster.brokers.values() for bug in broker.bugs]


def placed(random: Random) -> list[int]:
    return random.sample(BROKERS, random.choice([2, 3]))


@contextlib.contextmanager
def judged(bereft: Bereft) -> Iterator[None]:
    """A wrong state explains best why the rest went wrong."""
    try:
        yield
    finally:
        bereft.judge()


async def comes_back(loop: SimLoop, *, kills: bool) -> None:
    bereft = Bereft(loop)
    with judged(bereft):
        await bereft.set_up(placed(bereft.random))
        led_by = await bereft.lose_leader()
        await bereft.stays_unled(led_by)
        epoch = bereft.state.leader_epoch
        starting = loop.create_task(bereft.cluster.start(led_by))
        if kills:
            await asyncio.sleep(bereft.random.expovariate(5))
            await bereft.kill_controller()
        await starting
        await bereft.until(lambda: bereft.state.leader == led_by, ELECTION_S)
        assert bereft.state.leader_epoch > epoch
        await bereft.until_acknowledged(3)
        await bereft.finish()
    assert not bereft.elections
    assert bereft.judge_at_rest() == []
    bereft.judge_counts()
    await bereft.end()


async def elected_uncleanly(loop: SimLoop, *, requested: bool, killed: str) -> None:
    bereft = Bereft(loop)
    with judged(bereft):
        await bereft.set_up(placed(bereft.random))
        led_by = await bereft.lose_leader()
        await bereft.stays_unled(led_by)
        had = bereft._last[led_by]
        began_s = loop.time()
        async with bereft.controller_killed(killed):
            await (bereft.request() if requested else bereft.allow())
            if killed == NEVER:
                await bereft.until(lambda: bereft.state.leader != NO_BROKER, SOON_S)
            assert loop.time() - began_s < REQUEST_S
        await bereft.until(lambda: bereft.state.leader in bereft.cluster.up, ELECTION_S)
        assert bereft.elections
        await bereft.until_acknowledged(3)
        await asyncio.sleep(bereft.random.expovariate(0.3))
        await bereft.cluster.start(led_by)
        await bereft.finish()
    lost = bereft.judge_at_rest()
    assert lost
    assert set(lost) <= set(had)
    if len(bereft.elections) == 1:
        (made,) = bereft.elections
        assert set(lost) == made.acknowledged - set(made.held)
    bereft.judge_counts()
    await bereft.end()


async def allowed_as_a_controller_begins(loop: SimLoop, begins: asyncio.Event) -> None:
    bereft = Bereft(loop)
    with judged(bereft):
        await bereft.set_up(placed(bereft.random))
        led_by = await bereft.lose_leader()
        begins.clear()
        killing = loop.create_task(bereft.kill_controller())
        await begins.wait()
        await asyncio.sleep(bereft.random.uniform(0, 0.008))
        bereft.allow_in_zookeeper()
        await killing
        await bereft.until(lambda: bereft.state.leader in bereft.cluster.up, ELECTION_S)
        await bereft.cluster.start(led_by)
        await bereft.finish()
    bereft.judge_at_rest()
    bereft.judge_counts()
    await bereft.end()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kills", [False, True], ids=["", "controller killed"])
def test_a_partition_waits_for_its_only_in_sync_replica(kills: bool, seed: int) -> None:
    simulate(lambda loop: comes_back(loop, kills=kills), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("killed", KILLED)
def test_an_unclean_leader_is_elected_once_a_config_allows_it(killed: str, seed: int) -> None:
    simulate(lambda loop: elected_uncleanly(loop, requested=False, killed=killed), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("killed", KILLED)
def test_an_unclean_leader_is_elected_on_request(killed: str, seed: int) -> None:
    simulate(lambda loop: elected_uncleanly(loop, requested=True, killed=killed), seed)


@pytest.mark.parametrize("seed", MISSED)
def test_a_config_that_changes_while_a_controller_begins_is_not_missed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = BrokerFailureDetector.looked
    begins = asyncio.Event()

    async def noted(detector: BrokerFailureDetector) -> None:
        """The next step of a controller that begins is to read the topics and their configs."""
        await looked(detector)
        begins.set()

    monkeypatch.setattr(BrokerFailureDetector, "looked", noted)
    simulate(lambda loop: allowed_as_a_controller_begins(loop, begins), seed)


# Planted bugs


def always_unclean(*given: Any, unclean: bool) -> Any:
    return next_state(*given, unclean=True)


def in_the_old_epoch(replicas: Any, last: Any, *given: Any, unclean: bool = False) -> Any:
    made = elect_offline(replicas, last, *given, unclean=unclean)
    if made is None or last is None or made.leader in last.isr:
        return made
    return replace(made, leader_epoch=last.leader_epoch)


def with_the_dead(replicas: Any, last: Any, *given: Any, unclean: bool = False) -> Any:
    made = elect_offline(replicas, last, *given, unclean=unclean)
    if made is None or last is None or made.leader in last.isr:
        return made
    return replace(made, isr=(*made.isr, *last.isr))


def never(*_: Any) -> None:
    return None


elect_offline = election.elect_offline
CONTEXT, REQUESTS = kserver.controller.context, kserver.controller.leader_elections
STATES = kserver.controller.partition_states
PLANTED = {
    "an unclean leader is elected without the config": (
        "not allowed",
        [(STATES, "next_state", always_unclean)],
    ),
    "the elected leader keeps the old epoch": (
        "the old epoch",
        [(owner, "elect_offline", in_the_old_epoch) for owner in (CONTEXT, REQUESTS)],
    ),
    "the dead broker stays in sync": (
        "in sync although",
        [(owner, "elect_offline", with_the_dead) for owner in (CONTEXT, REQUESTS)],
    ),
    "the former leader does not truncate its log": (
        f"not in {PATIENCE_S} s",
        [
            (kserver.replica.partition, "divergence", never),
            (kserver.replica.fetch, "divergence", never),
        ],
    ),
}


@pytest.mark.parametrize("requested", [False, True], ids=["allowed", "requested"])
@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_bug_is_found(
    what: str, requested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, plants = PLANTED[what]
    for owner, decision, wrong in plants:
        monkeypatch.setattr(owner, decision, wrong)
    with pytest.raises(AssertionError, match=said):
        simulate(lambda loop: elected_uncleanly(loop, requested=requested, killed=NEVER), 0)
