"""A controller among brokers that are played: what it writes, what it says to them, and when."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from kserver import znodes
from kserver.controller.claim import ControllerClaim
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.partitions import IsrChange
from kserver.controller.topics import CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ElectionType, LeaderAndIsr, TopicPartition
from kserver.wire.control import (
    FULL,
    ControlMessage,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kserver.world.zookeeper import Create, SetData, WatchEvent, WatchType
from tests.support.clock import SimClock
from tests.support.controlled_peer import ControlledPeer
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble
from tests.unit.controller.test_controller import Broker, codes

PATIENCE_S = 60
T0 = TopicPartition("t", 0)


class Cluster:
    """Broker 1 is the controller; 2 and 3 are played."""

    def __init__(self, ensemble):
        self.ensemble = ensemble
        self.other = ensemble.client()
        self.broker = Broker(ensemble, unclean_leader_election_enable=False)
        self.two, self.three = ControlledPeer(ensemble, 2), ControlledPeer(ensemble, 3)

    async def __aenter__(self):
        self._stack = AsyncExitStack()
        await self.other.start()
        for part in (self.broker, self.two, self.three):
            await self._stack.enter_async_context(part)
        await self.until(lambda: self.broker.metadata.current.brokers.keys() == {1, 2, 3})
        return self

    async def __aexit__(self, *error):
        await self._stack.aclose()
        await self.other.close()

    async def until(self, holds):
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.01)

    async def create(self, *replicas, topic="t"):
        """A topic of one partition for each."""
        placed = CreatableTopic(topic, assignments=dict(enumerate(replicas)))
        assert codes(await self.broker.create(placed)) == ["ok"]

    def partition(self, number=0):
        """As clients are told of it."""
        return self.broker.topics["t"].partitions[number]

    def adding(self, number=0):
        return self.broker.controller.context.topics["t"].partitions[number].adding

    async def alter(self, leader, isr, number=0):
        """`leader`, if it is one that is played, proposes who is in sync."""
        now = self.partition(number)
        topic_id = self.broker.topics["t"].id
        peer = {2: self.two, 3: self.three}[leader]
        change = IsrChange(
            topic_id, number, now.leader_epoch, tuple((b, -1) for b in isr), now.partition_epoch
        )
        return await self.broker.controller.alter_partitions(leader, peer.epoch, [change])

    async def write_isr(self, *isr, leader=2):
        """By another than the controller, which is notified."""
        state = znodes.encode_state(replace(self.state(), isr=isr, leader=leader))
        await self.other.set(znodes.state_path("t", 0), state)
        noted = {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}
        data = json.dumps(noted).encode()
        await self.other.create(znodes.ISR_CHANGE_PREFIX, data, sequence=True)

    async def quiet(self):
        """Until nothing more is said."""
        before = -1
        while (now := len(self.two.requests) + len(self.three.requests)) != before:
            before = now
            await asyncio.sleep(1)

    def state(self):
        node = self.ensemble.tree.nodes[znodes.state_path("t", 0)]
        return znodes.decode_state("t", 0, node.data, node.stat.version)


def scenario(test):
    """Run an `async def test(cluster)` in a simulation."""

    def run():
        async def main(loop):
            async with Cluster(SimEnsemble(loop, SimClock(loop))) as cluster:
                await test(cluster)

        simulate(main, seed=1)

    run.__name__ = test.__name__
    return run


# Who lives


@scenario
async def test_a_broker_that_registers_again_is_told_all(cluster):
    await cluster.create([2, 3])
    before = cluster.two.epoch
    await cluster.two.register_again()
    assert cluster.two.epoch > before

    def is_told():
        last = cluster.two.told(LeaderAndIsrRequest)[-1]
        return (last.broker_epoch, last.type) == (cluster.two.epoch, FULL)

    await cluster.until(is_told)
    last = cluster.two.told(UpdateMetadataRequest)[-1]
    assert (last.broker_epoch, last.type) == (cluster.two.epoch, FULL)


@scenario
async def test_what_an_earlier_registration_was_to_be_told_is_not_told_to_the_next(cluster):
    cluster.two.may_answer.clear()
    await cluster.create([2, 3])
    await cluster.create([2, 3], topic="u")
    await cluster.until(lambda: cluster.two.told(LeaderAndIsrRequest))
    said = len(cluster.two.told(ControlMessage))
    await cluster.two.register_again()
    await cluster.quiet()
    cluster.two.may_answer.set()
    await cluster.until(lambda: len(cluster.two.told(ControlMessage)) > said)
    await cluster.quiet()
    epochs = {request.broker_epoch for request in cluster.two.told(ControlMessage)[said:]}
    assert epochs == {cluster.two.epoch}


@scenario
async def test_what_a_broker_was_not_told_at_one_address_it_is_told_at_the_next(cluster):
    cluster.two.may_answer.clear()
    await cluster.create([2, 3])
    await cluster.until(lambda: cluster.two.told(LeaderAndIsrRequest))
    await cluster.two.move()
    cluster.two.may_answer.set()
    await cluster.until(
        lambda: any(
            topic.topic_name == "t"
            for request in cluster.two.answered
            if isinstance(request, LeaderAndIsrRequest)
            for topic in request.topic_states
        )
    )


@scenario
async def test_a_broker_that_listens_elsewhere_is_not_gone(cluster):
    await cluster.create([2, 3])
    epoch = cluster.partition().leader_epoch
    await cluster.two.move()
    await asyncio.sleep(30)
    assert cluster.broker.controller.context.brokers.keys() == {1, 2, 3}
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (2, epoch)


@scenario
async def test_a_leader_that_has_come_is_known_before_anybody_is_told_to_follow_it(cluster):
    await cluster.create([3, 2])
    assert (await cluster.alter(3, [3]))[0].isr == (3,)
    await cluster.other.delete(znodes.broker_path(3))
    await cluster.until(lambda: cluster.partition().leader == -1)
    await cluster.quiet()
    said = len(cluster.two.requests)
    await cluster.three.register()
    await cluster.until(lambda: cluster.partition().leader == 3)
    await cluster.quiet()
    now = cluster.two.requests[said:]
    follows = next(n for n, r in enumerate(now) if isinstance(r, LeaderAndIsrRequest))
    known = [
        {broker.id for broker in r.live_brokers}
        for r in now[:follows]
        if isinstance(r, UpdateMetadataRequest)
    ]
    assert any(3 in brokers for brokers in known)


# A connection that was cut, a session that has ended


@scenario
async def test_what_is_noted_while_the_connection_is_cut_is_found_afterwards(cluster):
    await cluster.create([2, 3])
    cluster.broker.zookeeper.cut()
    await cluster.other.create(znodes.delete_topic_path("t"))
    cluster.broker.zookeeper.heal()
    await cluster.until(lambda: "t" not in cluster.broker.topics)


@scenario
async def test_a_broker_that_goes_while_the_connection_is_cut_is_missed_afterwards(cluster):
    await cluster.create([2, 3])
    cluster.broker.zookeeper.cut()
    await cluster.other.delete(znodes.broker_path(2))
    cluster.broker.zookeeper.heal()
    await cluster.until(lambda: cluster.partition().leader == 3)


@scenario
async def test_a_deletion_that_another_controller_has_finished_is_forgotten(cluster):
    """It went on while this one was away, and the topic was made again."""
    cluster.two.may_answer.clear()
    await cluster.create([2, 3])
    assert codes(await cluster.broker.delete("t")) == ["ok"]
    assert znodes.delete_topic_path("t") in cluster.ensemble.tree.nodes
    zookeeper = cluster.broker.zookeeper
    zookeeper.cut()
    cluster.ensemble.end_session(zookeeper.session_id)
    await cluster.other.delete(znodes.delete_topic_path("t"))
    path = znodes.topic_path("t")
    data, _ = await cluster.other.get(path)
    assignment = znodes.decode_topic("t", data)
    new = znodes.TopicAssignment(cluster.broker.controller._new_topic_id(), assignment.replicas)
    await cluster.other.set(path, znodes.encode_topic(new))
    cluster.two.may_answer.set()
    zookeeper.heal()
    await cluster.until(lambda: cluster.broker.controller.is_active)
    await cluster.until(lambda: "t" in cluster.broker.topics)
    await cluster.quiet()
    assert cluster.broker.topics["t"].id == new.topic_id
    assert cluster.partition().leader == 2


@pytest.mark.parametrize("event", ["the broker registers again", "the controller does"])
def test_a_replica_is_online_until_its_broker_says_otherwise(event):
    @scenario
    async def test(cluster):
        cluster.two.errors["t", 0] = ErrorCode.kafka_storage_error
        await cluster.create([3, 2])
        await cluster.until(lambda: cluster.partition().offline == (2,))
        await cluster.quiet()
        cluster.two.may_answer.clear()
        if event == "the broker registers again":
            await cluster.two.register_again()
        else:
            cluster.broker.zookeeper.expire()
        await cluster.until(lambda: cluster.partition().offline == ())

    test()


@scenario
async def test_a_broker_that_was_about_to_stop_may_join_once_another_controller_is_elected(cluster):
    await cluster.create([3, 2])
    await cluster.broker.controller.shut_down(2, cluster.two.epoch)
    assert cluster.partition().isr == (3,)
    (refused,) = await cluster.alter(3, [3, 2])
    assert refused.code is ErrorCode.ineligible_replica
    cluster.broker.zookeeper.expire()
    await cluster.until(lambda: not cluster.broker.controller.is_active)
    await cluster.until(lambda: cluster.broker.controller.is_active)
    await cluster.quiet()
    (state,) = await cluster.alter(3, [3, 2])
    assert set(state.isr) == {2, 3}


@scenario
async def test_nothing_is_written_in_a_session_that_has_not_claimed(cluster):
    """An operation is under way, in several writes, when the session ends."""
    unfounded = []
    zookeeper = cluster.broker.zookeeper

    def written(client, ops):
        node = cluster.ensemble.tree.nodes.get(znodes.CONTROLLER)
        claims = any(isinstance(op, Create) and op.path == znodes.CONTROLLER for op in ops)
        guarded = any(op.path == znodes.CONTROLLER_EPOCH for op in ops)
        if client is zookeeper and guarded and not claims:
            owner = None if node is None else node.owner
            if cluster.ensemble.has_session(client.session_id) and owner != client.session_id:
                unfounded.append(ops)

    cluster.ensemble.on_write = written
    for number in range(30):
        topic = CreatableTopic(f"t{number}", assignments={n: [2, 3] for n in range(3)})
        creating = asyncio.create_task(cluster.broker.create(topic))
        await asyncio.sleep(cluster.ensemble.loop.random.expovariate(1000))
        zookeeper.expire()
        await creating
        await cluster.until(lambda: cluster.broker.controller.is_active)
    assert unfounded == []


@scenario
async def test_a_controller_that_was_elected_since_is_not_deposed(cluster):
    store = ClaimedStore(cluster.other)
    claim = ControllerClaim(
        cluster.other,
        SimClock(cluster.ensemble.loop),
        9,
        store,
        on_change=lambda: None,
        last_epoch=lambda: 0,
    )
    before = await claim.holder()
    assert before is not None
    cluster.broker.zookeeper.expire()
    await cluster.until(lambda: not cluster.broker.controller.is_active)
    await cluster.until(lambda: cluster.broker.controller.is_active)
    session = cluster.ensemble.tree.nodes[znodes.CONTROLLER].owner
    await claim.depose(before.claim)
    assert cluster.ensemble.tree.nodes[znodes.CONTROLLER].owner == session
    now = await claim.holder()
    assert now is not None
    deposed = []
    cluster.ensemble.on_change = deposed.append
    await claim.depose(now.claim)
    assert WatchEvent(WatchType.DELETED, znodes.CONTROLLER) in deposed


# What somebody else has written


@pytest.mark.parametrize("event", ["an election", "a new ISR", "a reassignment"])
def test_a_state_that_another_has_written_is_not_written_over(event):
    """Everything is read again, and goes on from there."""

    @scenario
    async def test(cluster):
        await cluster.create([2, 3, 1])
        theirs = LeaderAndIsr(3, 50, (3, 2), 1)
        await cluster.other.set(znodes.state_path("t", 0), znodes.encode_state(theirs))
        controller = cluster.broker.controller
        if event == "an election":
            await cluster.other.delete(znodes.broker_path(2))
        elif event == "a new ISR":
            with pytest.raises(KafkaError):
                await cluster.alter(2, [2, 3])
            assert cluster.partition().isr == (2, 3, 1)
        else:
            with pytest.raises(KafkaError):
                await controller.alter_reassignments({T0: [3, 2]})
        await cluster.until(lambda: cluster.partition().leader_epoch >= 50)
        await cluster.until(lambda: controller.is_active)
        assert cluster.partition().leader == cluster.state().leader == 3
        assert 1 not in cluster.state().isr

    test()


@scenario
async def test_no_producer_id_is_given_twice_though_another_gives_some_too(cluster):
    path = znodes.PRODUCER_ID_BLOCK
    first = await cluster.broker.controller.allocate_producer_ids(2, cluster.two.epoch)
    meddled = []

    def written(_client, ops):
        if any(op.path == path for op in ops) and not meddled:
            theirs = znodes.ProducerIdBlock(9, first.last + 1, first.last + 1000)
            meddled.append(theirs)
            data = znodes.encode_producer_id_block(theirs)
            cluster.ensemble.apply([SetData(path, data)], 0)

    cluster.ensemble.on_write = written
    with pytest.raises(KafkaError):
        await cluster.broker.controller.allocate_producer_ids(2, cluster.two.epoch)
    await cluster.until(lambda: cluster.broker.controller.is_active)
    block = await cluster.broker.controller.allocate_producer_ids(2, cluster.two.epoch)
    assert meddled
    assert block.first > meddled[0].last


# What brokers ask


@pytest.mark.parametrize("what", ["AlterPartition", "AllocateProducerIds", "ControlledShutdown"])
def test_only_the_present_registration_of_a_broker_is_served(what):
    @scenario
    async def test(cluster):
        await cluster.create([2, 3])
        controller = cluster.broker.controller

        def ask(broker, epoch):
            if what == "AlterPartition":
                now = cluster.partition()
                isr = ((2, -1),)
                change = IsrChange(
                    cluster.broker.topics["t"].id, 0, now.leader_epoch, isr, now.partition_epoch
                )
                return controller.alter_partitions(broker, epoch, [change])
            if what == "AllocateProducerIds":
                return controller.allocate_producer_ids(broker, epoch)
            return controller.shut_down(broker, epoch)

        before = dict(cluster.ensemble.tree.nodes)
        for epoch in (cluster.two.epoch - 1, cluster.two.epoch + 1):
            with pytest.raises(KafkaError) as refused:
                await ask(2, epoch)
            assert refused.value.code is ErrorCode.stale_broker_epoch
        with pytest.raises(KafkaError):
            await ask(9, cluster.two.epoch)
        assert cluster.ensemble.tree.nodes == before
        assert not controller.context.shutting_down
        await ask(2, cluster.two.epoch)

    test()


@scenario
async def test_any_number_may_be_asked_one_after_the_other(cluster):
    for _ in range(1001):
        await cluster.broker.controller.allocate_producer_ids(2, cluster.two.epoch)


@scenario
async def test_who_is_about_to_stop_leads_no_more_and_follows_nothing(cluster):
    await cluster.create([2, 3], [3, 2])
    await cluster.quiet()
    remaining = await cluster.broker.controller.shut_down(2, cluster.two.epoch)
    assert remaining == []
    await cluster.quiet()
    assert [(p.leader, p.isr) for p in cluster.broker.topics["t"].partitions] == [(3, (3,))] * 2
    (stops,) = cluster.two.told(StopReplicaRequest)
    stopped = [
        (p.partition_index, p.delete_partition) for p in stops.topic_states[0].partition_states
    ]
    assert stopped == [(1, False)], "what it led it is told to follow"
    (result,) = (
        await cluster.broker.controller.elect_leaders(ElectionType.PREFERRED, [T0])
    ).values()
    assert result is not None
    assert result.code is ErrorCode.preferred_leader_not_available


@scenario
async def test_leaderships_are_not_handed_to_another_that_is_about_to_stop(cluster):
    await cluster.create([3, 2, 1])
    await cluster.broker.controller.shut_down(2, cluster.two.epoch)
    await cluster.broker.controller.shut_down(3, cluster.three.epoch)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))


@scenario
async def test_nobody_waits_for_or_elects_a_replica_that_is_about_to_stop(cluster):
    await cluster.create([3, 2])
    controller = cluster.broker.controller
    await controller.shut_down(2, cluster.two.epoch)
    assert await controller.shut_down(3, cluster.three.epoch) == []
    await cluster.other.delete(znodes.broker_path(3))
    await cluster.until(lambda: cluster.partition().leader == -1)
    (result,) = (await controller.elect_leaders(ElectionType.UNCLEAN, [T0])).values()
    assert result is not None
    assert result.code is ErrorCode.eligible_leaders_not_available


# Replicas that move, that cannot be served, that go


@scenario
async def test_a_move_tells_the_added_that_they_are_new_and_the_removed_to_delete(cluster):
    await cluster.create([2, 1])
    await cluster.quiet()
    controller = cluster.broker.controller
    assert await controller.alter_reassignments({T0: [2, 3]}) == {T0: None}
    await cluster.until(lambda: cluster.three.told(LeaderAndIsrRequest))
    await cluster.quiet()
    states = [
        state
        for request in cluster.three.told(LeaderAndIsrRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    assert [state.is_new for state in states] == [True]
    cluster.broker.requests.clear()
    await cluster.alter(2, [2, 1, 3])
    await cluster.until(lambda: cluster.partition().replicas == (2, 3))
    assert not cluster.adding()
    (stops,) = [r for r in cluster.broker.requests if isinstance(r, StopReplicaRequest)]
    assert [p.delete_partition for p in stops.topic_states[0].partition_states] == [True]


@scenario
async def test_a_move_that_is_complete_when_the_controller_goes_is_ended_by_the_next(cluster):
    await cluster.create([2, 1])
    await cluster.broker.controller.alter_reassignments({T0: [2, 3]})
    zookeeper = cluster.broker.zookeeper
    zookeeper.cut()
    state = cluster.state()
    state = replace(state, isr=(2, 1, 3))
    await cluster.other.set(znodes.state_path("t", 0), znodes.encode_state(state))
    cluster.ensemble.end_session(zookeeper.session_id)
    zookeeper.heal()
    await cluster.until(lambda: cluster.partition().replicas == (2, 3))
    assert cluster.state().isr == (2, 3)


@scenario
async def test_a_move_is_ended_when_its_leader_has_written_by_itself_who_is_in_sync(cluster):
    """As a leader of Kafka 2.6 and older does."""
    await cluster.create([2, 1])
    await cluster.broker.controller.alter_reassignments({T0: [2, 3]})
    await cluster.write_isr(2, 1, 3)
    await cluster.until(lambda: cluster.partition().replicas == (2, 3))
    assert cluster.state().isr == (2, 3)


@scenario
async def test_a_move_is_ended_once_the_only_broker_that_can_lead_is_back(cluster):
    await cluster.create([2, 1])
    await cluster.broker.controller.alter_reassignments({T0: [3]})
    await cluster.until(lambda: cluster.adding() == (3,))
    await cluster.three.unregister()
    await cluster.until(lambda: cluster.broker.metadata.current.brokers.keys() == {1, 2})
    await cluster.write_isr(3, leader=3)
    await cluster.until(lambda: cluster.partition().isr == (3,))
    await cluster.quiet()
    assert cluster.adding() == (3,)
    await cluster.three.register()
    await cluster.until(lambda: cluster.partition().replicas == (3,))
    assert cluster.partition().leader == 3


@scenario
async def test_a_noted_move_stands_until_all_of_it_is_done(cluster):
    await cluster.create([2, 1], [2, 1])
    moves = [{"topic": "t", "partition": number, "replicas": [2, 3]} for number in (0, 1)]
    noted = json.dumps({"version": 1, "partitions": moves}).encode()
    await cluster.other.create(znodes.REASSIGN_PARTITIONS, noted)
    await cluster.until(lambda: cluster.adding(1) == (3,))
    await cluster.alter(2, [2, 1, 3], 0)
    await cluster.until(lambda: cluster.partition(0).replicas == (2, 3))
    await cluster.quiet()
    assert znodes.REASSIGN_PARTITIONS in cluster.ensemble.tree.nodes
    await cluster.alter(2, [2, 1, 3], 1)
    await cluster.until(lambda: znodes.REASSIGN_PARTITIONS not in cluster.ensemble.tree.nodes)
    assert cluster.partition(1).replicas == (2, 3)


@scenario
async def test_answers_that_tell_nothing_new_are_not_told_to_anybody(cluster):
    await cluster.create([2, 3])
    await cluster.quiet()
    said = len(cluster.three.requests)
    await cluster.two.register_again()
    await cluster.quiet()
    later = [r for r in cluster.three.requests[said:] if isinstance(r, UpdateMetadataRequest)]
    assert len(later) <= 3, "its registration, what it leads, and no more"


@pytest.mark.parametrize("whole", [False, True])
def test_a_topic_keeps_its_name_until_its_replicas_are_deleted(whole):
    """A broker that refuses, one partition or all, is asked again once it has registered again."""

    @scenario
    async def test(cluster):
        if whole:
            cluster.two.refuses = ErrorCode.stale_controller_epoch
        else:
            cluster.two.errors["t", 0] = ErrorCode.kafka_storage_error
        await cluster.create([3, 2])
        await cluster.broker.delete("t")
        await cluster.until(lambda: cluster.two.told(StopReplicaRequest))
        await cluster.quiet()
        path = znodes.topic_path("t")
        assert path in cluster.ensemble.tree.nodes
        cluster.two.refuses = ErrorCode.none
        cluster.two.errors.clear()
        await cluster.two.register_again()
        await cluster.until(lambda: path not in cluster.ensemble.tree.nodes)

    test()
