"""A broker that has registered before its port accepts connections, and one that comes back at
another port.

Until it accepts connections its partitions are led by others; soon after, it leads and follows
again.  Meanwhile each partition's leader changes a few times at most, and whoever writes with
acks=all waits only briefly, also while the controller alone cannot reach a broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import ProducerConfig
from kcli.client.producer.producer import Producer
from kserver import znodes
from kserver.model import LeaderAndIsr
from kserver.world.zookeeper import WatchEvent
from tests.simulation.test_controller import controller
from tests.simulation.test_controller_operations import QUICK
from tests.support.loop import SimLoop, host, simulate
from tests.support.seeds import seeds
from tests.support.simulated import PORT
from tests.support.simulated_cluster import SETTINGS, SimulatedCluster

SEEDS = seeds(2, 1)
BROKERS = (1, 2, 3)
PLACED = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
SESSION_S = int(str(SETTINGS["zookeeper.session.timeout.ms"])) / 1000
LATE_S = (0.5, 2 * SESSION_S)
ACKNOWLEDGED_S = 8.0
"""For a write, while two of three brokers serve."""
WELL_S = 15.0
"""Until every replica is in sync, once every port accepts connections."""
MAX_CHANGES = 3
"""Changes of a partition's leader: away from the broker, back to it, and one more."""
MAX_EPOCHS = 8
"""Leader epochs, which begin with changes of the ISR too."""
MAX_CONTROLLERS = 3
MAX_DEPOSED = 6
"""Each of three brokers may find each other one gone, and does not depose it again soon."""
PATIENCE_S = 120.0
FEW = {"transaction.state.log.num.partitions": 2}
WRITER = {
    "acks": "all",
    "linger.ms": "0",
    "max.block.ms": "60000",
    "delivery.timeout.ms": "60000",
}


