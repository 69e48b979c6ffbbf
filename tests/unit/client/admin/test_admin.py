from __future__ import annotations

import asyncio
import pydoc
import re
from uuid import UUID

import pytest

from kcli.client.admin.admin import (
    UNREGISTER_BROKER,
    Admin,
    ConfigSource,
    ConfigType,
    CoordinatorType,
    NewTopic,
    ResourceType,
    TopicDescription,
)
from kcli.client.admin.features import FeatureAdmin
from kcli.client.admin.groups import Groups
from kcli.client.admin.transaction_admin import TransactionAdmin
from kcli.client.cluster import Node
from kcli.client.offsets import ListedOffset
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import metadata


@pytest.mark.parametrize(
    ("family", "cls"),
    [("groups", Groups), ("transactions", TransactionAdmin), ("features", FeatureAdmin)],
)
def test_help_names_each_family_and_all_it_has(family, cls):
    help = pydoc.plain(pydoc.render_doc(Admin))
    (told,) = re.findall(rf"admin\.{family}: (.+)", help)
    assert set(told.split(", ")) == {name for name in vars(cls) if not name.startswith("_")}


def created(*errors: tuple[str, ErrorCode, str | None]):
    def handler(request):
        reply = reply_to(request)
        by_name = {name: (code, text) for name, code, text in errors}
        return reply(
            topics=[
                reply.topics(
                    name=topic.name,
                    topic_id=UUID(int=5),
                    error_code=by_name.get(topic.name, (ErrorCode.none, None))[0],
                    error_message=by_name.get(topic.name, (ErrorCode.none, None))[1],
                    num_partitions=3,
                    replication_factor=1,
                )
                for topic in request.topics
            ]
        )

    return handler


def test_each_topic_has_its_own_outcome():
    async def scenario(admin, broker):
        broker.on(
            ApiKey.CREATE_TOPICS, created(("b", ErrorCode.invalid_partitions, "no such number"))
        )
        made = await admin.create_topics([NewTopic("a", 3), NewTopic("b", 0)])
        assert made["a"].id == UUID(int=5)
        assert made["a"].partitions == 3
        assert made["b"].code is ErrorCode.invalid_partitions
        assert made["b"].message == "no such number"

    run(scenario)


def test_counts_and_assignments_reach_the_broker():
    async def scenario(admin, broker):
        broker.on(ApiKey.CREATE_TOPICS, created())
        await admin.create_topics(
            [
                NewTopic("a"),
                NewTopic("b", assignments={0: [1, 2], 1: [2, 3]}, config={"k": "v", "n": None}),
            ],
            validate_only=True,
        )
        (request,) = broker.asked(ApiKey.CREATE_TOPICS)
        a, b = request.topics
        assert request.validate_only
        assert (a.num_partitions, a.replication_factor, a.assignments) == (-1, -1, ())
        assert (b.num_partitions, b.replication_factor) == (-1, -1)
        assert [(x.partition_index, x.broker_ids) for x in b.assignments] == [
            (0, (1, 2)),
            (1, (2, 3)),
        ]
        assert [(c.name, c.value) for c in b.configs] == [("k", "v"), ("n", None)]

    run(scenario)


def test_what_a_former_controller_refused_is_asked_of_the_next():
    async def scenario(admin, old, new):
        old.on(ApiKey.CREATE_TOPICS, created(("a", ErrorCode.not_controller, None)))
        new.on(ApiKey.CREATE_TOPICS, created())
        answers = iter([metadata(old, new, controller=0), metadata(old, new, controller=1)])
        old.on(ApiKey.METADATA, lambda request: next(answers)(request))
        made = await admin.create_topics([NewTopic("a"), NewTopic("b")])
        assert made["a"].name == "a"
        assert made["b"].name == "b"
        assert [t.name for t in new.asked(ApiKey.CREATE_TOPICS)[0].topics] == ["a"]

    run(scenario, brokers=2)


def test_nothing_to_do_asks_nobody():
    async def scenario(admin, broker):
        assert await admin.create_topics([]) == {}
        assert await admin.delete_topics([]) == {}
        assert await admin.create_partitions({}) == {}
        assert await admin.describe_topics([]) == {}
        assert await admin.describe_topics_by_id([]) == {}
        assert await admin.describe_configs([]) == {}
        assert not broker.requests

    run(scenario)


