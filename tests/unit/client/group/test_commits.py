"""How far a group has come: told to its coordinator and asked of it."""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.errors import CommitFailed, RebalanceInProgress, TimedOut
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from tests.support.consuming import T0, T1, read
from tests.support.coordinating import GIVEN_ID, heard_all, joined, poll_on, run
from tests.unit.client.group.test_membership import another_member

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


def test_the_position_is_committed_and_read_from_by_whoever_comes_next():
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(5)
        await read(consumer, 5, max_records=2)
        await consumer.commit()
        assert coordinator.committed[T0].committed_offset == 5
        asked = coordinator.asked(ApiKey.OFFSET_COMMIT)[0]
        assert (asked.generation_id_or_member_epoch, asked.member_id) == (1, GIVEN_ID)
        await consumer.commit_async({T0: CommittedOffset(2, None, "why")})
        found = await consumer.committed([T0, T1])
        assert found == {T0: CommittedOffset(2, None, "why"), T1: CommittedOffset(0)}
        coordinator.is_rebalancing = True
        await heard_all(consumer, heard, 3)
        assert await consumer.position(T0) == 2

    run(scenario, enable_auto_commit="false")


def test_what_was_fetched_and_not_yet_given_is_not_committed():
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(10)
        given = 0
        while given < 2:
            given += len(await consumer.poll(1000, max_records=2))
        await consumer.commit()
        assert coordinator.committed[T0].committed_offset == given == 2
        await consumer.commit_async()
        assert coordinator.committed[T0].committed_offset == 2

    run(scenario, enable_auto_commit="false")


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
def test_what_is_revoked_was_committed_as_far_as_it_was_given(settings):
    async def scenario(consumer, coordinator, heard):
        for partition in (T0, T1):
            coordinator.logs[partition].append(100)
        given = dict.fromkeys((T0, T1), 0)
        while not all(given.values()):
            for record in await consumer.poll(1000, max_records=3):
                given[TopicPartition(record.topic, record.partition)] += 1
        coordinator.extra_members = [another_member()]
        coordinator.is_rebalancing = True
        before = dict(given)
        while not (revoked := [event for event in heard.events if event[0] == "-"]):
            before = dict(given)
            for record in await consumer.poll(1000, max_records=1):
                given[TopicPartition(record.topic, record.partition)] += 1
        _, *partitions = revoked[0]
        assert partitions
        for partition in (TopicPartition("t", number) for number in partitions):
            assert coordinator.committed[partition].committed_offset == before[partition]

    run(scenario, auto_commit_interval_ms="1000000", **settings)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.rebalance_in_progress, RebalanceInProgress),
        (ErrorCode.illegal_generation, CommitFailed),
        (ErrorCode.unknown_member_id, CommitFailed),
        (ErrorCode.offset_metadata_too_large, KafkaError),
        (ErrorCode.fenced_instance_id, KafkaError),
    ],
)
def test_a_commit_that_is_refused_for_good_says_why(code, error):
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.refuse(ApiKey.OFFSET_COMMIT, code)
        with pytest.raises(error):
            await consumer.commit({T0: 1})

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.request_timed_out,
        ErrorCode.unstable_offset_commit,
        ErrorCode.unknown_topic_or_partition,
    ],
)
def test_a_commit_that_may_pass_is_tried_again_but_not_in_the_background(code, caplog):
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.refuse(ApiKey.OFFSET_COMMIT, code)
        await consumer.commit({T0: 1})
        assert coordinator.committed[T0].committed_offset == 1
        coordinator.refuse(ApiKey.OFFSET_COMMIT, code)
        with pytest.raises(KafkaError) as caught:
            await consumer.commit_async({T0: 2})
        assert caught.value.code.retriable
        coordinator.refuse(ApiKey.OFFSET_COMMIT, code)
        consumer.commit_async({T0: 2})
        await asyncio.sleep(1)
        assert caplog.text.count("offset commit failed") == 2

    run(scenario)


def test_a_commit_that_never_passes_ends_with_default_api_timeout_ms():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.broker.on(ApiKey.OFFSET_COMMIT, lambda request: None)
        with pytest.raises((TimedOut, KafkaError)):
            await consumer.commit({T0: 1})

    run(scenario, default_api_timeout_ms="1000", enable_auto_commit="false")


def test_auto_commit_interval_ms_is_how_often_poll_commits():
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(5)
        await read(consumer, 5)
        before = len(coordinator.asked(ApiKey.OFFSET_COMMIT))
        await consumer.poll(10_500)
        assert len(coordinator.asked(ApiKey.OFFSET_COMMIT)) - before == 5
        assert coordinator.committed[T0].committed_offset == 5

    run(scenario, auto_commit_interval_ms="2000")


def test_what_poll_gave_last_is_not_committed_before_the_next_poll():
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(5)
        await read(consumer, 5)
        await asyncio.sleep(5)
        assert T0 not in coordinator.committed or coordinator.committed[T0].committed_offset == 0

    run(scenario, auto_commit_interval_ms="100")


@pytest.mark.parametrize("value", ["true", "false"])
def test_enable_auto_commit_commits_when_partitions_go_and_at_the_end(value):
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(5)
        await read(consumer, 5)
        coordinator.is_rebalancing = True
        await heard_all(consumer, heard, 3)
        assert (T0 in coordinator.committed) is (value == "true")
        coordinator.logs[T0].append(2)
        await read(consumer, 2 if value == "true" else 7)
        await consumer.close()
        found = coordinator.committed.get(T0)
        assert (found and found.committed_offset) == (7 if value == "true" else None)
        assert len(coordinator.asked(ApiKey.LEAVE_GROUP)) == 1

    run(scenario, enable_auto_commit=value)


def test_one_that_assigns_itself_commits_as_no_member():
    async def scenario(consumer, coordinator, heard):
        await consumer.unsubscribe()
        coordinator.logs[T0].append(5)
        consumer.assign([T0])
        await read(consumer, 5)
        await consumer.commit()
        asked = coordinator.asked(ApiKey.OFFSET_COMMIT)[0]
        assert (asked.generation_id_or_member_epoch, asked.member_id) == (-1, "")
        assert consumer.group_metadata() == GroupMetadata("g")
        consumer.assign([])
        consumer.assign([T0])
        assert await consumer.position(T0) == 5

    run(scenario)


def test_where_the_group_is_may_have_to_be_waited_for():
    async def scenario(consumer, coordinator, heard):
        coordinator.refuse(
            ApiKey.OFFSET_FETCH,
            ErrorCode.unstable_offset_commit,
            ErrorCode.coordinator_load_in_progress,
        )
        coordinator.logs[T0].append(5)
        assert len(await read(consumer, 5)) == 5

    run(scenario)


def test_a_group_whose_offsets_may_not_be_read_is_told_by_poll():
    async def scenario(consumer, coordinator, heard):
        coordinator.refuse(ApiKey.OFFSET_FETCH, *[ErrorCode.group_authorization_failed] * 3)
        with pytest.raises(KafkaError) as caught:
            await poll_on(consumer)
        assert caught.value.code is ErrorCode.group_authorization_failed

    run(scenario)
