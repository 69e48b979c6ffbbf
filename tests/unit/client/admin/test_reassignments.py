from __future__ import annotations

import asyncio

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import metadata

A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)


def on_the_move(request):
    reply = reply_to(request)
    return reply(
        error_code=ErrorCode.none,
        topics=[
            reply.topics(
                name="a",
                partitions=[
                    reply.topics.partitions(
                        partition_index=2,
                        replicas=(1, 2),
                        adding_replicas=(2,),
                        removing_replicas=(1,),
                    )
                ],
            )
        ],
    )


def altered(refused=(), *, of_all=ErrorCode.none):
    """An answer that refuses these partitions, or the request."""

    def handler(request):
        reply = reply_to(request)
        return reply(
            error_code=of_all,
            error_message=None if of_all is ErrorCode.none else "said",
            responses=[
                reply.responses(
                    name=topic.name,
                    partitions=[
                        reply.responses.partitions(
                            partition_index=p.partition_index,
                            error_code=ErrorCode.invalid_replica_assignment
                            if (topic.name, p.partition_index) in refused
                            else ErrorCode.none,
                            error_message="no broker 9"
                            if (topic.name, p.partition_index) in refused
                            else None,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
                if of_all is ErrorCode.none
            ],
        )

    return handler


def asked_of(broker):
    """What each request wanted, by partition."""
    return [
        {
            (topic.name, p.partition_index): p.replicas
            for topic in request.topics
            for p in topic.partitions
        }
        for request in broker.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    ]


def test_partitions_on_the_move_are_listed_and_none_where_the_broker_cannot_tell():
    async def scenario(admin, broker):
        assert await admin.list_reassignments() == {}
        broker.on(ApiKey.LIST_PARTITION_REASSIGNMENTS, on_the_move)
        broker.drop()
        await asyncio.sleep(1)
        found = await admin.list_reassignments()
        assert found == {A2: ((1, 2), (2,), (1,))}
        await admin.list_reassignments([A0, B1, A2])
        all, some = broker.asked(ApiKey.LIST_PARTITION_REASSIGNMENTS)
        assert all.topics is None
        named = [(topic.name, topic.partition_indexes) for topic in some.topics]
        assert named == [("a", (0, 2)), ("b", (1,))]

    run(scenario)


def test_a_listing_by_a_former_controller_is_asked_of_the_next():
    async def scenario(admin, old, new):
        def not_any_more(request):
            for broker in (old, new):
                broker.on(ApiKey.METADATA, metadata(old, new, controller=1))
            return reply_to(request)(error_code=ErrorCode.not_controller, topics=[])

        old.on(ApiKey.LIST_PARTITION_REASSIGNMENTS, not_any_more)
        new.on(ApiKey.LIST_PARTITION_REASSIGNMENTS, on_the_move)
        assert A2 in await admin.list_reassignments()

    run(scenario, brokers=2)


def test_each_partition_is_to_move_or_to_stay_and_refused_by_itself():
    async def scenario(admin, broker):
        broker.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, altered({A2}))
        found = await admin.alter_reassignments({A0: [1, 2], A2: [9], B1: None})
        assert (found[A0], found[B1]) == (None, None)
        assert found[A2].code is ErrorCode.invalid_replica_assignment
        assert found[A2].message == "no broker 9"
        assert asked_of(broker) == [{A0: (1, 2), A2: (9,), B1: None}]
        assert await admin.alter_reassignments({}) == {}

    run(scenario)


def test_a_request_that_is_refused_is_refused_for_each_partition():
    async def scenario(admin, broker):
        refusal = altered(of_all=ErrorCode.cluster_authorization_failed)
        broker.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, refusal)
        found = await admin.alter_reassignments({A0: [1], B1: None})
        assert {(e.code, e.message) for e in found.values()} == {
            (ErrorCode.cluster_authorization_failed, "said")
        }

    run(scenario)


def test_a_change_that_a_former_controller_refused_is_asked_of_the_next():
    async def scenario(admin, old, new):
        def not_any_more(request):
            for broker in (old, new):
                broker.on(ApiKey.METADATA, metadata(old, new, controller=1))
            return altered(of_all=ErrorCode.not_controller)(request)

        old.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, not_any_more)
        new.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, altered())
        assert await admin.alter_reassignments({A0: [1], B1: None}) == {A0: None, B1: None}
        assert asked_of(new) == [{A0: (1,), B1: None}]

    run(scenario, brokers=2)


@pytest.mark.parametrize("versions", [(0, 0), (0, 1)])
def test_the_number_of_replicas_may_be_told_to_stay_where_the_broker_knows_that(versions):
    async def scenario(admin, broker):
        broker.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, altered(), versions)
        assert await admin.alter_reassignments({A0: [1]}) == {A0: None}
        found = await admin.alter_reassignments({A0: [1]}, allow_replication_factor_change=False)
        asked = broker.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        if versions == (0, 0):
            assert isinstance(found[A0], KafkaError)
            assert found[A0].code is ErrorCode.unsupported_version
            assert len(asked) == 1
        else:
            assert found == {A0: None}
            assert [r.allow_replication_factor_change for r in asked] == [True, False]

    run(scenario)