@pytest.mark.parametrize("newest", [1, 5, 6])
def test_topics_are_deleted_in_old_and_new_versions(newest):
    async def scenario(admin, broker):
        def delete(request):
            reply = reply_to(request)
            names = getattr(request, "topic_names", None) or [t.name for t in request.topics]
            return reply(
                responses=[
                    reply.responses(
                        name=name,
                        error_code=ErrorCode.none
                        if name == "a"
                        else ErrorCode.unknown_topic_or_partition,
                    )
                    for name in names
                ]
            )

        broker.on(ApiKey.DELETE_TOPICS, delete, (1, newest))
        done = await admin.delete_topics(["a", "b"])
        assert done["a"] is None
        assert done["b"].code is ErrorCode.unknown_topic_or_partition

    run(scenario)


def in_pages(topics: dict[str, int]):
    """DescribeTopicPartitions over topics with so many partitions each."""

    def handler(request):
        reply = reply_to(request)
        room = request.response_partition_limit
        start = ("", 0)
        if request.cursor is not None:
            start = (request.cursor.topic_name, request.cursor.partition_index)
        answered, next_cursor = [], None
        for name in sorted(t.name for t in request.topics):
            if name < start[0]:
                continue
            if name not in topics:
                answered.append(
                    reply.topics(name=name, error_code=ErrorCode.unknown_topic_or_partition)
                )
                continue
            first = start[1] if name == start[0] else 0
            end = min(topics[name], first + room)
            room -= end - first
            answered.append(
                reply.topics(
                    name=name,
                    topic_id=UUID(int=1),
                    error_code=ErrorCode.none,
                    partitions=[
                        reply.topics.partitions(
                            partition_index=n,
                            error_code=ErrorCode.none,
                            leader_id=-1 if n == 0 else 0,
                            leader_epoch=4,
                            replica_nodes=(0, 1),
                            isr_nodes=(0,),
                            eligible_leader_replicas=(1,),
                        )
                        for n in range(first, end)
                    ],
                )
            )
            if end < topics[name]:
                next_cursor = reply.next_cursor(topic_name=name, partition_index=end)
                break
        return reply(topics=answered, next_cursor=next_cursor)

    return handler


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
def test_descriptions_are_put_together_from_pages(page_size):
    async def scenario(admin, broker):
        broker.on(ApiKey.DESCRIBE_TOPIC_PARTITIONS, in_pages({"a": 5, "c": 2}))
        found = await admin.describe_topics(["c", "b", "a"], page_size=page_size)
        assert list(found) == ["c", "b", "a"]
        assert found["b"].code is ErrorCode.unknown_topic_or_partition
        for name, count in (("a", 5), ("c", 2)):
            topic = found[name]
            assert [p.partition for p in topic.partitions] == list(range(count))
            assert [p.leader for p in topic.partitions] == [None] + [0] * (count - 1)
            assert topic.partitions[0].elr == (1,)
            assert topic.partitions[0].leader_epoch == 4

    run(scenario)


def test_a_broker_that_repeats_a_page_is_not_asked_for_ever():
    async def scenario(admin, broker):
        def again(request):
            reply = reply_to(request)
            return reply(topics=[], next_cursor=reply.next_cursor(topic_name="a"))

        broker.on(ApiKey.DESCRIBE_TOPIC_PARTITIONS, again)
        with pytest.raises(KafkaError, match="same page again"):
            await admin.describe_topics(["a"])

    run(scenario)


def test_without_that_api_topics_are_described_from_metadata():
    async def scenario(admin, broker):
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("a", ErrorCode.none, (0, 7))]))
        found = await admin.describe_topics(["a", "b"])
        assert isinstance(found["a"], TopicDescription)
        assert found["a"].partitions[0].elr is None
        assert found["a"].partitions[0].leader_epoch == 7
        assert found["b"].code is ErrorCode.unknown_topic_or_partition

    run(scenario)


