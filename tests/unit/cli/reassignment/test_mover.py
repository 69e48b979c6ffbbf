"""Test that a planned reassignment continues while a broker is down."""

from __future__ import annotations

import asyncio

from kcli.reassignment.journal import PlannedMove, ReassignmentJournal
from kcli.reassignment.mover import AWAY_S, Mover
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import metadata

DOWN_S = 100.0
"""Longer than default.api.timeout.ms of the client."""
MOVE = PlannedMove(TopicPartition("foo", 0), source=(1,), target=(0,), size=100)


def accepted(request):
    reply = reply_to(request)
    partition = reply.responses.partitions(partition_index=0, error_code=ErrorCode.none)
    return reply(
        error_code=ErrorCode.none, responses=[reply.responses(name="foo", partitions=[partition])]
    )


def listed(request, *, moves):
    reply = reply_to(request)
    partition = reply.topics.partitions(
        partition_index=0, replicas=(0, 1), adding_replicas=(0,), removing_replicas=(1,)
    )
    topics = [reply.topics(name="foo", partitions=[partition])] if moves else []
    return reply(error_code=ErrorCode.none, topics=topics)


def test_a_plan_waits_for_a_target_broker_that_is_down(tmp_path, capsys):
    journal = ReassignmentJournal(tmp_path / "journal.json", "c", None, [[MOVE]])
    journal.write()

    async def scenario(admin, target, other):
        loop = asyncio.get_running_loop()
        up_at = loop.time() + DOWN_S
        topics = [("foo", ErrorCode.none, (1, 1))]
        other.on(ApiKey.METADATA, metadata(target, other, controller=1, topics=topics))
        other.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, accepted)
        other.on(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            lambda request: listed(request, moves=loop.time() < up_at),
        )
        target.stop()
        await Mover(admin, journal).run()
        assert loop.time() >= up_at
        assert len(other.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)) == 1

    run(scenario, brokers=2, bootstrap_servers="broker-1:9092")
    assert capsys.readouterr().out == "Moved: foo-0.\n"
    assert not journal.path.exists()


def altered(request):
    reply = reply_to(request)
    return reply(
        responses=[
            reply.responses(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def test_a_throttle_waits_for_a_broker_that_is_not_registered(tmp_path, capsys):
    journal = ReassignmentJournal(tmp_path / "journal.json", "c", 1000, [[MOVE]])
    journal.write()

    async def scenario(admin, target, other):
        loop = asyncio.get_running_loop()
        up_at = loop.time() + AWAY_S / 2
        topics = [("foo", ErrorCode.none, (1, 1))]

        def brokers(request):
            registered = (target, other) if loop.time() >= up_at else (other,)
            return metadata(*registered, controller=1, topics=topics)(request)

        for broker in (target, other):
            broker.on(ApiKey.METADATA, brokers)
            broker.on(ApiKey.INCREMENTAL_ALTER_CONFIGS, altered)
        other.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, accepted)
        other.on(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda request: listed(request, moves=False))
        await Mover(admin, journal).run()
        assert loop.time() >= up_at
        names = [
            resource.resource_name
            for request in target.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)
            for resource in request.resources
        ]
        assert names == ["0", "0"]  # set, then removed

    run(scenario, brokers=2, bootstrap_servers="broker-1:9092")
    assert capsys.readouterr().out == "Moved: foo-0.\n"
