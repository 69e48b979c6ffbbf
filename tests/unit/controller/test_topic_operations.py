"""Topics made, grown and deleted over a simulated ZooKeeper: each item answered on its own."""

import asyncio
import json

from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo
from tests.unit.controller.test_controller import Broker, codes, paths, scenario


@scenario
async def test_a_new_topic_is_in_zookeeper_and_in_the_image(ensemble):
    async with Broker(ensemble) as broker:
        (topic,) = await broker.create(CreatableTopic("foo", 2, config={"retention.ms": "5"}))
        assert broker.topics == {"foo": topic}
        assert broker.metadata.current.topic_by_id(topic.id) == topic
        assert broker.said == [("LeaderAndIsr", {"foo"}), ("UpdateMetadata", {"foo"})]
        assert [(p.leader, p.leader_epoch, p.isr) for p in topic.partitions] == [(1, 0, (1,))] * 2
        assert paths(ensemble, "/brokers/topics") == [
            "/brokers/topics/foo",
            "/brokers/topics/foo/partitions",
            "/brokers/topics/foo/partitions/0",
            "/brokers/topics/foo/partitions/0/state",
            "/brokers/topics/foo/partitions/1",
            "/brokers/topics/foo/partitions/1/state",
        ]
        data, _ = await broker.zookeeper.get("/config/topics/foo")
        assert data == b'{"version":1,"config":{"retention.ms":"5"}}'


@scenario
async def test_each_item_is_answered_on_its_own(ensemble):
    async with Broker(ensemble) as broker:
        results = await broker.create(
            CreatableTopic("a"), CreatableTopic("b c"), CreatableTopic("d", 1, 3)
        )
        assert codes(results) == ["ok", "invalid_topic_exception", "invalid_replication_factor"]
        assert await broker.grow(CreatablePartitions("a", 2), CreatablePartitions("x", 2)) == [
            None,
            KafkaErrorLike("unknown_topic_or_partition"),
        ]
        assert codes(await broker.delete("x", "a", "x")) == [
            "invalid_request",
            "ok",
            "invalid_request",
        ]
        assert broker.topics == {}


class KafkaErrorLike:
    def __init__(self, code):
        self.code = ErrorCode[code]

    def __eq__(self, other):
        return isinstance(other, KafkaError) and other.code is self.code


@scenario
async def test_validation_changes_nothing(ensemble):
    async with Broker(ensemble) as broker:
        before = dict(ensemble.tree.nodes)
        (topic,) = await broker.create(CreatableTopic("foo", 3), validate_only=True)
        assert isinstance(topic, TopicInfo)
        assert len(topic.partitions) == 3
        assert (ensemble.tree.nodes, broker.topics, broker.said) == (before, {}, [])
        await broker.create(CreatableTopic("foo"))
        assert await broker.grow(CreatablePartitions("foo", 3), validate_only=True) == [None]
        assert len(broker.topics["foo"].partitions) == 1


@scenario
async def test_of_two_who_make_the_same_topic_at_once_one_does(ensemble):
    async with Broker(ensemble) as broker:
        results = await asyncio.gather(
            *(broker.create(CreatableTopic("foo", n)) for n in (1, 2, 3))
        )
        assert codes([one for (one,) in results]) == ["ok"] + ["topic_already_exists"] * 2
        assert len(broker.topics["foo"].partitions) == 1


@scenario
async def test_a_topic_that_somebody_else_made_is_not_made_over(ensemble):
    async with Broker(ensemble) as broker:
        await broker.zookeeper.create("/brokers/topics/foo", b"theirs")
        assert codes(await broker.create(CreatableTopic("foo"))) == ["topic_already_exists"]
        assert (await broker.zookeeper.get("/brokers/topics/foo"))[0] == b"theirs"


@scenario
async def test_a_config_left_behind_by_an_earlier_topic_is_replaced(ensemble):
    async with Broker(ensemble) as broker:
        await broker.zookeeper.create("/config/topics/foo", b'{"config":{"retention.ms":"1"}}')
        assert codes(await broker.create(CreatableTopic("foo"))) == ["ok"]
        assert (await broker.zookeeper.get("/config/topics/foo"))[0] == (
            b'{"version":1,"config":{}}'
        )


@scenario
async def test_a_topic_grows_and_leads_its_new_partitions(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("foo", 2))
        assert await broker.grow(CreatablePartitions("foo", 4)) == [None]
        assert broker.said == [("LeaderAndIsr", {"foo"}), ("UpdateMetadata", {"foo"})] * 2
        topic = broker.topics["foo"]
        assert [p.leader for p in topic.partitions] == [1] * 4
        data, _ = await broker.zookeeper.get("/brokers/topics/foo")
        assert json.loads(data)["partitions"] == {"0": [1], "1": [1], "2": [1], "3": [1]}
        assert "/brokers/topics/foo/partitions/3/state" in ensemble.tree.nodes


@scenario
async def test_a_deleted_topic_leaves_nothing_and_can_be_made_again(ensemble):
    async with Broker(ensemble) as broker:
        before = set(ensemble.tree.nodes)
        (first,) = await broker.create(CreatableTopic("foo", 3))
        assert await broker.delete("foo") == [None]
        assert set(ensemble.tree.nodes) == before
        assert broker.topics == {}
        assert broker.said[2:] == [("UpdateMetadata", {"foo"}), ("StopReplica", {"foo"})]
        (second,) = await broker.create(CreatableTopic("foo"))
        assert second.id != first.id


@scenario
async def test_deletion_can_be_switched_off(ensemble):
    async with Broker(ensemble, delete_topic_enable=False) as broker:
        await broker.create(CreatableTopic("foo"))
        (error,) = await broker.delete("foo")
        assert error.code is ErrorCode.topic_deletion_disabled
        assert error.message == "Topic deletion is disabled."


@scenario
async def test_a_topic_too_big_for_one_write_is_made_and_deleted(ensemble):
    async with Broker(ensemble) as broker:
        before = set(ensemble.tree.nodes)
        assert codes(await broker.create(CreatableTopic("big", 1200))) == ["ok"]
        assert len(broker.topics["big"].partitions) == 1200
        assert len(paths(ensemble, "/brokers/topics/big")) == 2401
        assert await broker.delete("big") == [None]
        assert set(ensemble.tree.nodes) == before


@scenario
async def test_too_many_partitions_in_one_request_are_refused(ensemble):
    async with Broker(ensemble) as broker:
        results = await broker.create(CreatableTopic("a", 9_999), CreatableTopic("b", 2))
        assert codes(results) == ["policy_violation"] * 2
        await broker.create(CreatableTopic("a", 1))
        assert codes(await broker.grow(CreatablePartitions("a", 10_002))) == ["policy_violation"]
        assert broker.topics.keys() == {"a"}
