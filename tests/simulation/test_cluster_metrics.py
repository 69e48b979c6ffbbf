"""What three brokers measure of their replication while one of them is away, or lags, and after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.admin.descriptions import ConfigChange, ConfigOp, ConfigResource, ResourceType
from kcli.client.cluster import To
from kserver.errors import ErrorCode
from kserver.metrics import catalog
from kserver.metrics.names import Metric
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from tests.simulation.test_controller import the_controller
from tests.simulation.test_controller_operations import QUICK
from tests.simulation.test_replication import producer
from tests.support.loop import SimLoop, host, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.wire_client import milliseconds

SEEDS = seeds(2, 1)
PORT = 9404
PATIENCE_S = 30
RECORDS = 20
MEASURED: dict[Metric, str] = {
    catalog.LEADERS: "leaders",
    catalog.PARTITIONS: "partitions",
    catalog.UNDER_REPLICATED: "under replicated",
    catalog.UNDER_MIN_ISR: "under min isr",
    catalog.AT_MIN_ISR: "at min isr",
    catalog.MAX_LAG: "lag",
    catalog.OFFLINE_PARTITIONS: "offline",
    catalog.PREFERRED_IMBALANCE: "imbalance",
    catalog.ACTIVE_CONTROLLERS: "controllers",
    catalog.CONTROLLER_STATE: "state",
    catalog.ISR_SHRINKS: "shrinks",
    catalog.ISR_EXPANDS: "expands",
    catalog.FAILED_ISR_UPDATES: "failed isr updates",
    catalog.UNCLEAN_ELECTIONS: "unclean elections",
}
NAMES = {metric.exposed(): name for metric, name in MEASURED.items()}
NAMES[f"{catalog.ELECTION_TIMES.exposed()}_count"] = "elections"
ZERO = dict.fromkeys(NAMES.values(), 0)
COUNTERS = ("shrinks", "expands", "elections", "unclean elections")


class Measured:
    """Topic t: each of the brokers leads one partition of three, on all of them; and topic u, on
    `away` alone, so always at its least ISR.  The controller is `controller`, `other` the third."""

    def __init__(self, loop: SimLoop, cluster: SimulatedCluster, admin: Admin, active: int) -> None:
        self.loop = loop
        self.cluster = cluster
        self.admin = admin
        self.controller = active
        self.away, self.other = (id_ for id_ in cluster.brokers if id_ != active)

    async def make_topics(self) -> None:
        a, b, c = self.away, self.other, self.controller
        placed = {0: [a, b, c], 1: [b, c, a], 2: [c, a, b]}
        two = {"min.insync.replicas": "2"}
        await self.admin.create_topics([NewTopic("t", assignments=placed, config=two)])
        await self.admin.create_topics([NewTopic("u", assignments={0: [a]})])
        await self.cluster.until_in_sync("t", 3)

    async def read(self, id_: int) -> dict[str, int]:
        found = await self.scrape(id_)
        return {NAMES[s.name]: int(s.value) for s in found if s.name in NAMES}

    async def scrape(self, id_: int) -> list[Sample]:
        with host("prometheus"):
            reader, writer = await asyncio.open_connection(f"b{id_}", PORT)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        _, _, text = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return [s for family in text_string_to_metric_families(text) for s in family.samples]

    async def values(
        self, id_: int, metric: Metric, suffix: str = "", **labels: str
    ) -> list[float]:
        """The samples of a metric that have these labels."""
        name = metric.exposed() + suffix
        return [
            s.value
            for s in await self.scrape(id_)
            if s.name == name and labels.items() <= s.labels.items()
        ]

    async def value(self, id_: int, metric: Metric, suffix: str = "", **labels: str) -> float:
        (value,) = await self.values(id_, metric, suffix, **labels)
        return value

    async def until(self, id_: int, **expected: int) -> None:
        """That broker tells these; of all else that it told 0."""
        wanted = ZERO | {name.replace("_", " "): value for name, value in expected.items()}
        deadline = self.loop.time() + PATIENCE_S
        while (found := await self.read(id_)) != wanted:
            await asyncio.sleep(0.1)
            assert self.loop.time() < deadline, f"broker {id_}: {found}, not {wanted}"

    def end(self, id_: int) -> int:
        """Of the log of partition 1 there; it is 0 while nobody hosts it."""
        hosted = self.cluster.replicas("t", 1).get(id_)
        return 0 if hosted is None else hosted.log.log_end_offset

    async def elect_preferred(self) -> None:
        peer = await self.admin.cluster.peer(To.CONTROLLER)
        new = versions.request(ApiKey.ELECT_LEADERS, peer.version(ApiKey.ELECT_LEADERS))
        timeout = milliseconds(30_000)
        await peer.call(new(election_type=0, topic_partitions=None, timeout=timeout))

    async def alter(self, resource: ConfigResource, name: str, value: str | None) -> None:
        """None leaves it to its default."""
        change = ConfigChange(name, ConfigOp.DELETE if value is None else ConfigOp.SET, value)
        (refused,) = (await self.admin.incremental_alter_configs({resource: [change]})).values()
        assert refused is None, refused


@asynccontextmanager
async def measured(loop: SimLoop, **settings: object) -> AsyncIterator[Measured]:
    cluster = SimulatedCluster(loop, 3, QUICK | settings)
    for id_, broker in cluster.brokers.items():
        broker.settings["http.listener"] = f"b{id_}:{PORT}"
    await cluster.start()
    async with Admin(cluster.bootstrap, random=loop.random) as admin:
        made = Measured(loop, cluster, admin, await the_controller(cluster, loop))
        await made.make_topics()
        await made.until(made.away, leaders=2, partitions=4, at_min_isr=1)
        await made.until(made.other, leaders=1, partitions=3)
        await made.until(made.controller, leaders=1, partitions=3, controllers=1)
        yield made
    for id_ in sorted(cluster.up):
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


async def killed(loop: SimLoop) -> None:
    async with measured(loop) as m:
        cluster = m.cluster
        await cluster.kill(m.away)
        # The controller takes it out of the in-sync replicas: no leader had to.
        lost = {"leaders": 2, "partitions": 3, "under_replicated": 2, "at_min_isr": 2}
        await m.until(m.other, **lost)
        lost = {"leaders": 1, "partitions": 3, "under_replicated": 1, "at_min_isr": 1}
        of_controller = {"controllers": 1, "elections": 1}
        # t-0 has another leader than its first replica, and u-0 none.
        await m.until(m.controller, **lost, **of_controller, offline=1, imbalance=2)
        await cluster.kill(m.other)
        lost = {"leaders": 3, "partitions": 3, "under_replicated": 3, "under_min_isr": 3}
        of_controller["elections"] = 2
        await m.until(m.controller, **lost, **of_controller, offline=1, imbalance=3)
        await cluster.start(m.other)
        lost = {"leaders": 3, "partitions": 3, "under_replicated": 3, "at_min_isr": 3}
        await m.until(m.controller, **lost, **of_controller, offline=1, imbalance=3, expands=3)
        await m.until(m.other, partitions=3)
        await cluster.start(m.away)
        whole = {"leaders": 3, "partitions": 3}
        of_controller["elections"] = 3
        await m.until(m.controller, **whole, **of_controller, imbalance=2, expands=6)
        await m.until(m.away, leaders=1, partitions=4, at_min_isr=1)
        await m.elect_preferred()
        of_controller["elections"] = 4
        await m.until(m.controller, leaders=1, partitions=3, **of_controller, expands=6)
        await m.until(m.other, leaders=1, partitions=3)
        await m.until(m.away, leaders=2, partitions=4, at_min_isr=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_that_are_killed_are_missed_where_they_are_and_no_longer_once_they_are_back(
    seed: int,
) -> None:
    simulate(killed, seed)


async def cut_off(loop: SimLoop) -> None:
    """Two brokers do not reach each other, while the controller reaches both."""
    async with measured(loop) as m:
        network = loop.network
        network.cut(f"b{m.away}", f"b{m.other}")
        async with producer(loop, m.cluster, acks="1") as sender:
            for partition in range(3):  # of nothing a follower lacks nothing
                await (await sender.send("t", b"x", partition=partition))
        missing = {"under_replicated": 1, "shrinks": 1}
        await m.until(m.away, leaders=2, partitions=4, at_min_isr=2, **missing)
        await m.until(m.other, leaders=1, partitions=3, at_min_isr=1, **missing)
        await m.until(m.controller, leaders=1, partitions=3, controllers=1)
        network.heal(f"b{m.away}", f"b{m.other}")
        await m.until(m.away, leaders=2, partitions=4, at_min_isr=1, shrinks=1, expands=1)
        await m.until(m.other, leaders=1, partitions=3, shrinks=1, expands=1)
        await m.until(m.controller, leaders=1, partitions=3, controllers=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_leaders_count_the_followers_that_leave_and_those_that_come_back(seed: int) -> None:
    simulate(cut_off, seed)


async def held_back(loop: SimLoop) -> None:
    """A follower that may take next to nothing, for replication is throttled."""
    async with measured(loop, **{"replica.fetch.max.bytes": 200}) as m:
        await m.cluster.kill(m.away)
        for_t, for_all = (ResourceType.TOPIC, "t"), (ResourceType.BROKER, "")
        await m.alter(for_t, "follower.replication.throttled.replicas", "*")
        await m.alter(for_all, "follower.replication.throttled.rate", "1")
        async with producer(loop, m.cluster) as sender:
            for _ in range(RECORDS):
                await (await sender.send("t", bytes(100), partition=1))
        await m.cluster.start(m.away)
        deadline = loop.time() + PATIENCE_S
        while not 0 < (await m.read(m.away))["lag"] == RECORDS - m.end(m.away):
            await asyncio.sleep(0.1)
            assert loop.time() < deadline, m.end(m.away)
        assert (await m.read(m.other))["lag"] == (await m.read(m.controller))["lag"] == 0
        await m.alter(for_all, "follower.replication.throttled.rate", None)
        await m.cluster.until_in_sync("t", 3)
        assert (await m.read(m.away))["lag"] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_tells_how_many_records_it_lacks(seed: int) -> None:
    simulate(held_back, seed)


async def queued(loop: SimLoop) -> None:
    """One broker is cut off from the controller while topics are made that it is to be told of."""
    async with measured(loop) as m:

        async def of_each(metric: Metric, name: str = "", **labels: str) -> dict[int, float]:
            """What the controller says of each broker."""
            return {
                int(s.labels["broker_id"]): s.value
                for s in await m.scrape(m.controller)
                if s.name == metric.exposed() + name and labels.items() <= s.labels.items()
            }

        both = {m.away, m.other}
        calm = dict.fromkeys(both, 0)
        assert await of_each(catalog.CHANNEL_QUEUE) == calm
        before = await of_each(catalog.CHANNEL_TIMES, "_count")
        loop.network.cut(f"b{m.controller}", f"b{m.away}")
        placed = {0: [m.other]}
        for name in ("v", "w"):
            await m.admin.create_topics([NewTopic(name, assignments=placed)])
        # Each topic is told of once, and its leader is told to lead it.
        assert (await of_each(catalog.CHANNEL_QUEUE))[m.away] == 2
        cut_s = 3
        await asyncio.sleep(cut_s)
        loop.network.heal(f"b{m.controller}", f"b{m.away}")
        deadline = loop.time() + PATIENCE_S
        while await of_each(catalog.CHANNEL_QUEUE) != calm:
            await asyncio.sleep(0.1)
            assert loop.time() < deadline, await of_each(catalog.CHANNEL_QUEUE)
        after = await of_each(catalog.CHANNEL_TIMES, "_count")
        assert {id_: after[id_] - before[id_] for id_ in both} == {m.away: 2, m.other: 4}
        # The first of them waited for nothing.
        longest_ms = await of_each(catalog.CHANNEL_TIMES, quantile="0.999")
        assert longest_ms[m.away] > 1000 * cut_s
        assert longest_ms[m.other] < 1000
        for id_ in both:
            names = {s.name for s in await m.scrape(id_)}
            assert f"{catalog.CHANNEL_TIMES.exposed()}_count" not in names


@pytest.mark.parametrize("seed", SEEDS)
def test_the_controller_tells_how_long_what_it_says_has_to_wait(seed: int) -> None:
    simulate(queued, seed)


async def fetching(loop: SimLoop) -> None:
    """A fetcher without records fetches twice a second (replica.fetch.wait.max.ms)."""
    async with measured(loop) as m:
        assert await m.value(m.controller, catalog.MIN_FETCH_RATE) < 3
        await asyncio.sleep(600)
        for id_ in m.cluster.brokers:
            assert 1.8 < await m.value(id_, catalog.MIN_FETCH_RATE) < 2.2
        loop.network.cut(f"b{m.away}", f"b{m.other}")
        await asyncio.sleep(120)
        # One of the two fetchers stands still.
        assert await m.value(m.away, catalog.MIN_FETCH_RATE) < 0.5
        assert 1.8 < await m.value(m.controller, catalog.MIN_FETCH_RATE) < 2.2
        loop.network.heal(f"b{m.away}", f"b{m.other}")
        await asyncio.sleep(300)
        assert 1.8 < await m.value(m.away, catalog.MIN_FETCH_RATE) < 2.2
        await m.cluster.kill(m.away)
        await m.cluster.kill(m.other)
        await asyncio.sleep(PATIENCE_S)
        assert await m.value(m.controller, catalog.MIN_FETCH_RATE) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slowest_fetcher_is_seen_to_stand_still(seed: int) -> None:
    simulate(fetching, seed)


async def refused(loop: SimLoop) -> None:
    """A follower that caught up while its broker stops may not join the in-sync replicas."""
    async with measured(loop) as m:
        placed = {0: [m.away, m.other]}
        await m.admin.create_topics([NewTopic("v", assignments=placed)])
        await m.cluster.until_in_sync("v", 1)
        loop.network.cut(f"b{m.away}", f"b{m.other}")
        async with producer(loop, m.cluster, acks="1") as sender:
            for topic, partitions in (("t", 3), ("v", 1)):
                for partition in range(partitions):
                    await (await sender.send(topic, b"x", partition=partition))
        missing = {"under_replicated": 1, "shrinks": 1}
        await m.until(m.other, leaders=1, partitions=4, at_min_isr=1, **missing)
        await m.until(m.away, leaders=3, partitions=5, at_min_isr=3, under_replicated=2, shrinks=2)
        # No other replica of topic v is in sync: the broker asks again, 5 s later, before it stops.
        stopping = loop.create_task(m.cluster.stop(m.away))
        deadline = loop.time() + PATIENCE_S
        while await m.value(m.away, catalog.LEADERS) != 2:  # it keeps v and u
            await asyncio.sleep(0.1)
            assert loop.time() < deadline
        loop.network.heal(f"b{m.away}", f"b{m.other}")
        while not await m.value(m.other, catalog.FAILED_ISR_UPDATES):
            await asyncio.sleep(0.1)
            assert loop.time() < deadline
        assert await m.value(m.other, catalog.ISR_EXPANDS) == 0
        await stopping
        assert loop.time() < deadline
        refusals = await m.value(m.other, catalog.FAILED_ISR_UPDATES)
        await asyncio.sleep(PATIENCE_S)
        assert await m.value(m.other, catalog.FAILED_ISR_UPDATES) == refusals


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_of_the_in_sync_replicas_that_the_controller_refuses_is_counted(seed: int) -> None:
    simulate(refused, seed)


async def lagging(loop: SimLoop) -> None:
    """The lag of each partition, until its fetcher has no leader any more."""
    async with measured(loop, **{"replica.fetch.max.bytes": 200}) as m:
        placed = {0: [m.other, m.away]}
        await m.admin.create_topics([NewTopic(name, assignments=placed) for name in ("v", "w")])
        labels = {"topic": "v", "partition": "0"}
        for_w = {"topic": "w", "partition": "0"}

        async def until_lags(values: list[int], **labels: str) -> None:
            deadline = loop.time() + PATIENCE_S
            while await m.values(m.away, catalog.FETCHER_LAG, **labels) != values:
                await asyncio.sleep(0.1)
                assert loop.time() < deadline

        await until_lags([0], **labels)
        await until_lags([0], **for_w)
        await m.admin.delete_topics(["w"])
        await until_lags([], **for_w)
        # Its fetcher goes on with another.
        assert await m.values(m.away, catalog.FETCHER_LAG, **labels) == [0]
        assert await m.values(m.other, catalog.FETCHER_LAG, **labels) == []
        await m.cluster.kill(m.away)
        for_v, for_all = (ResourceType.TOPIC, "v"), (ResourceType.BROKER, "")
        await m.alter(for_v, "follower.replication.throttled.replicas", "*")
        await m.alter(for_all, "follower.replication.throttled.rate", "1")
        async with producer(loop, m.cluster) as sender:
            for _ in range(RECORDS):
                await (await sender.send("v", bytes(100), partition=0))
        await m.cluster.start(m.away)
        deadline = loop.time() + PATIENCE_S

        def lacks() -> int:
            hosted = m.cluster.replicas("v", 0).get(m.away)
            return 0 if hosted is None else RECORDS - hosted.log.log_end_offset

        while not 0 < lacks() < RECORDS:
            await asyncio.sleep(0.1)
            assert loop.time() < deadline
        assert await m.values(m.away, catalog.FETCHER_LAG, **labels) == [lacks()]
        assert await m.value(m.away, catalog.MAX_LAG) == lacks()
        (named,) = {
            s.labels["clientId"]
            for s in await m.scrape(m.away)
            if s.name == catalog.FETCHER_LAG.exposed() and labels.items() <= s.labels.items()
        }
        assert named == f"broker-{m.away}-fetcher-0"
        await m.cluster.kill(m.other)
        await until_lags([], **labels)
        assert await m.value(m.away, catalog.MAX_LAG) == 0
        await m.cluster.start(m.other)
        await m.alter(for_all, "follower.replication.throttled.rate", None)
        await m.cluster.until_in_sync("v", 1)
        assert await m.values(m.away, catalog.FETCHER_LAG, **labels) == [0]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lag_of_a_partition_is_gone_with_its_leader(seed: int) -> None:
    simulate(lagging, seed)


async def held_up(loop: SimLoop) -> None:
    """ZooKeeper does not respond to the controller for a while."""
    async with measured(loop) as m:
        peers = [await m.cluster.brokers[m.controller].connect() for _ in range(5)]
        new = versions.request(ApiKey.CREATE_TOPICS, peers[0].version(ApiKey.CREATE_TOPICS))

        async def create(number: int, peer: Peer) -> None:
            topic = new.topics(name=f"v{number}", num_partitions=1, replication_factor=1)
            (made,) = (await peer.call(new(topics=[topic], timeout=milliseconds(30_000)))).topics
            assert made.error_code is ErrorCode.none

        queue, times = catalog.EVENT_QUEUE, catalog.EVENT_QUEUE_TIMES
        before = await m.value(m.controller, times, "_count")
        longest_ms = await m.value(m.controller, times, quantile="0.999")
        assert (await m.value(m.controller, queue), longest_ms < 1000) == (0, True)
        m.cluster.zookeeper(m.controller).silence()
        creating = asyncio.gather(*(create(*one) for one in enumerate(peers)))
        held_s = 2
        await asyncio.sleep(held_s)
        # The first is being done, and the others wait.
        assert await m.value(m.controller, queue) == len(peers) - 1
        assert {await m.value(id_, queue) for id_ in (m.away, m.other)} == {0}
        m.cluster.zookeeper(m.controller).heal()
        await creating
        deadline = loop.time() + PATIENCE_S
        while await m.value(m.controller, queue):
            await asyncio.sleep(0.1)
            assert loop.time() < deadline
        assert await m.value(m.controller, times, "_count") >= before + len(peers)
        assert await m.value(m.controller, times, quantile="0.999") > 1000 * held_s
        for id_ in (m.away, m.other):
            assert await m.value(id_, times, quantile="0.999") < 1000
        for peer in peers:
            peer.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_events_that_wait_for_the_controller_are_counted_and_timed(seed: int) -> None:
    simulate(held_up, seed)
