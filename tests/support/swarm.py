"""A simulated cluster under faults and workloads that its seed draws, and its checks.

set up    3 to 5 brokers, the workloads' topics, everything in sync
trouble   faults, one or two at a time, while the workloads go on
calm      all faults are repaired: within 30 s all is in sync, and each workload makes progress
the end   the workloads stop, everything is read once more, and the history is verified
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver import znodes
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from kserver.wire.batch import batches
from kserver.world.zookeeper import WatchEvent
from tests.support.checks import verify
from tests.support.checks.cluster import FAULT_S, is_done
from tests.support.faults import FAULTS, OF_TWO_DIRECTORIES, strike
from tests.support.history import (
    Calm,
    Decided,
    Differs,
    Holds,
    Kept,
    Lacks,
    Leads,
    Led,
    Orphaned,
    Placed,
    Recovered,
    Struck,
    Targeted,
)
from tests.support.loop import SimLoop
from tests.support.scene import Scene
from tests.support.shrinking import Drawn
from tests.support.simulated import DATA
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.workload_churn import Churns
from tests.support.workload_compacted import Compacts
from tests.support.workload_groups import Group
from tests.support.workload_meddling import Meddles
from tests.support.workload_times import Times
from tests.support.workload_transactions import Mixed, Money, Transforms
from tests.support.workload_trimmed import Trims
from tests.support.workloads import Appends, Workload

SETTINGS = {
    "replica.fetch.backoff.ms": 200,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "log.index.size.max.bytes": 4096,
    "log.retention.check.interval.ms": 5000,
    "log.cleaner.backoff.ms": 2000,
}
COLD_CHANCE = 0.05
"""Probability that records to send are not in memory, and are read from the disk."""
LOOK_S = 0.25
SETTLING_S = 10.0
TROUBLE_S = 15.0
LETTING_GO_S = 60.0
"""Seconds for which brokers may hold state of clients that have gone."""
LONGEST = ("kill", "pause", "isolate", "zookeeper_cut", "refuse", "foreign_write")
"""Faults that one broker may have for FAULT_S while the others serve. Clients that are cut off from
a leader are not among them: all brokers reach it, so it stays leader. Nor is a leader that is cut
off from a controller that follows it, since only this leader could shrink the ISR.
"""
PATIENCE_S = 45.0
MEDDLER = "meddling"
"""A workload that runs with others, whose topics it changes."""
LIMIT_S = 1800.0
"""No run takes longer: a run that never ends fails."""

WORKLOADS: Mapping[str, Callable[[Random], Workload]] = {
    "append": partial(Appends, idempotent=False),
    "idempotent append": partial(Appends, idempotent=True),
    "append to leader": partial(Appends, idempotent=False, by_leader_alone=True),
    "transform": Transforms,
    "money": Money,
    "mixed": Mixed,
    "classic group": partial(Group, classic=True),
    "consumer group": partial(Group, classic=False),
    "static members": partial(Group, classic=True, static=True),
    "compacted": Compacts,
    "times": Times,
    "trimmed": Trims,
    "churn": Churns,
    MEDDLER: Meddles,
}


class Run(NamedTuple):
    """The figures of one run."""

    virtual_s: float
    faults: int
    """Number of faults that were injected."""
    operations: int
    """Number of successful operations of clients."""


class Swarm(Scene):
    def __init__(
        self,
        loop: SimLoop,
        brokers: int,
        workloads: Sequence[Workload],
        log_dirs: Sequence[str] = (DATA,),
    ) -> None:
        settings = SETTINGS | {"log.dirs": ",".join(log_dirs)}
        self.cluster = SimulatedCluster(loop, brokers, settings)
        for broker in self.cluster.brokers.values():
            broker.disk.cold_chance = COLD_CHANCE
        self.log_dirs = log_dirs
        super().__init__(loop, tuple(self.cluster.brokers.values()))
        self.workloads = workloads
        self.broken: set[int] = set()
        """Brokers that have a fault now."""
        self.is_aiming = False
        """Whether a fault waits for a broker to act."""
        self.is_calm = asyncio.Event()
        self.is_over = asyncio.Event()
        """Set when workloads have to stop writing to their topics."""
        self.lost_bytes: set[tuple[int, TopicPartition]] = set()
        """Brokers that lack records of a partition because a fault lost them: they may be in its
        ISR until the loss is noticed.
        """
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        """The highest high watermark of any broker, by topic id and partition."""
        self._isr: dict[TopicPartition, tuple[str, frozenset[int]]] = {}
        """The topic id and ISR of each partition, as in the znodes."""
        self._lacking: set[tuple[int, TopicPartition]] = set()
        self._watching: asyncio.Task[None] | None = None
        self.cluster.ensemble.on_change = self._decided

    def now_ms(self) -> int:
        """Return the time of the clients' clocks, which are right."""
        return self.cluster.ensemble.clock.now_ms()

    @property
    def topics(self) -> list[NewTopic]:
        return [topic for workload in self.workloads for topic in workload.topics]

    async def set_up(self) -> None:
        await self.cluster.start()
        replication = min(3, len(self.cluster.brokers))
        min_isr = self.random.choice([1, 2])
        async with Admin(AdminConfig.of(self.bootstrap), random=self.new_chance()) as admin:
            topics = [
                NewTopic(
                    topic.name,
                    topic.partitions,
                    replication,
                    config={"min.insync.replicas": str(min_isr), **topic.config},
                )
                for topic in self.topics
            ]
            for outcome in (await admin.create_topics(topics)).values():
                if isinstance(outcome, KafkaError):
                    raise outcome
        for topic in self.topics:
            await self.cluster.until_in_sync(topic.name, topic.partitions)
            for number, replicas in self._assignment(topic.name).replicas.items():
                self.note(Targeted(self.now_s, (topic.name, number), replicas))
        self._watching = self.loop.create_task(self._watch())
        for workload in self.workloads:
            workload.begin(self)

    async def trouble(self, faults: Sequence[str], for_s: float) -> None:
        """Inject faults one after the other."""
        random, until_s = self.random, self.now_s + for_s
        while self.now_s < until_s:
            await asyncio.sleep(random.expovariate(1))
            await strike(self, random.choice(faults), random.expovariate(0.3))

    async def calm_down(self) -> None:
        self.note(Calm(self.now_s))
        self.is_calm.set()
        since = len(self.history)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.cluster.until_all_in_isr()
                while not all(workload.has_done_since(self, since) for workload in self.workloads):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self._look_who_leads()
            verify(self.history)
            raise
        self.note(Recovered(self.now_s))

    async def finish(self) -> None:
        """Read all records, compare the replicas, and verify the history."""
        self.is_over.set()
        try:
            async with asyncio.timeout(3 * PATIENCE_S):
                for workload in self.workloads:
                    await workload.finish(self)
                await self.stop()
                for workload in self.workloads:
                    await workload.read_all(self)
                await self.cluster.until_all_in_sync()
        except TimeoutError:
            for difference in self.cluster.differences():
                self.note(Differs(self.now_s, difference))
            verify(self.history)
            raise
        self._look_at_rest()
        assert self._watching is not None
        self._watching.cancel()
        await self._look_what_is_kept()
        for broker in sorted(self.cluster.up):
            await self.cluster.stop(broker)
        await asyncio.sleep(LOOK_S)
        for stopped in self.cluster.brokers.values():
            for life in stopped.stopped:
                for task in self.loop.tasks_of(life):
                    self.note(Orphaned(self.now_s, life, str(task.get_coro())))
        bugs = [bug for broker in self.cluster.brokers.values() for bug in broker.bugs]
        assert not bugs, bugs
        verify(self.history)
        for workload in self.workloads:
            workload.judge(self)

    def _look_who_leads(self) -> None:
        for key in self.cluster.hosted_anywhere():
            replicas = self.cluster.replicas(*key)
            leader = self.cluster.leader(*key)
            decided = [e for e in self.history if isinstance(e, Decided) and e.partition == key]
            isr = decided[-1].isr if decided else frozenset(replicas)
            led_by = None if leader is None else leader.leader_id
            self.note(Led(self.now_s, key, led_by, isr & self.cluster.up))

    def _assignment(self, topic: str) -> znodes.TopicAssignment:
        return znodes.decode_topic(
            topic, self.cluster.ensemble.tree.node(znodes.topic_path(topic)).data
        )

    def _look_at_rest(self) -> None:
        self._look_who_leads()
        for topic in self.topics:
            of = self._assignment(topic.name)
            for number, replicas in of.replicas.items():
                hosts = frozenset(self.cluster.replicas(topic.name, number))
                is_moving = number in of.adding or number in of.removing
                key = (topic.name, number)
                self.note(Placed(self.now_s, key, replicas, hosts, is_moving))
        for key in self.cluster.hosted_anywhere():
            for broker, replica in self.cluster.replicas(*key).items():
                log = replica.log
                log.check()
                if "compact" in log.config.cleanup_policy:
                    continue  # each replica is compacted on its own
                held = tuple(
                    (batch.base_offset, hashlib.sha256(batch.buffer).hexdigest()[:16])
                    for batch in batches(self.cluster.whole(replica))
                )
                self.note(Holds(self.now_s, key, broker, log.log_start_offset, held))

    async def _look_what_is_kept(self) -> None:
        """Record the state that brokers hold for clients: all of them have gone, so it has to be
        empty soon.
        """
        others = len(self.cluster.brokers) - 1
        until_s = self.now_s + LETTING_GO_S
        while True:
            kept = [
                Kept(self.now_s, id_, what, count, limit)
                for id_ in sorted(self.cluster.up)
                for what, count, limit in (
                    ("connections of clients", self.cluster.connections_of_clients(id_), 0),
                    ("requests that wait", self.cluster.waiting(id_), others),
                )
            ]
            if all(one.count <= one.limit for one in kept) or self.now_s > until_s:
                break
            await asyncio.sleep(LOOK_S)
        for one in kept:
            self.note(one)

    def _look_who_lacks(self) -> None:
        """Record the in-sync replicas that lack committed records, unless their disk or power lost
        bytes.
        """
        for key in self.cluster.hosted_anywhere():
            topic_id, isr = self._isr.get(key, ("", frozenset[int]()))
            replicas = {
                id_: replica
                for id_, replica in self.cluster.replicas(*key).items()
                if znodes.uuid_to_text(replica.topic_id) == topic_id
            }
            known = [replica.log.high_watermark for replica in replicas.values()]
            of = (topic_id, key)
            committed = self._committed[of] = max(self._committed.get(of, 0), *known, 0)
            for id_, replica in replicas.items():
                end = replica.log.log_end_offset
                if id_ not in isr or end >= committed:
                    self.lost_bytes.discard((id_, key))
                    self._lacking.discard((id_, key))
                elif (id_, key) not in self.lost_bytes | self._lacking:
                    self._lacking.add((id_, key))
                    self.note(Lacks(self.now_s, key, id_, end, committed))

    def loses_bytes(self, broker: int) -> None:
        """Record that the broker lost bytes."""
        self.lost_bytes |= {(broker, key) for key in self._isr}

    async def _watch(self) -> None:
        """Record the leaders that brokers see, and the in-sync replicas."""
        seen: set[tuple[object, ...]] = set()
        while True:
            for broker in sorted(self.cluster.up):
                for key, replica in self.cluster.hosted(broker).items():
                    fact = (
                        znodes.uuid_to_text(replica.topic_id),
                        tuple(key),
                        broker,
                        replica.epoch,
                    )
                    if replica.is_leader and fact not in seen:
                        seen.add(fact)
                        self.note(Leads(self.now_s, *fact))
            self._look_who_lacks()
            await asyncio.sleep(LOOK_S)

    def _decided(self, event: WatchEvent) -> None:
        """Record the state of a partition, if the event is the controller's write of it."""
        match event.path.split("/"):
            case ["", "brokers", "topics", topic, "partitions", number, "state"]:
                tree = self.cluster.ensemble.tree
                node = tree.nodes.get(event.path)
                if node is None or not node.data.endswith(b"}"):
                    return  # deleted, or overwritten by a fault
                state = json.loads(node.data)
                about = json.loads(tree.node(f"/brokers/topics/{topic}").data)
                key = TopicPartition(topic, int(number))
                self._isr[key] = (about["topic_id"], frozenset(state["isr"]))
                self.note(
                    Decided(
                        self.now_s,
                        about["topic_id"],
                        (topic, int(number)),
                        state["leader"],
                        state["leader_epoch"],
                        frozenset(state["isr"]),
                    )
                )
                if self._watching is not None:
                    self._look_who_lacks()


