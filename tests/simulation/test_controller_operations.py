"""Whoever carries out what a client asked is struck in the middle of it: killed, cut off from
ZooKeeper, paused past its session, or another is made the controller while it lives.

What is asked takes effect wholly or not at all; what was answered with success stays; whoever comes
next completes what was begun, and may be struck too; in the end all agree, every partition is led
and all its replicas are in sync; and a client that asks again gets there.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from random import Random

import pytest

from kcli.client.admin.admin import Admin, NewPartitions, NewTopic
from kcli.client.admin.descriptions import ConfigChange, ConfigOp, ResourceType
from kcli.client.cluster import To
from kcli.client.errors import ClusterUnreachable, TimedOut
from kserver import znodes
from kserver.cluster_config import znode_store
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo
from kserver.model import TopicPartition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.world.zookeeper import NO_SESSION, Delete, Op
from tests.simulation.test_controller import the_controller
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import DATA
from tests.support.simulated_cluster import SETTINGS, SimulatedCluster
from tests.support.wire_client import milliseconds
from tests.support.zookeeper import SimZooKeeper

PATIENCE_S = 120
SESSION_S = int(str(SETTINGS["zookeeper.session.timeout.ms"])) / 1000
KILLED, CUT, SILENT, PAUSED, DEPOSED = FAULTS = ("killed", "cut", "silent", "paused", "deposed")
BROKERS = (1, 2, 3)
SEEDS = seeds(4)
QUICK = {
    "auto.leader.rebalance.enable": "false",
    "log.index.size.max.bytes": 4096,  # a simulated disk has its files in memory
}
CONFIG = {"min.insync.replicas": "2", "retention.ms": "5000000"}


class Strikes:
    """From now on the brokers that make some of the next writes are struck, each a moment after it
    has sent its write: before it arrives, before it is answered, or later."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        random = cluster.loop.random
        self.after = [random.randint(1, 5)]
        """The first is struck with the write of this number, the second so many writes later."""
        while len(self.after) < 3 and random.random() < 0.4:
            self.after.append(random.randint(1, 8))
        self.struck: set[int] = set()
        self._busy: set[int] = set()
        self._done: list[asyncio.Task[None]] = []
        cluster.ensemble.on_write = self._written

    def _written(self, client: SimZooKeeper, ops: Sequence[Op]) -> None:
        if not any(op.path.startswith(("/brokers/topics", "/config")) for op in ops):
            return
        writer = next((i for i in self.cluster.up if self.cluster.zookeeper(i) is client), None)
        if writer is None or writer in self._busy or not self.after:
            return
        self.after[0] -= 1
        if self.after[0] == 0:
            self.after.pop(0)
            self._begin(writer)

    def _begin(self, id_: int) -> None:
        self._busy.add(id_)
        self.struck.add(id_)
        # Not as a task of the broker that wrote, which would be paused with it.
        context = self.cluster.ensemble.context.copy()
        self._done.append(asyncio.create_task(self._strike(id_), context=context))

    async def over(self, otherwise: int) -> None:
        """Once what was struck has recovered.  `otherwise` is struck now if nobody was: what was
        asked took less writes."""
        if not self.struck:
            self._begin(otherwise)
        while any(not task.done() for task in self._done):
            await asyncio.gather(*self._done)
        self.cluster.ensemble.on_write = lambda _client, _ops: None

    async def _strike(self, id_: int) -> None:
        cluster, random = self.cluster, self.cluster.loop.random
        broker, zookeeper = cluster.brokers[id_], cluster.zookeeper(id_)
        mean_s = random.choice([0, 0.001, 0.003, 0.05])
        await asyncio.sleep(random.expovariate(1 / mean_s) if mean_s else 0)
        fault = random.choice(FAULTS)
        cluster.loop.trace.add("strike", id_, fault)
        past_session = random.random() < 0.8
        hold_s = random.expovariate(0.5) + (SESSION_S if past_session else 0)
        if fault == KILLED:
            await cluster.kill(id_)
            await asyncio.sleep(hold_s)
            await cluster.start(id_)
        elif fault == CUT:
            zookeeper.cut()
            await asyncio.sleep(hold_s)
            zookeeper.heal()
        elif fault == SILENT:
            zookeeper.silence()
            await asyncio.sleep(hold_s)
            zookeeper.heal()
        elif fault == PAUSED:
            broker.pause()
            await asyncio.sleep(hold_s)
            broker.resume()
        elif znodes.CONTROLLER in cluster.ensemble.tree.nodes:  # as by hand, with ZooKeeper's shell
            cluster.ensemble.apply([Delete(znodes.CONTROLLER)], NO_SESSION)
        self._busy.discard(id_)