class Watched:
    """A cluster whose elections are counted while two producers write."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.random = Random(loop.random.random())
        balance = {"auto.leader.rebalance.enable": self.random.choice(["true", "false"])}
        settings = QUICK | FEW | balance
        self.cluster = SimulatedCluster(loop, len(BROKERS), settings)
        self.states: dict[int, list[LeaderAndIsr]] = {}
        self.controllers = 0
        self.waited_s = 0.0
        """The longest time that a write waited for its acknowledgement."""
        self.writes = 0
        self._writing: list[asyncio.Task[None]] = []
        self._is_over = asyncio.Event()

    async def set_up(self) -> None:
        await self.cluster.start()
        async with self.admin() as admin:
            topic = NewTopic("t", assignments=PLACED, config={"min.insync.replicas": "2"})
            (made,) = (await admin.create_topics([topic])).values()
            assert not isinstance(made, Exception), made
        await self.cluster.until_in_sync("t", len(PLACED))
        await self._begin({})
        await self._begin({"transactional.id": "x"})
        self.cluster.ensemble.on_change = self._changed

    def admin(self) -> Admin:
        return Admin(self.cluster.bootstrap, random=Random(self.random.random()))

    async def _begin(self, settings: dict[str, str]) -> None:
        writes = self.writes
        self._writing.append(self.loop.create_task(self._write(settings)))
        await self.until(lambda: self.writes >= writes + 3, PATIENCE_S)

    async def _write(self, settings: dict[str, str]) -> None:
        config = ProducerConfig.of(self.cluster.bootstrap | WRITER | settings)
        now_ms = self.cluster.ensemble.clock.now_ms
        async with Producer(config, now_ms=now_ms, random=Random(self.random.random())) as producer:
            if settings:
                await producer.init_transactions()
            while not self._is_over.is_set():
                began_s = self.loop.time()
                if settings:
                    await producer.begin_transaction()
                for partition in PLACED:
                    await (await producer.send("t", b"x", partition=partition))
                if settings:
                    await producer.commit_transaction()
                self.writes += 1
                self.waited_s = max(self.waited_s, self.loop.time() - began_s)
                await asyncio.sleep(self.random.expovariate(3))

    def _changed(self, event: WatchEvent) -> None:
        node = self.cluster.ensemble.tree.nodes.get(event.path)
        if event.path == znodes.CONTROLLER and node is not None:
            self.controllers += 1
        for partition in PLACED:
            if event.path == znodes.state_path("t", partition):
                self.states.setdefault(partition, []).append(self.state(partition))

    def state(self, partition: int) -> LeaderAndIsr:
        node = self.cluster.ensemble.tree.node(znodes.state_path("t", partition))
        return znodes.decode_state("t", partition, node.data, node.version)

    async def until(self, holds: Callable[[], bool], patience_s: float) -> None:
        deadline = self.loop.time() + patience_s
        while not holds():
            await asyncio.sleep(0.01)
            if self.loop.time() > deadline:
                raise AssertionError(f"not in {patience_s} s:\n{self.cluster.description()}")

    async def start_late(self, id_: int) -> None:
        """Start the broker, whose port refuses connections for a while after it has registered."""
        network, name = self.loop.network, f"b{id_}"
        network.refuse(name)
        starting = self.loop.create_task(self.cluster.start(id_))
        registered = self.registered_since(id_)
        await self.until(registered, PATIENCE_S)
        await asyncio.sleep(self.random.uniform(*LATE_S))
        network.accept(name)
        await starting

    def registered_since(self, id_: int) -> Callable[[], bool]:
        nodes, path = self.cluster.ensemble.tree.nodes, znodes.broker_path(id_)
        before = nodes.get(path)

        def is_registered() -> bool:
            node = nodes.get(path)
            return node is not None and (before is None or node.czxid != before.czxid)

        return is_registered

    async def end(
        self, max_changes: int = MAX_CHANGES, max_controllers: int = MAX_CONTROLLERS
    ) -> None:
        """Check that the cluster is soon well again, that it was not restless, and that it stays
        calm."""
        async with asyncio.timeout(WELL_S):
            await self.cluster.until_all_in_isr()
        writes = self.writes
        await self.until(lambda: self.writes >= writes + 6, WELL_S)
        for id_ in BROKERS:
            broker = self.cluster.brokers[id_].broker
            assert broker is not None
            known = broker._parts.metadata.current.brokers
            ports = {other: info.endpoints["PLAINTEXT"].port for other, info in known.items()}
            assert ports == {other: self.cluster.brokers[other].port for other in BROKERS}
        for partition, states in self.states.items():
            pairs = itertools.pairwise(states)
            changes = sum(a.leader != b.leader for a, b in pairs)
            assert changes <= max_changes, f"t-{partition}: {states}"
            assert states[-1].leader_epoch - states[0].leader_epoch <= MAX_EPOCHS, states
        assert self.controllers <= max_controllers
        self.cluster.check()
        await asyncio.sleep(6)  # a rebalance may be due
        before = {p: self.state(p).leader_epoch for p in PLACED}, self.controllers
        await asyncio.sleep(2 * SESSION_S)
        assert before == ({p: self.state(p).leader_epoch for p in PLACED}, self.controllers)
        self._is_over.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._writing)
        await self.cluster.until_all_in_sync()
        for id_ in BROKERS:
            await self.cluster.stop(id_)
        assert not [bug for broker in self.cluster.brokers.values() for bug in broker.bugs]

    def chosen(self, *, is_controller: bool) -> int:
        active = controller(self.cluster)
        assert active is not None
        if is_controller:
            return active
        return self.random.choice([id_ for id_ in BROKERS if id_ != active])

    async def leave(self, id_: int) -> None:
        leave: Callable[[int], Awaitable[None]] = self.random.choice(
            [self.cluster.kill, self.cluster.stop]
        )
        await leave(id_)
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, 1.5 * SESSION_S))


async def late(loop: SimLoop, *, was_controller: bool) -> None:
    watched = Watched(loop)
    await watched.set_up()
    id_ = watched.chosen(is_controller=was_controller)
    await watched.leave(id_)
    await watched.until(lambda: controller(watched.cluster) is not None, PATIENCE_S)
    await watched.start_late(id_)
    await watched.end()
    assert watched.waited_s < ACKNOWLEDGED_S, watched.waited_s


async def hidden(loop: SimLoop) -> None:
    """The broker that restarts accepts connections, but for those of the controller."""
    watched = Watched(loop)
    await watched.set_up()
    active = watched.chosen(is_controller=True)
    id_ = watched.chosen(is_controller=False)
    await watched.leave(id_)
    loop.network.refuse(f"b{id_}", f"b{active}")
    starting = loop.create_task(watched.cluster.start(id_))
    await watched.until(watched.registered_since(id_), PATIENCE_S)
    for _ in range(3):
        writes = watched.writes
        await watched.until(lambda before=writes: watched.writes >= before + 6, ACKNOWLEDGED_S)
        async with Admin(watched.cluster.bootstrap, random=Random(loop.random.random())) as admin:
            assert {node.id for node in await admin.nodes()} >= {*BROKERS} - {id_}
            (topic,) = await admin.list_topics(include_internal=False)
            assert topic.name == "t"
    loop.network.accept(f"b{id_}", f"b{active}")
    await starting
    await watched.end()
    assert watched.waited_s < ACKNOWLEDGED_S, watched.waited_s


async def all_late(loop: SimLoop) -> None:
    """The first to register is the controller, which the others find gone."""
    watched = Watched(loop)
    await watched.set_up()
    for id_ in BROKERS:
        await watched.cluster.kill(id_)
    if watched.random.random() < 0.5:
        await asyncio.sleep(watched.random.uniform(0, 1.5 * SESSION_S))
    await asyncio.gather(*map(watched.start_late, BROKERS))
    await watched.end(2 * MAX_CHANGES, 1 + MAX_DEPOSED)


async def moved(loop: SimLoop, *, was_controller: bool, is_late: bool) -> None:
    """To another port, and back again.  The old port refuses connections, or does not answer."""
    watched = Watched(loop)
    await watched.set_up()
    id_ = watched.chosen(is_controller=was_controller)
    broker = watched.cluster.brokers[id_]
    for port in (PORT + 1, PORT):
        watched.states.clear()
        watched.controllers = 0
        await watched.leave(id_)
        with contextlib.ExitStack() as stack:
            if watched.random.random() < 0.5:
                with host(broker.name):
                    mute = loop.network.listen(asyncio.Protocol, broker.name, broker.port)
                stack.callback(mute.close)
            broker.port = port
            await (watched.start_late(id_) if is_late else watched.cluster.start(id_))
            async with asyncio.timeout(WELL_S):
                await watched.cluster.until_all_in_isr()
            async with Admin(
                {"bootstrap.servers": f"{broker.name}:{port}"}, random=loop.random
            ) as admin:
                assert {node.id for node in await admin.nodes()} == set(BROKERS)
    await watched.end()
    assert watched.waited_s < ACKNOWLEDGED_S, watched.waited_s


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("was_controller", [True, False], ids=["controller", "other"])
def test_a_broker_that_accepts_connections_late_is_back_soon_after(
    was_controller: bool, seed: int
) -> None:
    simulate(lambda loop: late(loop, was_controller=was_controller), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_do_not_stay_at_a_broker_that_the_controller_cannot_reach(seed: int) -> None:
    simulate(hidden, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_whose_brokers_all_accept_connections_late_comes_up(seed: int) -> None:
    simulate(all_late, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_late", [False, True], ids=["", "late"])
@pytest.mark.parametrize("was_controller", [True, False], ids=["controller", "other"])
def test_a_broker_that_comes_back_at_another_port_is_found_there(
    was_controller: bool, is_late: bool, seed: int
) -> None:
    simulate(lambda loop: moved(loop, was_controller=was_controller, is_late=is_late), seed)