def _some_workloads(random: Random) -> list[str]:
    found = random.sample(sorted(WORKLOADS.keys() - {MEDDLER}), random.randint(1, 2))
    return [*found, MEDDLER] if random.random() < 0.2 else found


async def swarm(
    loop: SimLoop,
    workloads: Sequence[str] = (),
    faults: Sequence[str] = (),
    without: Collection[str] = (),
    *,
    with_a_long_one: bool | None = None,
    on_draw: Callable[[Drawn], None] = lambda drawn: None,
) -> Run:
    """Run a swarm. Workloads and faults that are not given are drawn; `on_draw` is called with
    them.

    `with_a_long_one`: at the end, one fault lasts for FAULT_S.
    """
    random = loop.random
    drawn = workloads or _some_workloads(random)
    possible = faults or [name for name in FAULTS if name not in without]
    chosen = faults or random.sample(possible, random.randint(1, min(5, len(possible))))
    on_draw(Drawn(drawn, chosen, loop.seed))
    brokers = random.choice([3, 3, 3, 4, 5])
    loop.trace.add("swarm", brokers, *drawn, *chosen)
    has_two = MEDDLER in drawn or not OF_TWO_DIRECTORIES.isdisjoint(chosen)
    log_dirs = (DATA, "/more") if has_two else (DATA,)
    scene = Swarm(loop, brokers, [WORKLOADS[name](random) for name in drawn], log_dirs)
    async with asyncio.timeout(LIMIT_S):
        await scene.set_up()
        at_once = random.choice([1, 1, 2])
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(scene.trouble(chosen, TROUBLE_S))
        has_long_one = random.random() < 0.1
        if has_long_one if with_a_long_one is None else with_a_long_one:
            longest = [name for name in LONGEST if name in possible]
            await asyncio.sleep(SETTLING_S)
            if longest:
                await strike(scene, random.choice(longest), FAULT_S)
        await scene.calm_down()
        await scene.finish()
    faults = sum(isinstance(event, Struck) for event in scene.history)
    return Run(loop.time(), faults, sum(map(is_done, scene.history)))
