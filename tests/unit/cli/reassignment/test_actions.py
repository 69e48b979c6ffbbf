"""`k reassign-partitions`: replicas are asked for again until they are at their broker."""

from __future__ import annotations

import pytest

from kcli.command.options import Refused
from kcli.reassignment import actions
from kcli.reassignment.plans import plan_of
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import metadata

FOO_0 = TopicPartition("foo", 0)
PLAN = plan_of(
    {"partitions": [{"topic": "foo", "partition": 0, "replicas": [0], "log_dirs": ["/d"]}]},
    "plan.json",
)
LIMITS = actions.Limits(-1, -1, 2.0, additional=False, allow_replication_factor_change=True)


def none_moves(request):
    return reply_to(request)(error_code=ErrorCode.none, topics=[])


def altered(code):
    def handler(request):
        reply = reply_to(request)
        partition = reply.responses.partitions(partition_index=0, error_code=code)
        return reply(
            error_code=ErrorCode.none,
            responses=[reply.responses(name="foo", partitions=[partition])],
        )

    return handler


def directories(codes):
    """The answers to one request after the other; the last one stays."""
    left = list(codes)

    def handler(request):
        code = left.pop(0) if len(left) > 1 else left[0]
        reply = reply_to(request)
        partition = reply.results.partitions(partition_index=0, error_code=code)
        return reply(results=[reply.results(topic_name="foo", partitions=[partition])])

    return handler


def execute(codes, *, refused=ErrorCode.none):
    """How often the broker was asked to move the replica, while --execute ran."""

    async def scenario(admin, broker):
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("foo", ErrorCode.none, (0, 1))]))
        broker.on(ApiKey.LIST_PARTITION_REASSIGNMENTS, none_moves)
        broker.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, altered(refused))
        broker.on(ApiKey.ALTER_REPLICA_LOG_DIRS, directories(codes))
        broker.on(35, lambda request: reply_to(request)(results=[]))
        try:
            await actions.execute(admin, PLAN, LIMITS, dry_run=False)
        finally:
            scenario.asked = len(broker.asked(ApiKey.ALTER_REPLICA_LOG_DIRS))

    run(scenario)
    return scenario.asked


def both_move(request):
    """Two partitions are active; the broker 1 is being added to them."""
    reply = reply_to(request)
    partitions = [
        reply.topics.partitions(
            partition_index=n, replicas=(1, 0), adding_replicas=(1,), removing_replicas=(0,)
        )
        for n in (0, 1)
    ]
    return reply(
        error_code=ErrorCode.none, topics=[reply.topics(name="foo", partitions=partitions)]
    )


def cancelled(request):
    """Partition 1 is cancelled; the reassignment of partition 0 ended a moment ago."""
    reply = reply_to(request)
    assert all(p.replicas is None for topic in request.topics for p in topic.partitions)
    partitions = [
        reply.responses.partitions(partition_index=n, error_code=code)
        for n, code in ((1, ErrorCode.none), (0, ErrorCode.no_reassignment_in_progress))
    ]
    return reply(
        error_code=ErrorCode.none, responses=[reply.responses(name="foo", partitions=partitions)]
    )


def test_a_cancel_that_is_refused_for_some_partitions_names_them_and_keeps_the_throttles(capsys):
    """As Kafka's tool has it, which counts the refused ones."""
    entries = [{"topic": "foo", "partition": n, "replicas": [1]} for n in (0, 1)]
    plan = plan_of({"partitions": entries}, "plan.json")

    async def scenario(admin, broker):
        broker.on(ApiKey.LIST_PARTITION_REASSIGNMENTS, both_move)
        broker.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, cancelled)
        try:
            await actions.cancel(admin, plan, 2.0, preserve_throttles=False, dry_run=False)
        finally:
            assert not broker.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)

    with pytest.raises(actions.PlainError) as caught:
        run(scenario)
    assert actions.error_text(caught.value) == (
        "Error cancelling partition reassignment for:\n"
        "foo-0: No partition reassignment is in progress."
    )
    assert capsys.readouterr().out == ""


AWAY, HERE = ErrorCode.replica_not_available, ErrorCode.none


def test_a_replica_that_is_not_there_yet_is_asked_for_again(capsys):
    assert execute([AWAY, AWAY, HERE]) == 3
    assert capsys.readouterr().out.endswith(
        "Successfully started partition reassignment for foo-0\n"
        "Successfully started moving log directory to /d for replica foo-0 with broker 0 \n"
    )


def test_one_that_does_not_come_in_time_is_told():
    with pytest.raises(actions.PlainError) as caught:
        execute([AWAY])
    assert str(caught.value) == (
        "Timed out before log directory move could be started for: foo-0-0"
    )


def test_a_directory_that_is_refused_is_told_with_the_reason():
    with pytest.raises(Refused) as caught:
        execute([ErrorCode.log_dir_not_found])
    assert actions.error_text(caught.value) == (
        "Error: Failed to alter dir for foo-0-0: The user-specified log directory is not found in "
        "the broker config."
    )


def test_partitions_that_are_refused_are_told_by_themselves():
    with pytest.raises(actions.PlainError) as caught:
        execute([HERE], refused=ErrorCode.reassignment_in_progress)
    assert actions.error_text(caught.value) == (
        "Error reassigning partition(s):\nfoo-0: A partition reassignment is in progress."
    )


def test_other_refusals_are_told_as_kafkas_tool_names_them():
    refused = KafkaError(ErrorCode.unknown_topic_or_partition, "Topic foo not found.")
    assert actions.error_text(refused) == (
        "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
        "Topic foo not found."
    )
