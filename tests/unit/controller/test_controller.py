"""The controller over a simulated ZooKeeper: what is answered holds, whatever fails when."""

import asyncio
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.controller.event_queue import MAX_WAITING_OPERATIONS
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.model import LeaderAndIsr
from kserver.wire.control import FULL
from kserver.world import World
from kserver.world.zookeeper import NO_SESSION, SetData
from tests.support.clock import SimClock
from tests.support.controlled_broker import ControlledBroker
from tests.support.disk import SimDisk
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble


class Broker(ControlledBroker):
    """One life of a broker, as far as its controller sees it."""

    def __init__(self, ensemble, broker_id=1, **config):
        loop = ensemble.loop
        clock = SimClock(loop)
        world = World(clock, SimDisk(loop.random, clock), ensemble.client(), loop.random, "boot")
        super().__init__(world, BrokerConfig(**config), broker_id)

    async def create(self, *topics, validate_only=False):
        return await self.controller.create_topics(topics, validate_only=validate_only)

    async def grow(self, *requests, validate_only=False):
        return await self.controller.create_partitions(requests, validate_only=validate_only)

    async def delete(self, *names):
        return await self.controller.delete_topics(names)


def scenario(test):
    """Run an `async def test(ensemble)` in a simulation."""

    def run():
        async def main(loop):
            await test(SimEnsemble(loop, SimClock(loop)))

        simulate(main, seed=1)

    run.__name__ = test.__name__
    return run


def codes(results):
    return [r.code.name if isinstance(r, KafkaError) else "ok" for r in results]


def paths(ensemble, under):
    return sorted(p for p in ensemble.tree.nodes if p.startswith(under + "/"))


@scenario
async def test_a_restart_finds_everything_and_leads_it_in_a_new_epoch(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(
            CreatableTopic("a", 2, config={"retention.ms": "5"}), CreatableTopic("b")
        )
        before = broker.metadata.current
    async with Broker(ensemble) as broker:
        now = broker.metadata.current
        assert now.controller == 1
        assert now.cluster_id == before.cluster_id
        assert set(now.topics) == {"a", "b"}
        assert {t.id for t in now.topics.values()} == {t.id for t in before.topics.values()}
        assert now.topics["a"].config == {"retention.ms": "5"}
        assert [p.leader_epoch for p in now.topics["a"].partitions] == [1, 1]
        for partition in now.topics["a"].partitions:
            data, stat = await broker.zookeeper.get(znodes.state_path("a", partition.partition))
            state = znodes.decode_state("a", partition.partition, data, stat.version)
            assert state.leader_epoch == 1
            assert state.partition_epoch == partition.partition_epoch
            assert state.controller_epoch == 2


@scenario
async def test_where_it_is_allowed_a_replica_out_of_sync_leads(ensemble):
    path = znodes.state_path("a", 0)
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("a"))
        away = znodes.encode_state(LeaderAndIsr(2, 4, (2,), 1))
        await broker.zookeeper.set(path, away)
    async with Broker(ensemble) as broker:
        (partition,) = broker.topics["a"].partitions
        assert (partition.leader, partition.leader_epoch, partition.isr) == (-1, 5, (2,))
        data, stat = await broker.zookeeper.get(path)
        assert znodes.decode_state("a", 0, data, stat.version).leader == -1
        config = znodes.encode_config({"unclean.leader.election.enable": "true"})
        await broker.zookeeper.set(znodes.config_path(znodes.TOPIC_CONFIGS, "a"), config)
    async with Broker(ensemble) as broker:
        (partition,) = broker.topics["a"].partitions
        assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 6, (1,))
        data, stat = await broker.zookeeper.get(path)
        assert b'"leader_recovery_state":1' in data
        state = znodes.decode_state("a", 0, data, stat.version)
        assert (state.leader, state.isr, state.is_recovering) == (1, (1,), True)


@scenario
async def test_each_start_is_a_new_controller_epoch(ensemble):
    for epoch in (1, 2, 3):
        async with Broker(ensemble) as broker:
            data, stat = await broker.zookeeper.get("/controller")
            assert znodes.decode_controller(data) == 1
            assert stat.ephemeral_owner == broker.zookeeper.session_id
            data, _ = await broker.zookeeper.get("/controller_epoch")
            assert znodes.decode_controller_epoch(data) == epoch