class Operation(ABC):
    """On topic "t"; made for each run."""

    moves_replicas = False

    def __init__(self, cluster: SimulatedCluster, *, writes: bool) -> None:
        """`writes`: whether it shall take several."""
        self.cluster = cluster
        self.struck: set[int] = set()
        self.partitions = 12 if writes else 3

    async def prepare(self, admin: Admin) -> None:
        """What is there before it is asked."""
        await admin.list_topics()

    @abstractmethod
    async def ask(self, admin: Admin) -> None:
        """KafkaError where it was refused."""

    @abstractmethod
    def outcome(self, topic: TopicInfo | None, struck: set[int]) -> tuple[bool, bool]:
        """Whether it has not taken effect at all, and whether it has wholly.  Of what the brokers
        in `struck` had the end may be another."""


async def created(admin: Admin, partitions: int) -> None:
    new = NewTopic("t", partitions, len(BROKERS), config=CONFIG)
    await unless_refused(admin.create_topics([new]))


class Creation(Operation):
    async def ask(self, admin: Admin) -> None:
        try:
            await created(admin, self.partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise

    def outcome(self, topic: TopicInfo | None, struck: set[int]) -> tuple[bool, bool]:
        if topic is None:
            nodes = self.cluster.ensemble.tree.nodes
            return not [path for path in nodes if "t" in path.split("/")], False
        return False, len(topic.partitions) == self.partitions and topic.config == CONFIG


class Growth(Operation):
    async def prepare(self, admin: Admin) -> None:
        await created(admin, 2)

    async def ask(self, admin: Admin) -> None:
        await unless_refused(admin.create_partitions({"t": NewPartitions(self.partitions)}))

    def outcome(self, topic: TopicInfo | None, struck: set[int]) -> tuple[bool, bool]:
        assert topic is not None
        assert topic.config == CONFIG
        return len(topic.partitions) == 2, len(topic.partitions) == self.partitions


class ConfigsAltered(Operation):
    async def prepare(self, admin: Admin) -> None:
        await created(admin, self.partitions)

    async def ask(self, admin: Admin) -> None:
        changes = [
            ConfigChange("retention.ms", ConfigOp.SET, "7000000"),
            ConfigChange("min.insync.replicas", ConfigOp.DELETE, None),
        ]
        resource = (ResourceType.TOPIC, "t")
        await unless_refused(admin.incremental_alter_configs({resource: changes}))

    def outcome(self, topic: TopicInfo | None, struck: set[int]) -> tuple[bool, bool]:
        assert topic is not None
        return topic.config == CONFIG, topic.config == {"retention.ms": "7000000"}


class PreferredElection(Operation):
    """One of the brokers leads nothing, for it was away."""

    async def prepare(self, admin: Admin) -> None:
        await created(admin, self.partitions)
        away = self.cluster.loop.random.choice(BROKERS)
        await self.cluster.until_in_sync("t", self.partitions)
        await self.cluster.stop(away)
        await self.cluster.start(away)

    async def ask(self, admin: Admin) -> None:
        try:
            peer = await admin.cluster.peer(To.CONTROLLER)
            new = versions.request(ApiKey.ELECT_LEADERS, peer.version(ApiKey.ELECT_LEADERS))
            answer = await peer.call(
                new(election_type=0, topic_partitions=None, timeout=milliseconds(30_000))
            )
        except OSError:
            admin.cluster.forget_controller()
            raise
        codes = {answer.error_code}
        codes |= {p.error_code for t in answer.replica_election_results for p in t.partition_result}
        for code in codes - {ErrorCode.none}:
            admin.cluster.forget_controller()
            raise KafkaError(code)

    def outcome(self, topic: TopicInfo | None, struck: set[int]) -> tuple[bool, bool]:
        assert topic is not None
        moved = [p.leader == p.replicas[0] for p in topic.partitions if p.replicas[0] not in struck]
        # Each partition has an election of its own.
        return True, all(moved)


class Reassignment(Operation):
    """Every partition moves from one of its two brokers to the third."""

    moves_replicas = True

    async def prepare(self, admin: Admin) -> None:
        placed = {p: self._pair(p) for p in range(self.partitions)}
        await unless_refused(
            admin.create_topics([NewTopic("t", assignments=placed, config=CONFIG)])
        )
        await self.cluster.until_in_sync("t", self.partitions)

    async def ask(self, admin: Admin) -> None:
        wanted = {TopicPartition("t", p): self._pair(p + 1) for p in range(self.partitions)}
        await unless_refused(admin.alter_reassignments(wanted))

    def outcome(self, topic: TopicInfo | None, struck: set[int]) -> tuple[bool, bool]:
        assert topic is not None
        self.struck |= struck
        for p in topic.partitions:
            # A broker that is away when its replica is removed keeps the log, as in Kafka.
            for id_ in set(BROKERS) - self.struck - set(p.replicas):
                path = f"{DATA}/t-{p.partition}"
                assert not self.cluster.brokers[id_].disk.exists(path), f"{path} of {id_}"
        moved = [list(p.replicas) == self._pair(p.partition + 1) for p in topic.partitions]
        return not any(moved), all(moved)

    @staticmethod
    def _pair(first: int) -> list[int]:
        return [BROKERS[first % 3], BROKERS[(first + 1) % 3]]


OPERATIONS = {
    "creation": Creation,
    "growth": Growth,
    "a change of settings": ConfigsAltered,
    "a preferred election": PreferredElection,
    "a reassignment": Reassignment,
}


async def unless_refused(asked: Awaitable[Mapping[object, object]]) -> None:
    for result in (await asked).values():
        if isinstance(result, KafkaError):
            raise result


async def until_calm(cluster: SimulatedCluster) -> TopicInfo | None:
    """Topic t, once all brokers tell the same of it, and it is well."""
    deadline = cluster.loop.time() + PATIENCE_S
    while trouble := unrest(cluster):
        await asyncio.sleep(0.1)
        assert cluster.loop.time() < deadline, trouble
    parts = cluster.brokers[1].broker
    assert parts is not None
    return parts._parts.metadata.current.topics.get("t")


def unrest(cluster: SimulatedCluster) -> str:
    """What is not yet as it should be in the end; empty where all is well."""
    if cluster.up != set(BROKERS):
        return f"only {cluster.up} are up"
    parts = {id_: broker._parts for id_, one in cluster.brokers.items() if (broker := one.broker)}
    active = [id_ for id_, of in parts.items() if of.controller.is_active]
    if len(active) != 1:
        return f"the controllers are {active}"
    context = parts[active[0]].controller.context
    if context.brokers.keys() != set(BROKERS):
        return f"the controller knows {context.brokers.keys()}"
    context.check()
    told = {id_: of.metadata.current for id_, of in parts.items()}
    for id_, image in told.items():
        if image.brokers.keys() != set(BROKERS):
            return f"{id_} knows {image.brokers.keys()}"
        if image.controller != active[0]:
            return f"{id_} takes {image.controller} for the controller"
    first = told[1].topics.get("t")
    known = context.topics.get("t")
    if (first is None) != (known is None) or any(i.topics.get("t") != first for i in told.values()):
        return f"brokers tell of {[image.topics.get('t') for image in told.values()]}, not {known}"
    nodes = cluster.ensemble.tree.nodes
    if znodes.CONTROLLER not in nodes:
        return "nobody is the controller"
    if (known is None) != (znodes.topic_path("t") not in nodes):
        return f"the controller knows {known}, the znode is something else"
    if first is None or known is None:
        return ""
    placed = znodes.decode_topic("t", nodes[znodes.topic_path("t")].data)
    if placed.adding or placed.removing:
        return f"a reassignment is in progress: {placed}"
    for p, decided in zip(first.partitions, known.partitions, strict=False):
        node = nodes.get(znodes.state_path("t", p.partition))
        if node is None:
            return f"t-{p.partition} has no state"
        state = znodes.decode_state("t", p.partition, node.data, node.stat.version)
        seen = {(x.leader, x.leader_epoch, x.isr) for x in (p, decided, state)}
        if len(seen) > 1:
            return f"t-{p.partition} is told to be {p}, decided to be {decided}, and is {state}"
        if not cluster._in_sync("t", p.partition):
            return f"t-{p.partition} is not in sync: {state}"
        if p.adding or p.removing:
            return f"t-{p.partition} is being reassigned: {p}"
    if len(first.partitions) != len(known.partitions):
        return f"brokers tell of {len(first.partitions)} partitions, not {len(known.partitions)}"
    return ""


async def struck_meanwhile(loop: SimLoop, kind: type[Operation], *, writes: bool) -> None:
    cluster = SimulatedCluster(loop, len(BROKERS), QUICK)
    await cluster.start()
    operation = kind(cluster, writes=writes)
    quick = cluster.bootstrap | {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}
    async with (
        Admin(cluster.bootstrap, random=Random(loop.random.random())) as patient,
        Admin(quick | {"retries": "0"}, random=Random(loop.random.random())) as once,
    ):
        await operation.prepare(patient)
        before = await until_calm(cluster)
        await once.list_topics()
        strikes = Strikes(cluster)
        try:
            await operation.ask(once)
            is_done = True
        except (KafkaError, OSError, ClusterUnreachable, TimedOut) as error:
            loop.trace.add("refused", repr(error))
            is_done = False
        await strikes.over(otherwise=loop.random.choice(BROKERS))
        after = await until_calm(cluster)
        is_nothing, is_whole = operation.outcome(after, strikes.struck)
        assert is_whole or (is_nothing and not is_done), (is_done, before, after)
        if before is not None and after is not None:
            assert after.id == before.id
        if before is not None and after is not None and not operation.moves_replicas:
            kept = [p.replicas for p in after.partitions[: len(before.partitions)]]
            assert kept == [p.replicas for p in before.partitions]
        # Whoever asks again gets there.
        while not operation.outcome(after, set())[1]:
            with contextlib.suppress(KafkaError, OSError, ClusterUnreachable, TimedOut):
                await operation.ask(patient)
            after = await until_calm(cluster)
        cluster.check()
    for id_ in BROKERS:
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_asked_takes_effect_wholly_or_not_at_all(operation: str, seed: int) -> None:
    simulate(lambda loop: struck_meanwhile(loop, OPERATIONS[operation], writes=False), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_so_does_what_takes_several_writes(
    operation: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered: 500 partitions with their logs take too long for many seeds."""
    monkeypatch.setattr(znode_store, "OPS_PER_WRITE", 3 + seed % 5)
    simulate(lambda loop: struck_meanwhile(loop, OPERATIONS[operation], writes=True), seed)


async def stop_replica_lost(loop: SimLoop, *, comes_back: bool) -> None:
    """The controller fails, or waits for long, before a removed replica is known to be stopped."""
    cluster = SimulatedCluster(loop, len(BROKERS), QUICK)
    await cluster.start()
    controller = await the_controller(cluster, loop)
    leader, removed = (id_ for id_ in BROKERS if id_ != controller)
    path = f"{DATA}/t-0"
    async with Admin(cluster.bootstrap, random=Random(loop.random.random())) as admin:
        new = NewTopic("t", assignments={0: [leader, removed]}, config=CONFIG)
        await unless_refused(admin.create_topics([new]))
        await until_calm(cluster)
        loop.network.cut_one_way(f"b{controller}", f"b{removed}")
        moved = TopicPartition("t", 0)
        await unless_refused(admin.alter_reassignments({moved: [leader, controller]}))
        async with asyncio.timeout(PATIENCE_S):
            while await admin.list_reassignments([moved]):
                await asyncio.sleep(0.01)
        # To clients the reassignment has ended; the znode names the replica that is removed.
        node = cluster.ensemble.tree.nodes[znodes.topic_path("t")]
        assert znodes.decode_topic("t", node.data).removing == {0: (removed,)}
        assert cluster.brokers[removed].disk.exists(path)
        if comes_back:
            await asyncio.sleep(loop.random.uniform(0, 2 * SESSION_S))
        else:
            await cluster.kill(controller)
        loop.network.heal(f"b{controller}", f"b{removed}")
        if not comes_back:
            await asyncio.sleep(2 * SESSION_S)
            await cluster.start(controller)
        topic = await until_calm(cluster)
        assert topic is not None
        assert topic.partitions[0].replicas == (leader, controller)
        assert not cluster.brokers[removed].disk.exists(path)
    for id_ in BROKERS:
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("comes_back", [True, False], ids=["reachable again", "failed"])
def test_the_log_of_a_removed_replica_is_deleted_whoever_is_the_controller(
    comes_back: bool, seed: int
) -> None:
    simulate(lambda loop: stop_replica_lost(loop, comes_back=comes_back), seed)


def test_a_controller_that_was_replaced_does_not_complete_what_the_next_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It found the topic that it had begun, and led it without asking whether it still may: the
    next controller met its znodes, and ended."""
    monkeypatch.setattr(znode_store, "OPS_PER_WRITE", 3)
    simulate(lambda loop: struck_meanwhile(loop, Creation, writes=True), seed=100)