def test_topics_are_described_by_id_where_the_broker_knows_ids():
    async def scenario(admin, broker):
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("a", ErrorCode.none, (0, 7))]))
        found = await admin.describe_topics_by_id([UUID(int=1), UUID(int=2)])
        assert found[UUID(int=1)].name == "a"
        assert found[UUID(int=2)].code is ErrorCode.unknown_topic_id
        assert [t.name for t in broker.asked(ApiKey.METADATA)[-1].topics] == [None, None]

    run(scenario)


def test_internal_topics_can_be_left_out_of_the_list():
    async def scenario(admin, broker):
        def handler(request):
            reply = reply_to(request)
            return reply(
                topics=[
                    reply.topics(name=name, error_code=ErrorCode.none, is_internal=internal)
                    for name, internal in (("b", False), ("__a", True))
                ]
            )

        broker.on(ApiKey.METADATA, handler)
        assert [t.name for t in await admin.list_topics()] == ["__a", "b"]
        assert [t.name for t in await admin.list_topics(include_internal=False)] == ["b"]

    run(scenario)


def test_a_broker_is_asked_for_its_own_configuration():
    async def scenario(admin, *brokers):
        def configs(request):
            reply = reply_to(request)
            return reply(
                results=[
                    reply.results(
                        error_code=ErrorCode.none,
                        resource_type=r.resource_type,
                        resource_name=r.resource_name,
                        configs=[
                            reply.results.configs(
                                name="k",
                                value="v",
                                config_source=5,
                                config_type=99,
                                synonyms=[
                                    reply.results.configs.synonyms(name="s", value="w", source=4)
                                ],
                            )
                        ],
                    )
                    for r in request.resources
                ]
            )

        for broker in brokers:
            broker.on(ApiKey.DESCRIBE_CONFIGS, configs)
        found = await admin.describe_configs(
            [
                (ResourceType.BROKER, "1"),
                (ResourceType.TOPIC, "a"),
                (ResourceType.BROKER, "7"),
                (ResourceType.BROKER, ""),
            ],
            keys=["k"],
        )
        (entry,) = found[ResourceType.BROKER, "1"]
        assert (entry.name, entry.value, entry.is_default) == ("k", "v", True)
        assert entry.type is ConfigType.UNKNOWN
        assert entry.synonyms == (("s", "w", ConfigSource.STATIC_BROKER_CONFIG),)
        assert found[ResourceType.BROKER, "7"].code is ErrorCode.broker_not_available
        asked = [r for b in brokers for r in b.asked(ApiKey.DESCRIBE_CONFIGS)]
        assert all(r.configuration_keys == ("k",) for request in asked for r in request.resources)
        own = [
            r.resource_name for q in brokers[1].asked(ApiKey.DESCRIBE_CONFIGS) for r in q.resources
        ]
        assert own == ["1"] or set(own) == {"1", "a", ""}

    run(scenario, brokers=2)


def listing(of: dict[int, ListedOffset | ErrorCode]):
    def handler(request):
        reply = reply_to(request)
        partitions = []
        for p in request.topics[0].partitions:
            found = of[p.partition_index]
            offset, timestamp, epoch = (-1, -1, -1) if isinstance(found, ErrorCode) else found
            partitions.append(
                reply.topics.partitions(
                    partition_index=p.partition_index,
                    error_code=found if isinstance(found, ErrorCode) else ErrorCode.none,
                    offset=offset,
                    timestamp=timestamp,
                    leader_epoch=epoch,
                )
            )
        return reply(topics=[reply.topics(name="a", partitions=partitions)])

    return handler


def test_offsets_are_asked_of_the_leaders_and_what_is_missing_refused():
    async def scenario(admin, *brokers):
        topics = [("a", ErrorCode.none, (0, 3), (1, 4))]
        for n, broker in enumerate(brokers):
            broker.on(ApiKey.METADATA, metadata(*brokers, topics=topics))
            broker.on(ApiKey.LIST_OFFSETS, listing({n: ListedOffset(10 + n, -1, 3 + n)}))
        found = await admin.list_offsets(
            {TopicPartition("a", n): -1 for n in range(3)} | {TopicPartition("b", 0): -1}
        )
        assert found[TopicPartition("a", 0)] == ListedOffset(10, -1, 3)
        assert found[TopicPartition("a", 1)] == ListedOffset(11, -1, 4)
        for missing in (TopicPartition("a", 2), TopicPartition("b", 0)):
            assert found[missing].code is ErrorCode.unknown_topic_or_partition
        (asked,) = brokers[1].asked(ApiKey.LIST_OFFSETS)
        assert asked.topics[0].partitions[0].current_leader_epoch == 4

    run(scenario, brokers=2)


