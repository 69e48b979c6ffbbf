"""Test the admin client: topics and the cluster."""

from __future__ import annotations

import asyncio
import itertools
from uuid import UUID

from kcli.client.admin.admin import Admin, CreatedTopic, NewPartitions, NewTopic, ResourceType
from kcli.client.config import AdminConfig
from kserver.errors import ErrorCode, KafkaError
from tests.support.real_clients import bootstrap

_names = itertools.count(1)


def test_topics_are_made_described_changed_and_deleted(broker):
    a, b = f"a{next(_names)}", f"b{next(_names)}"

    async def scenario() -> None:
        async with Admin(AdminConfig.of(bootstrap(broker))) as admin:
            brokers_now = await admin.nodes()
            me = brokers_now[0].id
            made = await admin.create_topics(
                [
                    NewTopic(a, 3, 1, config={"retention.ms": "1234"}),
                    NewTopic(b, assignments={0: [me], 1: [me]}),
                    NewTopic("no such name", 1, 1),
                    NewTopic("too-many", 1, 9),
                ]
            )
            assert isinstance(made[a], CreatedTopic)
            assert (made[a].partitions, made[b].partitions) == (3, 2)
            assert made["no such name"].code is ErrorCode.invalid_topic_exception
            assert made["too-many"].code is ErrorCode.invalid_replication_factor
            again = await admin.create_topics([NewTopic(a, 1, 1)])
            assert again[a].code is ErrorCode.topic_already_exists
            dry = await admin.create_topics([NewTopic("dry", 1, 1)], validate_only=True)
            assert isinstance(dry["dry"], CreatedTopic)

            listed = {t.name: t for t in await admin.list_topics()}
            assert {a, b} <= set(listed)
            assert "dry" not in listed
            described = await admin.describe_topics([b, a, "nope"], page_size=2)
            assert described["nope"].code is ErrorCode.unknown_topic_or_partition
            assert [p.partition for p in described[a].partitions] == [0, 1, 2]
            assert all(p.leader == me and p.replicas == (me,) for p in described[a].partitions)
            by_id = await admin.describe_topics_by_id([listed[a].id])
            assert by_id[listed[a].id].name == a

            grown = await admin.create_partitions({a: NewPartitions(5), b: NewPartitions(1)})
            assert grown[a] is None
            assert grown[b].code is ErrorCode.invalid_partitions

            (config,) = (
                await admin.describe_configs([(ResourceType.TOPIC, a)], keys=["retention.ms"])
            ).values()
            assert [(c.name, c.value, c.is_default) for c in config] == [
                ("retention.ms", "1234", False)
            ]
            gone = await admin.delete_topics([a, b, "nope"])
            assert (gone[a], gone[b]) == (None, None)
            assert gone["nope"].code is ErrorCode.unknown_topic_or_partition
            c = (await admin.create_topics([NewTopic(f"{a}-by-id", 1, 1)]))[f"{a}-by-id"].id
            gone = await admin.delete_topics_by_id([c, UUID(int=99)])
            assert gone[c] is None
            assert gone[UUID(int=99)].code is ErrorCode.unknown_topic_id

    asyncio.run(scenario())


def test_the_cluster_tells_who_it_is(broker):
    async def scenario() -> None:
        async with Admin(AdminConfig.of(bootstrap(broker))) as admin:
            described = await admin.describe_cluster()
            nodes = await admin.nodes()
            assert described.brokers == nodes
            assert described.controller_id in {node.id for node in nodes}
            assert described.cluster_id
            assert {0, 1, 3, 18} <= set(await admin.api_versions(nodes[0]))
            assert await admin.list_reassignments() == {}
            (coordinator,) = (await admin.find_coordinators(["some-group"])).values()
            if isinstance(coordinator, KafkaError):
                assert coordinator.code is ErrorCode.coordinator_not_available
            else:
                assert coordinator.id in {node.id for node in nodes}

    asyncio.run(scenario())
