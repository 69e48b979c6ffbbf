"""Test that a planned reassignment continues while a broker is down."""

from __future__ import annotations

import asyncio

from kcli.reassignment.journal import PlannedMove, ReassignmentJournal
from kcli.reassignment.mover import Mover
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