def test_offsets_are_asked_again_when_the_leader_moved():
    async def scenario(admin, old, new):
        ok = ErrorCode.none
        answers = iter([0, 0, 1, 1, 1, 1])
        old.on(
            ApiKey.METADATA,
            lambda request: metadata(old, new, topics=[("a", ok, (next(answers), 3))])(request),
        )
        old.on(ApiKey.LIST_OFFSETS, listing({0: ErrorCode.not_leader_or_follower}))
        new.on(ApiKey.LIST_OFFSETS, listing({0: ListedOffset(10, -1, 3)}))
        a = TopicPartition("a", 0)
        assert await admin.list_offsets({a: -2}) == {a: ListedOffset(10, -1, 3)}

    run(scenario, brokers=2)


def test_offsets_that_an_old_broker_cannot_tell_are_refused_and_the_rest_told():
    async def scenario(admin, broker):
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("a", ErrorCode.none, (0, 3), (0, 3))]))
        broker.on(ApiKey.LIST_OFFSETS, listing({1: ListedOffset(10, -1, 3)}), (1, 6))
        a, b = TopicPartition("a", 0), TopicPartition("a", 1)
        found = await admin.list_offsets({a: -3, b: -1})
        assert found[a].code is ErrorCode.unsupported_version
        assert found[b].offset == 10

    run(scenario)


def test_the_cluster_is_described_by_its_own_api_or_by_metadata():
    async def scenario(admin, *brokers):
        described = await admin.describe_cluster()
        assert (described.cluster_id, described.controller_id) == ("c", 0)
        assert [node.id for node in described.brokers] == [0, 1]

        def cluster(request):
            reply = reply_to(request)
            return reply(
                error_code=ErrorCode.none,
                cluster_id="d",
                controller_id=1,
                brokers=[reply.brokers(broker_id=1, host="h", port=1, rack="r")],
            )

        for broker in brokers:
            broker.on(ApiKey.DESCRIBE_CLUSTER, cluster)
            broker.drop()
        await asyncio.sleep(1)
        described = await admin.describe_cluster()
        assert (described.cluster_id, described.controller_id) == ("d", 1)
        assert str(described.brokers[0]) == "h:1 (id: 1 rack: r)"

    run(scenario, brokers=2)


def test_controllers_and_fenced_brokers_are_described_where_the_broker_can():
    async def scenario(admin, broker):
        with pytest.raises(KafkaError, match="has no DescribeCluster"):
            await admin.describe_cluster(controllers=True)

        def cluster(request):
            reply = reply_to(request)
            fenced = request.include_fenced_brokers
            id = request.endpoint_type
            node = reply.brokers(broker_id=id, host="h", port=1, is_fenced=fenced)
            return reply(error_code=ErrorCode.none, cluster_id="d", brokers=[node])

        broker.on(ApiKey.DESCRIBE_CLUSTER, cluster)
        broker.drop()
        await asyncio.sleep(1)
        controllers = await admin.describe_cluster(controllers=True)
        assert ([node.id for node in controllers.brokers], controllers.fenced) == ([2], set())
        brokers = await admin.describe_cluster(include_fenced=True)
        assert ([node.id for node in brokers.brokers], brokers.fenced) == ([1], {1})

    run(scenario)


def test_a_broker_is_unregistered_or_the_reason_told():
    async def scenario(admin, broker):
        with pytest.raises(KafkaError, match="UnregisterBroker") as unsupported:
            await admin.unregister_broker(3)
        assert unsupported.value.code == ErrorCode.unsupported_version

        def unregister(request):
            known = request.broker_id == 3
            code = ErrorCode.none if known else ErrorCode.broker_id_not_registered
            return reply_to(request)(error_code=code, error_message=None if known else "who?")

        broker.on(UNREGISTER_BROKER, unregister)
        broker.drop()
        await asyncio.sleep(1)
        await admin.unregister_broker(3)
        with pytest.raises(KafkaError, match="who"):
            await admin.unregister_broker(4)

    run(scenario)