@scenario
async def test_a_topic_without_an_id_gets_one(ensemble):
    async with Broker(ensemble) as broker:
        await broker.zookeeper.create(
            "/brokers/topics/old", b'{"version":1,"partitions":{"0":[1],"1":[1]}}'
        )
    async with Broker(ensemble) as broker:
        topic = broker.topics["old"]
        assert [(p.leader, p.leader_epoch) for p in topic.partitions] == [(1, 0), (1, 0)]
        data, _ = await broker.zookeeper.get("/brokers/topics/old")
        assert znodes.decode_topic("old", data).topic_id == topic.id
        assert broker.metadata.current.topic_by_id(topic.id) == topic


@scenario
async def test_a_start_finishes_deletions(ensemble):
    async with Broker(ensemble) as broker:
        before = set(ensemble.tree.nodes)
        await broker.create(CreatableTopic("foo", 3))
        for path in ("/brokers/topics/foo/partitions/1/state", "/brokers/topics/foo/partitions/1"):
            await broker.zookeeper.delete(path)
        await broker.zookeeper.create("/admin/delete_topics/foo")
        await broker.zookeeper.create("/admin/delete_topics/never-there")
    async with Broker(ensemble) as broker:
        assert broker.topics == {}
        assert set(ensemble.tree.nodes) == before


@scenario
async def test_a_restart_waits_for_the_session_that_a_crash_left(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("foo"))
        await broker.kill()
        async with Broker(ensemble) as again:
            assert set(again.topics) == {"foo"}
            assert 15 < ensemble.loop.time() < 25


@scenario
async def test_a_second_broker_is_no_controller_until_the_first_is_gone(ensemble):
    async with Broker(ensemble, broker_id=1) as first, Broker(ensemble, broker_id=2) as second:
        await first.create(CreatableTopic("foo", assignments={0: [1]}))
        assert codes(await second.create(CreatableTopic("bar"))) == ["not_controller"]
        assert second.said == []
        await first.kill()
        began_s = ensemble.loop.time()
        while not second.controller.is_active:
            await asyncio.sleep(0.1)
        assert 5 < ensemble.loop.time() - began_s < 25
        assert codes(await second.create(CreatableTopic("bar"))) == ["ok"]
        assert set(second.topics) == {"foo", "bar"}
        assert second.topics["foo"].partitions[0].leader == -1


@scenario
async def test_who_finds_another_in_his_place_resigns_and_follows(ensemble):
    async with Broker(ensemble) as broker:
        other = ensemble.client()
        await other.start()
        await other.delete("/controller")
        await other.create("/controller", znodes.encode_controller(2, 0), ephemeral=True)
        while broker.controller.is_active:
            await asyncio.sleep(0.01)
        assert codes(await broker.create(CreatableTopic("foo"))) == ["not_controller"]
        await other.close()
        while not broker.controller.is_active:
            await asyncio.sleep(0.01)
        assert codes(await broker.create(CreatableTopic("foo"))) == ["ok"]


@scenario
async def test_a_lost_session_is_claimed_again_before_anything_else_is_served(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("foo"))
        broker.zookeeper.expire()
        results = await broker.create(CreatableTopic("bar"))
        while codes(results) == ["not_controller"]:
            await asyncio.sleep(0.01)
            results = await broker.create(CreatableTopic("bar"))
        assert set(broker.topics) == {"foo", "bar"}
        assert broker.topics["foo"].partitions[0].leader_epoch == 1
        assert broker.said == [
            ("LeaderAndIsr", {"foo"}),
            ("UpdateMetadata", {"foo"}),
            ("UpdateMetadata", {"foo"}),
            ("LeaderAndIsr", {"foo"}),
            ("LeaderAndIsr", {"bar"}),
            ("UpdateMetadata", {"bar"}),
        ]
        assert [broker.requests[n].type for n in (0, 3, 4)] == [0, FULL, 0]
        _, stat = await broker.zookeeper.get("/controller")
        assert stat.ephemeral_owner == broker.zookeeper.session_id
        assert (await broker.zookeeper.get("/controller_epoch"))[0] == b"2"


