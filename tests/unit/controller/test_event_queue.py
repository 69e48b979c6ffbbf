"""The controller's queue: what it is doing, as its state tells."""

import asyncio

import pytest

from kserver.controller.event_queue import ControllerState
from kserver.controller.features import Update, UpgradeType
from kserver.controller.leader_elections import ElectionType
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.wire.control import NO_BROKER_EPOCH
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble
from tests.unit.controller.test_controller import Broker

NOTED = {
    ControllerState.MANUAL_LEADER_BALANCE: "/admin/preferred_replica_election",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "/admin/reassign_partitions",
    ControllerState.TOPIC_DELETION: "/admin/delete_topics/a",
    ControllerState.LOG_DIR_CHANGE: "/log_dir_event_notification/log_dir_event_0",
    ControllerState.ISR_CHANGE: "/isr_change_notification/isr_change_0",
    ControllerState.TOPIC_CHANGE: "/brokers/topics/b",
    ControllerState.BROKER_CHANGE: "/brokers/ids/2",
}


async def seen(queue, until):
    """The states that come, one after the other, until that is so and nothing is left to do."""
    found = []
    while not until() or queue.state is not ControllerState.IDLE or queue.waiting:
        if queue.state is not ControllerState.IDLE and queue.state not in found[-1:]:
            found.append(queue.state)
        await asyncio.sleep(0)
    return found


def in_a_broker(test):
    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        async with Broker(ensemble) as broker:
            await broker.create(CreatableTopic("a"))
            await seen(broker.controller.queue, lambda: True)
            assert broker.controller.queue.state == 0
            await test(ensemble, broker)

    simulate(main, seed=1)


def test_what_is_asked_has_its_state():
    async def asked(ensemble, broker):
        controller, queue = broker.controller, broker.controller.queue
        broker.zookeeper.cut()
        first = asyncio.create_task(broker.create(CreatableTopic("b")))
        while queue.state is ControllerState.IDLE:
            await asyncio.sleep(0)
        assert queue.state is ControllerState.TOPIC_CHANGE
        lowered = [Update("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)]
        wanted = {
            broker.create(CreatableTopic("c")): ControllerState.TOPIC_CHANGE,
            broker.grow(CreatablePartitions("a", 2)): ControllerState.TOPIC_CHANGE,
            broker.delete("a"): ControllerState.TOPIC_DELETION,
            controller.alter_reassignments({}): ControllerState.ALTER_PARTITION_REASSIGNMENT,
            controller.elect_leaders(ElectionType.PREFERRED, None): (
                ControllerState.MANUAL_LEADER_BALANCE
            ),
            controller.alter_partitions(1, broker.registration.epoch, []): (
                ControllerState.ISR_CHANGE
            ),
            controller.allocate_producer_ids(1, broker.registration.epoch): ControllerState.IDLE,
            controller.update_features(lowered, validate_only=False): (
                ControllerState.UPDATE_FEATURES
            ),
            controller.shut_down(1, NO_BROKER_EPOCH): ControllerState.CONTROLLED_SHUTDOWN,
        }
        tasks = [asyncio.create_task(call) for call in wanted]
        await asyncio.sleep(0)
        assert [one.state for one in queue._operations._queue] == [*wanted.values()]
        broker.zookeeper.heal()
        await asyncio.gather(first, *tasks)
        await seen(queue, lambda: True)
        assert queue.state is ControllerState.IDLE

    in_a_broker(asked)


@pytest.mark.parametrize("state", NOTED, ids=lambda state: state.name)
def test_what_is_noted_in_zookeeper_has_its_state(state):
    async def noted(ensemble, broker):
        other = ensemble.client()
        await other.start()
        task = asyncio.create_task(other.create(NOTED[state], make_parents=True))
        queue, found = broker.controller.queue, []
        while not found:
            await asyncio.sleep(0)
            found = await seen(queue, task.done)
        assert found[0] is state
        await other.close()

    in_a_broker(noted)


def test_a_session_that_is_lost_changes_the_controller():
    async def lost(_ensemble, broker):
        broker.zookeeper.expire()
        while (state := broker.controller.queue.state) is ControllerState.IDLE:
            await asyncio.sleep(0)
        assert state is ControllerState.CONTROLLER_CHANGE

    in_a_broker(lost)