def test_nodes_and_what_each_offers():
    async def scenario(admin, *brokers):
        brokers[1].versions[99] = (3, 4)
        nodes = await admin.nodes()
        assert [node.id for node in nodes] == [0, 1]
        assert (await admin.api_versions(nodes[1]))[99] == (3, 4)
        assert 99 not in await admin.api_versions(0)

    run(scenario, brokers=2)


def test_the_number_of_tries_can_be_limited():
    async def scenario(admin, broker):
        def refuse(request):
            reply = reply_to(request)
            (topic,) = request.topics
            code = ErrorCode.not_controller
            return reply(topics=[reply.topics(name=topic.name, error_code=code)])

        broker.on(ApiKey.CREATE_TOPICS, refuse)
        with pytest.raises(KafkaError, match="not_controller"):
            await admin.create_topics([NewTopic("a")])
        assert len(broker.asked(ApiKey.CREATE_TOPICS)) == 3

    run(scenario, retries="2")


def test_topics_are_deleted_by_id_where_the_broker_knows_ids():
    known, unknown = UUID(int=5), UUID(int=6)

    def handler(request):
        reply = reply_to(request)
        codes = {known: ErrorCode.none, unknown: ErrorCode.unknown_topic_id}
        assert all(topic.name is None for topic in request.topics)
        return reply(
            responses=[
                reply.responses(name=None, topic_id=t.topic_id, error_code=codes[t.topic_id])
                for t in request.topics
            ]
        )

    async def scenario(admin, broker):
        broker.on(ApiKey.DELETE_TOPICS, handler, (1, 6))
        gone = await admin.delete_topics_by_id([known, unknown])
        assert gone[known] is None
        assert gone[unknown].code is ErrorCode.unknown_topic_id
        broker.versions[ApiKey.DELETE_TOPICS] = (1, 5)
        broker.drop()
        with pytest.raises(KafkaError, match="knows no topic ids"):
            await admin.delete_topics_by_id([known])

    run(scenario)


@pytest.mark.parametrize("newest", range(7))
def test_coordinators_are_found_for_one_key_or_many(newest):
    def found(key: str) -> dict:
        if key == "b":
            refused = ErrorCode.coordinator_not_available
            return {"error_code": refused, "node_id": -1, "host": "", "port": -1}
        return {"error_code": ErrorCode.none, "node_id": 7, "host": "h", "port": 9}

    def handler(request):
        reply = reply_to(request)
        if request.__version__ < 4:
            return reply(**found(request.key))
        coordinators = [reply.coordinators(key=k, **found(k)) for k in request.coordinator_keys]
        return reply(coordinators=coordinators)

    async def scenario(admin, broker):
        broker.on(ApiKey.FIND_COORDINATOR, handler, (0, newest))
        coordinators = await admin.find_coordinators(["a", "b"], CoordinatorType.TRANSACTION)
        assert coordinators["a"] == Node(7, "h", 9)
        assert coordinators["b"].code is ErrorCode.coordinator_not_available
        kinds = {getattr(r, "key_type", 1) for r in broker.asked(ApiKey.FIND_COORDINATOR)}
        assert kinds == {CoordinatorType.TRANSACTION}

    run(scenario)


def test_a_broker_that_leaves_out_what_it_was_asked_refused_it():
    async def scenario(admin, broker):
        broker.on(ApiKey.DESCRIBE_CONFIGS, lambda request: reply_to(request)(results=()))
        broker.on(ApiKey.LIST_OFFSETS, lambda request: reply_to(request)(topics=()))
        leads = metadata(broker, topics=[("t", ErrorCode.none, (0, 1))])
        broker.on(ApiKey.METADATA, leads)
        (config,) = (await admin.describe_configs([(ResourceType.BROKER, "x")])).values()
        (offset,) = (await admin.list_offsets({TopicPartition("t", 0): -1})).values()
        for refused in (config, offset):
            assert refused.code is ErrorCode.unknown_server_error
            assert "left this out" in refused.message

    run(scenario)