class Witness(Broker):
    """Keeps what was said without /controller, though the session that is known was alive."""

    def __init__(self, ensemble):
        super().__init__(ensemble)
        self.ensemble = ensemble
        self.unfounded = []

    async def _publish(self, request):
        session, node = self.zookeeper.session_id, self.ensemble.tree.nodes.get("/controller")
        if self.ensemble.has_session(session) and (node is None or node.owner != session):
            self.unfounded.append(request)
        return await super()._publish(request)


@pytest.mark.parametrize("seed", range(40))
def test_a_session_that_ends_while_topics_are_read_says_nothing(seed):
    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        async with Broker(ensemble) as broker:
            await broker.create(CreatableTopic("foo", 3), CreatableTopic("bar", 3))
        broker = Witness(ensemble)

        def changed(event):
            if event.path == znodes.CONTROLLER and loop.random.random() < 0.7:
                loop.call_later(loop.random.uniform(0, 0.02), broker.zookeeper.expire)

        ensemble.on_change = changed
        async with broker:
            async with asyncio.timeout(600):
                await broker.until_active()
                while set(broker.topics) != {"foo", "bar"}:
                    await asyncio.sleep(0.1)
            ensemble.on_change = lambda event: None
        assert broker.unfounded == []

    simulate(main, seed)


@scenario
async def test_a_topic_that_a_broker_of_apache_makes_by_itself_is_led(ensemble):
    """With its assignment and its settings alone, and no partition's state."""
    async with Broker(ensemble) as broker:
        apache = ensemble.client()
        await apache.start()
        made = znodes.TopicAssignment(UUID(int=7), {0: (1,), 1: (1,)})
        await apache.create("/config/topics/theirs", znodes.encode_config({"retention.ms": "7"}))
        await apache.create("/brokers/topics/theirs", znodes.encode_topic(made))
        while "theirs" not in broker.topics:
            await asyncio.sleep(0.01)
        topic = broker.topics["theirs"]
        assert (topic.id, topic.config) == (UUID(int=7), {"retention.ms": "7"})
        assert [(p.leader, p.leader_epoch, p.isr) for p in topic.partitions] == [(1, 0, (1,))] * 2
        assert len([p for p in paths(ensemble, "/brokers/topics/theirs") if "state" in p]) == 2
        leaderships = broker.requests[0].topic_states[0].partition_states
        assert [state.is_new for state in leaderships] == [True, True]
        # What makes no sense stops nobody.
        await apache.create("/brokers/topics/broken", b"{}")
        assert codes(await broker.create(CreatableTopic("foo"))) == ["ok"]
        await apache.close()


@scenario
async def test_a_controller_that_was_replaced_writes_nothing(ensemble):
    async with Broker(ensemble) as broker:
        other = ensemble.client()
        await other.start()
        await other.set("/controller_epoch", b"7")
        before = dict(ensemble.tree.nodes)
        assert codes(await broker.create(CreatableTopic("foo"))) == ["not_controller"]
        assert ensemble.tree.nodes == before
        assert broker.topics == {}


@pytest.mark.parametrize("data", [b"many", None])
def test_an_epoch_that_is_overwritten_or_deleted_under_its_controller_goes_on(data):
    @scenario
    async def test(ensemble):
        async with Broker(ensemble) as broker:
            await broker.create(CreatableTopic("foo"))
            other = ensemble.client()
            await other.start()
            if data is None:
                await other.delete(znodes.CONTROLLER_EPOCH)
            else:
                await other.set(znodes.CONTROLLER_EPOCH, data)
            assert codes(await broker.create(CreatableTopic("bar"))) != ["ok"]
            async with asyncio.timeout(60):
                while codes(await broker.create(CreatableTopic("bar"))) != ["ok"]:
                    await asyncio.sleep(0.1)
            epoch, _ = await other.get(znodes.CONTROLLER_EPOCH)
            assert znodes.decode_controller_epoch(epoch) > 1
            assert set(broker.topics) == {"foo", "bar"}
            await other.close()

    test()


