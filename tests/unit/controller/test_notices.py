"""What others write into ZooKeeper for the controller, it acts on, and clears away."""

import asyncio

from kserver import znodes
from kserver.controller.topics import CreatableTopic
from kserver.model import Endpoint, LeaderAndIsr, TopicPartition
from kserver.wire.control import LeaderAndIsrRequest, UpdateMetadataRequest
from tests.unit.controller.test_controller import Broker, scenario


async def until(holds):
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has never come true")


def children(ensemble, parent):
    return [path for path in ensemble.tree.nodes if path.startswith(f"{parent}/")]


@scenario
async def test_a_topic_is_deleted_that_an_old_tool_has_noted(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("a"), CreatableTopic("b"))
        await broker.zookeeper.create("/admin/delete_topics/a")
        await broker.zookeeper.create("/admin/delete_topics/never-there")
        await until(lambda: not children(ensemble, "/admin/delete_topics"))
        assert set(broker.topics) == {"b"}
        assert children(ensemble, "/brokers/topics/a") == []
        # And the next one.
        await broker.zookeeper.create("/admin/delete_topics/b")
        await until(lambda: not broker.topics)


@scenario
async def test_where_deletion_is_switched_off_the_note_of_it_goes(ensemble):
    async with Broker(ensemble, delete_topic_enable=False) as broker:
        await broker.create(CreatableTopic("a"))
        await broker.zookeeper.create("/admin/delete_topics/a")
        await until(lambda: not children(ensemble, "/admin/delete_topics"))
        assert set(broker.topics) == {"a"}


@scenario
async def test_a_broker_that_tells_of_a_failed_disk_is_asked_what_it_can_serve(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("a", 2))
        broker.requests.clear()
        event = znodes.encode_log_dir_event(1)
        await broker.zookeeper.create(znodes.LOG_DIR_EVENT_PREFIX, event, sequence=True)
        await broker.zookeeper.create(znodes.LOG_DIR_EVENT_PREFIX, b"nonsense", sequence=True)
        await until(lambda: not children(ensemble, znodes.LOG_DIR_EVENTS))
        await until(lambda: broker.requests)
        asked = broker.requests[0]
        assert isinstance(asked, LeaderAndIsrRequest)
        (topic,) = asked.topic_states
        assert topic.topic_name == "a"
        assert [p.partition_index for p in topic.partition_states] == [0, 1]


@scenario
async def test_states_that_a_leader_has_written_by_itself_are_read_and_told(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("a", 2))
        path = znodes.state_path("a", 1)
        await broker.zookeeper.set(path, znodes.encode_state(LeaderAndIsr(1, 0, (1,), 1)))
        broker.requests.clear()
        note = znodes.encode_partitions([TopicPartition("a", 1), TopicPartition("gone", 0)])
        await broker.zookeeper.create(znodes.ISR_CHANGE_PREFIX, note, sequence=True)
        await until(lambda: not children(ensemble, znodes.ISR_CHANGES))
        await until(lambda: broker.requests)
        (told,) = broker.requests
        assert isinstance(told, UpdateMetadataRequest)
        ((state,),) = (topic.partition_states for topic in told.topic_states)
        assert (state.partition_index, state.zk_version) == (1, 1)


@scenario
async def test_an_election_that_an_old_tool_asks_for_is_done_and_cleared_away(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("a"))
        for data in (znodes.encode_partitions([TopicPartition("a", 0)]), b"nonsense"):
            await broker.zookeeper.create(znodes.PREFERRED_ELECTION, data)
            await until(lambda: znodes.PREFERRED_ELECTION not in ensemble.tree.nodes)
        assert broker.controller.is_active


@scenario
async def test_a_broker_that_is_found_elsewhere_is_told_of_to_all(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("a"))
        broker.requests.clear()
        broker.registration.advertise([Endpoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 9093)])
        await until(lambda: broker.requests)
        (told,) = broker.requests
        assert isinstance(told, UpdateMetadataRequest)
        (live,) = told.live_brokers
        assert [(e.host, e.port) for e in live.endpoints] == [("elsewhere", 9093)]
