"""A member of a classic group, against a coordinator that answers as each test wants."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re

import pytest

from kcli.client.errors import ClientError, CommitFailed, RebalanceInProgress
from kcli.client.group.assignors import FunctionAssignor
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.group.group_protocol import (
    Subscription,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to, request
from tests.support import consuming
from tests.support.consuming import T0, T1, metadata, read
from tests.support.coordinating import GIVEN_ID, heard_all, joined, poll_on, poll_until_asked, run

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


def test_a_member_joins_reads_from_where_the_group_is_and_leaves():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        assert heard.events == [("+", 0, 1)]
        for log in coordinator.logs.values():
            log.append(5)
        assert len(await read(consumer, 10)) == 10
        assert consumer.subscription == ("t",)
        assert consumer.group_metadata() == GroupMetadata("g", 1, GIVEN_ID)
        await consumer.unsubscribe()
        assert heard.events == [("+", 0, 1), ("-", 0, 1)]
        (left,) = coordinator.asked(ApiKey.LEAVE_GROUP)
        assert [m.member_id for m in left.members] == [GIVEN_ID]
        assert consumer.assignment == ()

    run(scenario)


def test_group_id_and_what_the_member_is_like_are_told():
    """group.id, session.timeout.ms, max.poll.interval.ms, partition.assignment.strategy."""

    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        first, second = coordinator.asked(ApiKey.JOIN_GROUP)
        assert (first.member_id, second.member_id) == ("", GIVEN_ID)
        assert second.group_id == "g"
        assert second.session_timeout.total_seconds() == 7
        assert second.rebalance_timeout.total_seconds() == 9
        assert [p.name for p in second.protocols] == ["sticky", "range"]
        told = read_subscription(second.protocols[0].metadata)
        assert told == Subscription(("t",), rack="r1")

    run(
        scenario,
        session_timeout_ms="7000",
        max_poll_interval_ms="9000",
        partition_assignment_strategy="sticky,org.apache.kafka.clients.consumer.RangeAssignor",
        client_rack="r1",
    )


def test_heartbeat_interval_ms_is_kept_between_polls():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        await asyncio.sleep(10)
        assert 18 <= len(coordinator.asked(ApiKey.HEARTBEAT)) <= 20

    run(scenario, heartbeat_interval_ms="500")


def test_a_rebalance_takes_everything_first_and_gives_anew():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.is_rebalancing = True
        assert await heard_all(consumer, heard, 3) == [("+", 0, 1), ("-", 0, 1), ("+", 0, 1)]
        assert coordinator.joined[-1] == "group is already rebalancing"
        assert consumer.group_metadata().generation_id == 2

    run(scenario)


def another_member():
    """As the leader is told of it."""
    reply = reply_to(request(ApiKey.JOIN_GROUP, 9)())
    return reply.members(member_id="z", metadata=write_subscription(Subscription(("t",))))


def test_a_cooperative_member_gives_up_only_what_moves_and_reads_on():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.extra_members = [another_member()]
        coordinator.is_rebalancing = True
        # It gives up one of two, and joins again without it.
        events = await heard_all(consumer, heard, 4)
        assert events[0] == ("+", 0, 1)
        kind, moved = events[1]
        assert kind == "-"
        assert events[2:4] == [("+",), ("+",)]
        assert consumer.assignment == (TopicPartition("t", 1 - moved),)
        assert coordinator.joined[-1] == "need to revoke partitions and re-join"
        told = read_subscription(coordinator.asked(ApiKey.JOIN_GROUP)[-1].protocols[0].metadata)
        assert told.owned == consumer.assignment
        assert told.generation == 2

    run(scenario, **COOPERATIVE)


def test_what_is_kept_is_read_while_the_others_are_waited_for():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        released = coordinator.broker.hold(ApiKey.JOIN_GROUP)
        coordinator.is_rebalancing = True
        await poll_until_asked(consumer, coordinator, ApiKey.JOIN_GROUP, 3)
        coordinator.logs[T0].append(3)
        assert len(await read(consumer, 3)) == 3
        with pytest.raises(RebalanceInProgress):
            await consumer.commit()
        released.set()
        await heard_all(consumer, heard, 2)
        await consumer.commit()

    run(scenario, **COOPERATIVE)


def test_what_was_read_while_the_others_were_waited_for_is_committed_before_it_is_given_up():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)

        async def slowly(request):
            await asyncio.sleep(1)
            return coordinator.commit(request)

        def committed_by_then(partitions):
            for partition in partitions:
                at = coordinator.committed.get(partition)
                found.append(0 if at is None else at.committed_offset)

        found = []
        released = coordinator.broker.hold(ApiKey.JOIN_GROUP)
        coordinator.broker.on(ApiKey.OFFSET_COMMIT, slowly)
        heard.on_revoked = committed_by_then
        coordinator.extra_members = [another_member()]
        coordinator.is_rebalancing = True
        await poll_until_asked(consumer, coordinator, ApiKey.JOIN_GROUP, 3)
        for log in coordinator.logs.values():
            log.append(3)
        assert len(await read(consumer, 6)) == 6
        released.set()
        async with asyncio.timeout(30):
            while not found:
                await consumer.poll(100)
        assert found == [3]
        heard.on_revoked = lambda partitions: None

    run(scenario, **COOPERATIVE, auto_commit_interval_ms="3600000")


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.unknown_member_id, ""), (ErrorCode.illegal_generation, GIVEN_ID)],
)
def test_a_member_that_is_none_any_more_has_lost_what_it_had(code, member_id):
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        before = len(coordinator.asked(ApiKey.JOIN_GROUP))
        coordinator.refuse(ApiKey.HEARTBEAT, code)
        assert await heard_all(consumer, heard, 3) == [("+", 0, 1), ("lost", 0, 1), ("+", 0, 1)]
        assert coordinator.asked(ApiKey.JOIN_GROUP)[before].member_id == member_id

    run(scenario)


def test_a_member_that_is_none_any_more_before_its_join_is_answered_joins_again():
    """The answer to a commit, sent before, says so while the others are waited for."""

    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        joins = coordinator.broker.hold(ApiKey.JOIN_GROUP)
        commits = coordinator.broker.hold(ApiKey.OFFSET_COMMIT)
        coordinator.refuse(ApiKey.OFFSET_COMMIT, ErrorCode.unknown_member_id)
        committing = consumer.commit_async({T0: 0})
        consumer.enforce_rebalance()
        await poll_until_asked(consumer, coordinator, ApiKey.JOIN_GROUP, 3)
        commits.set()
        with pytest.raises(CommitFailed):
            await committing
        joins.set()
        await heard_all(consumer, heard, 3)
        assert heard.events[-1] == ("+", 0, 1)
        assert coordinator.asked(ApiKey.JOIN_GROUP)[3].member_id == "", "it comes as a new one"

    run(scenario, **COOPERATIVE, enable_auto_commit="false")


@pytest.mark.parametrize("code", [ErrorCode.unknown_member_id, ErrorCode.illegal_generation])
def test_a_member_that_is_none_any_more_when_its_sync_is_refused_claims_nothing(code):
    """The leader would wait for it to give up what it has lost, and it never would."""

    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        released = coordinator.broker.hold(ApiKey.SYNC_GROUP)
        consumer.enforce_rebalance()
        await poll_until_asked(consumer, coordinator, ApiKey.SYNC_GROUP, 2)
        beats = len(coordinator.asked(ApiKey.HEARTBEAT))
        coordinator.refuse(ApiKey.HEARTBEAT, code)
        await poll_until_asked(consumer, coordinator, ApiKey.HEARTBEAT, beats + 1)
        coordinator.refuse(ApiKey.SYNC_GROUP, ErrorCode.coordinator_not_available)
        released.set()
        assert await heard_all(consumer, heard, 3) == [("+", 0, 1), ("lost", 0, 1), ("+", 0, 1)]
        told = read_subscription(coordinator.asked(ApiKey.JOIN_GROUP)[-1].protocols[0].metadata)
        assert told.owned == ()

    run(scenario, **COOPERATIVE)


def test_between_polls_nothing_changes_under_the_reader():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        me = consumer.group_metadata()
        coordinator.refuse(ApiKey.HEARTBEAT, ErrorCode.unknown_member_id)
        await asyncio.sleep(10)
        assert consumer.assignment == (T0, T1)
        assert len(heard.events) == 1
        # As nobody's, offsets of a transaction would be taken, whoever has read on meanwhile.
        assert consumer.group_metadata() == me
        assert me.generation_id > 0
        await heard_all(consumer, heard, 3)

    run(scenario)


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
    ],
)
def test_what_passes_does_not_keep_it_out_of_the_group(api, code):
    async def scenario(consumer, coordinator, heard):
        coordinator.refuse(api, code)
        await joined(consumer)
        moved = code in (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator)
        assert len(coordinator.asked(ApiKey.FIND_COORDINATOR)) == 1 + moved

    run(scenario)


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.group_authorization_failed,
        ErrorCode.fenced_instance_id,
        ErrorCode.group_max_size_reached,
        ErrorCode.inconsistent_group_protocol,
    ],
)
def test_what_keeps_it_out_of_the_group_is_raised_by_poll(api, code):
    async def scenario(consumer, coordinator, heard):
        coordinator.refuse(api, code)
        with pytest.raises(KafkaError) as caught:
            await poll_on(consumer)
        assert caught.value.code is code

    run(scenario)


def test_a_coordinator_whose_connection_breaks_is_found_again():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.broker.drop()
        await asyncio.sleep(5)
        await consumer.commit({T0: 3})
        assert coordinator.committed[T0].committed_offset == 3
        assert len(heard.events) == 1

    run(scenario)


def test_a_coordinator_that_leaves_the_metadata_is_found_again():
    """Its broker is gone for good, say: no connection to it fails, for none is tried."""

    async def scenario(consumer, coordinator, heard):
        coordinator.id = 9
        await joined(consumer)
        await asyncio.sleep(2)
        coordinator.id = coordinator.broker.id
        await asyncio.sleep(3)
        beats = len(coordinator.asked(ApiKey.HEARTBEAT))
        await asyncio.sleep(5)
        assert len(coordinator.asked(ApiKey.HEARTBEAT)) >= beats + 9
        assert len(heard.events) == 1

    run(scenario, metadata_max_age_ms="1000", heartbeat_interval_ms="500")


# Late readers


def test_max_poll_interval_ms_without_a_poll_ends_the_membership():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        await asyncio.sleep(1.9)
        await consumer.poll(0)
        assert coordinator.asked(ApiKey.LEAVE_GROUP) == []
        await asyncio.sleep(2.1)
        (left,) = coordinator.asked(ApiKey.LEAVE_GROUP)
        assert left.members[0].reason == "consumer poll timeout has expired."
        assert await heard_all(consumer, heard, 3) == [("+", 0, 1), ("lost", 0, 1), ("+", 0, 1)]

    run(scenario, max_poll_interval_ms="2000", heartbeat_interval_ms="500")


def test_a_reader_that_waits_in_poll_is_not_late():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        await consumer.poll(10_000)
        assert coordinator.asked(ApiKey.LEAVE_GROUP) == []

    run(scenario, max_poll_interval_ms="2000", heartbeat_interval_ms="500")


# Static members


def test_group_instance_id_makes_a_member_that_does_not_leave():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        assert coordinator.asked(ApiKey.JOIN_GROUP)[0].group_instance_id == "i"
        assert coordinator.asked(ApiKey.SYNC_GROUP)[0].group_instance_id == "i"
        assert consumer.group_metadata().group_instance_id == "i"
        await consumer.unsubscribe()
        assert coordinator.asked(ApiKey.LEAVE_GROUP) == []

    run(scenario, group_instance_id="i")


def test_a_static_leader_that_comes_back_shares_out_nothing_and_still_watches():
    async def scenario(consumer, coordinator, heard):
        join = coordinator.join

        def again(request):
            return dataclasses.replace(join(request), skip_assignment=True)

        coordinator.broker.on(ApiKey.JOIN_GROUP, again)
        coordinator.broker.on(
            ApiKey.SYNC_GROUP,
            lambda request: reply_to(request)(
                protocol_type="consumer",
                protocol_name=request.protocol_name,
                assignment=write_assignment([T1]),
            ),
        )
        await joined(consumer)
        assert consumer.assignment == (T1,)
        assert coordinator.asked(ApiKey.SYNC_GROUP)[0].assignments == ()

    run(scenario, group_instance_id="i")


# What is subscribed to


def grow(coordinator, *topics: tuple[str, int]) -> None:
    """What the cluster has from now on; only of "t" the partitions can be read."""
    told = [
        (name, ErrorCode.none, *[(0 if name == "t" else -1, 1)] * count) for name, count in topics
    ]
    tell = metadata(coordinator.broker, topics=told)

    def answer(asked):
        found = tell(asked)
        topics = [dataclasses.replace(t, is_internal=t.name[:2] == "__") for t in found.topics]
        return dataclasses.replace(found, topics=tuple(topics))

    coordinator.broker.on(ApiKey.METADATA, answer)


def test_the_leader_notices_partitions_that_are_added():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        grow(coordinator, ("t", 3))
        assert (await heard_all(consumer, heard, 3))[-1] == ("+", 0, 1, 2)
        assert coordinator.joined[-1] == "cached metadata has changed"

    run(scenario, metadata_max_age_ms="1000")


@pytest.mark.parametrize("hidden", ["true", "false"])
def test_a_pattern_is_what_matches_now_and_exclude_internal_topics_hides_some(hidden):
    async def scenario(consumer, coordinator, heard):
        await consumer.unsubscribe()
        consumer.subscribe(pattern=re.compile("t+|__consumer_offsets"), listener=heard)
        grow(coordinator, ("t", 1), ("other", 1), ("__consumer_offsets", 1))
        await joined(consumer)
        internal = () if hidden == "true" else ("__consumer_offsets",)
        assert consumer.subscription == (*internal, "t")
        grow(coordinator, ("t", 1), ("tt", 1))
        async with asyncio.timeout(30):
            while "tt" not in {p.topic for p in consumer.assignment}:
                await consumer.poll(100)
        assert consumer.subscription == ("t", "tt")

    run(scenario, metadata_max_age_ms="1000", exclude_internal_topics=hidden)


def test_another_subscription_takes_the_place_of_the_one_before():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        grow(coordinator, ("t", 2), ("u", 1))
        consumer.subscribe(["u"], listener=heard)
        assert (await heard_all(consumer, heard, 3))[1:] == [("-", 0, 1), ("+", 0)]
        assert coordinator.joined[-1] == "subscription has changed"
        assert consumer.assignment == (TopicPartition("u", 0),)

    run(scenario)


def test_a_topic_that_may_not_be_read_is_told_by_poll():
    async def scenario(consumer, coordinator, heard):
        refused = [("t", ErrorCode.topic_authorization_failed)]
        coordinator.broker.on(ApiKey.METADATA, metadata(coordinator.broker, topics=refused))
        with pytest.raises(KafkaError, match=r"Not authorized to access topics: \[t\]") as caught:
            await poll_on(consumer)
        assert caught.value.code is ErrorCode.topic_authorization_failed

    run(scenario)


def test_topics_and_partitions_exclude_each_other():
    async def scenario(consumer, coordinator, heard):
        with pytest.raises(ClientError, match="mutually exclusive"):
            consumer.assign([T0])
        await consumer.unsubscribe()
        consumer.assign([T0])
        with pytest.raises(ClientError, match="mutually exclusive"):
            consumer.subscribe(["t"])
        await consumer.unsubscribe()
        with pytest.raises(ClientError, match="Name topics or a pattern"):
            consumer.subscribe([])

    run(scenario)


def test_without_a_group_there_is_nothing_to_subscribe_with():
    async def scenario(consumer, server):
        for call in (lambda: consumer.subscribe(["t"]), consumer.group_metadata):
            with pytest.raises(KafkaError, match=r"valid group\.id") as caught:
                call()
            assert caught.value.code is ErrorCode.invalid_group_id
        with pytest.raises(KafkaError, match=r"valid group\.id"):
            await consumer.commit()

    consuming.run(scenario)


def test_enforce_rebalance_makes_the_group_share_out_anew():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        consumer.enforce_rebalance("more memory")
        await heard_all(consumer, heard, 3)
        assert coordinator.joined[-1] == "more memory"

    run(scenario)


def test_an_own_strategy_shares_out():
    def to_nobody_but_one(counts, members):
        return {min(members): [T1]}

    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        assert consumer.assignment == (T1,)
        assert coordinator.asked(ApiKey.JOIN_GROUP)[0].protocols[0].name == "to_nobody_but_one"

    run(scenario, assignors=[FunctionAssignor(to_nobody_but_one)])


# Listeners


def test_a_listener_may_seek_and_commit_and_its_error_is_polls():
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(5)

        async def seek(partitions):
            await consumer.seek(T0, 3)

        async def fail(partitions):
            await consumer.commit({T0: 4})
            raise ValueError("mine")

        heard.on_assigned, heard.on_revoked = seek, fail
        assert [r.offset for r in await read(consumer, 2)] == [3, 4]
        coordinator.is_rebalancing = True
        with pytest.raises(ValueError, match="mine"):
            await poll_on(consumer)
        assert coordinator.committed[T0].committed_offset == 4
        assert consumer.assignment == ()
        heard.on_revoked = lambda partitions: None
        await joined(consumer)

    run(scenario, enable_auto_commit="false")


def test_a_topic_that_may_be_read_by_now_is_read():
    async def scenario(consumer, coordinator, heard):
        refused = [("t", ErrorCode.topic_authorization_failed)]
        coordinator.broker.on(ApiKey.METADATA, metadata(coordinator.broker, topics=refused))
        with pytest.raises(KafkaError, match=r"Not authorized to access topics: \[t\]"):
            await poll_on(consumer)
        coordinator.lead()
        async with asyncio.timeout(30):
            while not heard.events:
                with contextlib.suppress(KafkaError):
                    await consumer.poll(100)
        await heard_all(consumer, heard, 1)

    run(scenario)