@scenario
async def test_a_controller_that_was_replaced_leads_nothing_that_it_finds(ensemble):
    async with Broker(ensemble) as broker:
        other = ensemble.client()
        await other.start()
        await other.set("/controller_epoch", b"7")
        made = znodes.TopicAssignment(UUID(int=7), {0: (1,)})
        await other.create("/brokers/topics/theirs", znodes.encode_topic(made))
        path = znodes.state_path("theirs", 0)
        while path not in ensemble.tree.nodes:
            await asyncio.sleep(0.01)
        # It holds /controller still, and has read all again.
        state = znodes.decode_state("theirs", 0, ensemble.tree.nodes[path].data, 0)
        assert state.controller_epoch == 7
        await broker.until_active()
        await other.close()


@scenario
async def test_states_that_another_client_writes_again_and_again_are_read_until_it_ends(ensemble):
    """Else /controller is held, and there is no controller."""
    path = znodes.state_path("foo", 0)
    conflicts = iter(range(5))

    def written_before(client, ops):
        if any(op.path == path for op in ops) and next(conflicts, None) is not None:
            ensemble.apply([SetData(path, ensemble.tree.nodes[path].data)], NO_SESSION)

    async with Broker(ensemble, 1) as first, Broker(ensemble, 2) as second:
        await first.create(CreatableTopic("foo", assignments={0: [2]}))
        ensemble.on_write = written_before
        await second.kill()
        async with asyncio.timeout(60):
            while first.topics["foo"].partitions[0].leader != -1:
                await asyncio.sleep(0.1)
        assert next(conflicts, None) is None


@scenario
async def test_topics_that_go_while_they_are_read_keep_nobody_from_starting(ensemble):
    other = ensemble.client()
    await other.start()
    await other.create("/brokers/topics/foo", make_parents=True)
    await other.delete("/brokers/topics/foo")

    async def come_and_go():
        made = znodes.encode_topic(znodes.TopicAssignment(UUID(int=7), {0: (9,)}))
        while True:
            await other.create("/brokers/topics/foo", made)
            await other.delete("/brokers/topics/foo")

    coming = asyncio.create_task(come_and_go())
    for _ in range(20):
        async with Broker(ensemble) as broker:
            await broker.until_active()
    coming.cancel()
    await other.close()


@scenario
async def test_a_cut_connection_only_delays(ensemble):
    async with Broker(ensemble) as broker:
        made = asyncio.create_task(broker.create(CreatableTopic("foo", 2)))
        await asyncio.sleep(0)
        broker.zookeeper.cut()
        ensemble.loop.call_later(5, broker.zookeeper.heal)
        assert codes(await made) == ["ok"]
        assert 5 < ensemble.loop.time() < 6


@scenario
async def test_only_so_many_operations_wait(ensemble):
    async with Broker(ensemble) as broker:
        broker.zookeeper.cut()
        waiting = [
            asyncio.create_task(broker.create(CreatableTopic(f"t{n}")))
            for n in range(MAX_WAITING_OPERATIONS + 5)
        ]
        await asyncio.sleep(1)
        refused = [task for task in waiting if task.done()]
        assert codes(refused[0].result()) == ["request_timed_out"]
        assert 0 < len(refused) <= 5
        for task in waiting:
            task.cancel()
        broker.zookeeper.heal()


@scenario
async def test_who_waits_when_the_controller_stops_is_let_go(ensemble):
    async with Broker(ensemble) as broker:
        broker.zookeeper.cut()
        waiting = [asyncio.create_task(broker.create(CreatableTopic(f"t{n}"))) for n in range(3)]
        await asyncio.sleep(1)
    await asyncio.wait(waiting)
    assert all(task.cancelled() for task in waiting)
    assert codes(await broker.create(CreatableTopic("foo"))) == ["not_controller"]


NAMES = st.sampled_from(["a", "b", "c"])
COUNTS = st.integers(1, 4)
STEPS = st.lists(
    st.tuples(st.just("create"), NAMES, COUNTS)
    | st.tuples(st.just("grow"), NAMES, COUNTS)
    | st.tuples(st.just("delete"), NAMES, st.just(0)),
    min_size=1,
    max_size=8,
)
FAULTS = st.lists(
    st.tuples(st.sampled_from(["cut", "expire", "kill"]), st.floats(0, 0.03)), max_size=3
)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1000), st.lists(st.tuples(STEPS, FAULTS), min_size=1, max_size=3))
def test_what_was_answered_holds_and_topics_are_whole_or_not_there(seed, lives):
    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        possible = {"a": {0}, "b": {0}, "c": {0}}
        for steps, faults in lives:
            await live(ensemble, steps, faults, possible)
        async with Broker(ensemble) as broker:
            await broker.until_active()
            check(ensemble, broker, possible)

    simulate(main, seed)


@pytest.mark.parametrize("action", ["create", "delete"])
def test_a_topic_of_several_writes_survives_a_crash_between_them(action):
    """501 partitions take two writes."""

    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        if action == "delete":
            async with Broker(ensemble) as broker:
                await broker.create(CreatableTopic("a", 501))
        whole = len(paths(ensemble, "/brokers/topics"))
        broker = Broker(ensemble)
        await broker.__aenter__()
        call = broker.create(CreatableTopic("a", 501)) if action == "create" else broker.delete("a")
        running = asyncio.create_task(call)
        while len(paths(ensemble, "/brokers/topics")) == whole:
            await asyncio.sleep(0.0001)
        assert 0 < len(paths(ensemble, "/brokers/topics")) < 1004
        await broker.kill()
        assert running.cancelled()
        async with Broker(ensemble) as broker:
            await broker.until_active()
            check(ensemble, broker, {"a": {501 if action == "create" else 0}})

    simulate(main, seed=1)


async def live(ensemble, steps, faults, possible):
    """One broker's life under faults; keeps how many partitions each topic may have, 0 for none."""
    broker = Broker(ensemble)
    await broker.__aenter__()
    dead = asyncio.Event()
    for fault, delay_s in faults:
        ensemble.loop.call_later(delay_s, inflict, fault, broker.zookeeper, dead)
    for action, name, count in steps:
        calls = {
            "create": lambda name=name, count=count: broker.create(CreatableTopic(name, count)),
            "grow": lambda name=name, count=count: broker.grow(CreatablePartitions(name, count)),
            "delete": lambda name=name: broker.delete(name),
        }
        step = asyncio.create_task(calls[action]())
        death = asyncio.create_task(dead.wait())
        await asyncio.wait([step, death], return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        before = possible[name]
        if step.done():
            (result,) = step.result()
            possible[name] = outcome(action, count, before, result)
        else:
            possible[name] = before | outcome(action, count, before, None)
            break
    await broker.kill()


def inflict(fault, zookeeper, dead):
    if fault == "cut":
        zookeeper.cut()
        zookeeper.heal()
    elif fault == "expire":
        zookeeper.expire()
    else:
        zookeeper.kill()
        dead.set()


def outcome(action, count, before, result):
    """The partitions a topic may have after an answer."""
    if not isinstance(result, KafkaError):
        return {count}
    match result.code:
        case ErrorCode.topic_already_exists | ErrorCode.invalid_partitions:
            return before - {0}
        case ErrorCode.unknown_topic_or_partition:
            return before & {0}
        case ErrorCode.not_controller:
            return before | {count}
    raise result


def check(ensemble, broker, possible):
    assert {n: len(t.partitions) for n, t in broker.topics.items()}.keys() <= possible.keys()
    for name, counts in possible.items():
        topic = broker.topics.get(name)
        assert (len(topic.partitions) if topic else 0) in counts, name
    wanted = set()
    for name, topic in broker.topics.items():
        wanted |= {znodes.topic_path(name), znodes.partitions_path(name)}
        for p in topic.partitions:
            wanted |= {
                znodes.partition_path(name, p.partition),
                znodes.state_path(name, p.partition),
            }
            node = ensemble.tree.nodes[znodes.state_path(name, p.partition)]
            state = znodes.decode_state(name, p.partition, node.data, node.stat.version)
            assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (
                p.leader,
                p.leader_epoch,
                p.isr,
                p.partition_epoch,
            )
    assert set(paths(ensemble, "/brokers/topics")) == wanted
    assert paths(ensemble, "/config/topics") == [
        f"/config/topics/{n}" for n in sorted(broker.topics)
    ]
    assert paths(ensemble, "/admin/delete_topics") == []
