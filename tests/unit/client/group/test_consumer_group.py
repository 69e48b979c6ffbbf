"""A member of a group by KIP-848, against a coordinator that answers as each test wants."""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.consumer.consumer_metadata import SubscriptionPattern
from kcli.client.consumer.listener import RebalanceListener
from kcli.client.errors import ClientError, CommitFailed
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from tests.support import coordinating
from tests.support.consuming import T0, T1, read
from tests.unit.client.group.test_membership import heard_all, joined, poll_on


def run(scenario, **settings: str):
    coordinating.run(scenario, group_protocol="consumer", **settings)


def beats(coordinator):
    return coordinator.asked(ApiKey.CONSUMER_GROUP_HEARTBEAT)


def test_group_protocol_consumer_has_but_one_request():
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(5)
        assert len(await read(consumer, 5)) == 5
        assert heard.events == [("+", 0, 1)]
        assert coordinator.asked(ApiKey.JOIN_GROUP) == []
        me = consumer.group_metadata()
        assert (me.group_id, me.generation_id, len(me.member_id)) == ("g", 1, 22)
        asked = coordinator.asked(ApiKey.OFFSET_FETCH)[0].groups[0]
        assert (asked.member_id, asked.member_epoch) == (me.member_id, 1)
        await consumer.unsubscribe()
        assert heard.events == [("+", 0, 1), ("-", 0, 1)]
        assert beats(coordinator)[-1].member_epoch == -1

    run(scenario)


def test_the_first_heartbeat_says_all_and_the_next_what_has_changed():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        await consumer.poll(3000)
        first, second, third = beats(coordinator)[:3]
        assert (first.member_epoch, first.subscribed_topic_names) == (0, ("t",))
        assert (first.rack_id, first.server_assignor) == ("r1", "range")
        assert first.rebalance_timeout.total_seconds() == 9
        assert first.topic_partitions == ()
        assert [t.partitions for t in second.topic_partitions] == [(0, 1)], "acknowledged"
        assert (second.member_epoch, third.member_epoch) == (1, 1)
        for later in (second, third):
            assert later.subscribed_topic_names is None
            assert (later.rack_id, later.server_assignor, later.instance_id) == (None,) * 3
        assert third.topic_partitions is None

    run(scenario, group_remote_assignor="range", client_rack="r1", max_poll_interval_ms="9000")


def test_only_what_moves_is_taken_and_the_rest_read_on():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.target, coordinator.group_epoch = [T1], 2
        await heard_all(consumer, heard, 3)
        assert heard.events == [("+", 0, 1), ("-", 0), ("+",)]
        assert [t.partitions for t in beats(coordinator)[-1].topic_partitions] == [(1,)]
        coordinator.logs[T1].append(3)
        assert len(await read(consumer, 3)) == 3

    run(scenario, enable_auto_commit="false")


def test_what_was_read_is_committed_before_it_is_given_up():
    async def scenario(consumer, coordinator, heard):
        coordinator.logs[T0].append(5)
        await read(consumer, 5)
        coordinator.target, coordinator.group_epoch = [T1], 2
        await heard_all(consumer, heard, 3)
        assert coordinator.committed[T0].committed_offset == 5

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id])
def test_a_member_that_is_fenced_has_lost_what_it_had_and_joins_again(code):
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        me = consumer.group_metadata()
        coordinator.refuse(ApiKey.CONSUMER_GROUP_HEARTBEAT, code)
        await asyncio.sleep(5)
        assert consumer.assignment == (T0, T1), "between polls nothing changes"
        assert consumer.group_metadata() == me, "which is fenced in a transaction"
        assert me.generation_id > 0
        with pytest.raises(CommitFailed):
            await consumer.commit({T0: 1})
        await heard_all(consumer, heard, 3)
        assert heard.events == [("+", 0, 1), ("lost", 0, 1), ("+", 0, 1)]
        assert consumer.group_metadata().member_id == me.member_id

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    ],
)
def test_what_passes_does_not_end_the_membership(code):
    async def scenario(consumer, coordinator, heard):
        coordinator.refuse(ApiKey.CONSUMER_GROUP_HEARTBEAT, code)
        await joined(consumer)
        coordinator.refuse(ApiKey.CONSUMER_GROUP_HEARTBEAT, code)
        await consumer.poll(5000)
        assert heard.events == [("+", 0, 1)]

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.group_authorization_failed,
        ErrorCode.unreleased_instance_id,
        ErrorCode.unsupported_assignor,
        ErrorCode.group_max_size_reached,
    ],
)
def test_what_keeps_it_out_of_the_group_is_raised_by_poll(code):
    async def scenario(consumer, coordinator, heard):
        coordinator.refuse(ApiKey.CONSUMER_GROUP_HEARTBEAT, code)
        with pytest.raises(KafkaError, match="as the test wants") as caught:
            await poll_on(consumer)
        assert caught.value.code is code

    run(scenario)


def test_a_cluster_that_does_not_have_it_is_told_by_poll():
    async def scenario(consumer, coordinator, heard):
        del coordinator.broker.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT]
        with pytest.raises(KafkaError, match=r"Set group\.protocol=classic"):
            await poll_on(consumer)

    run(scenario)


def test_no_poll_within_the_interval_ends_the_membership():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        await asyncio.sleep(3)
        assert beats(coordinator)[-1].member_epoch == -1
        await heard_all(consumer, heard, 3)
        assert heard.events == [("+", 0, 1), ("lost", 0, 1), ("+", 0, 1)]

    run(scenario, max_poll_interval_ms="2000")


def test_a_static_member_leaves_for_a_while():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        assert beats(coordinator)[0].instance_id == "i"
        await consumer.unsubscribe()
        last = beats(coordinator)[-1]
        assert (last.member_epoch, last.instance_id) == (-2, "i")

    run(scenario, group_instance_id="i")


def test_a_commit_with_an_epoch_that_has_risen_is_made_again_with_the_new_one():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        coordinator.refuse(
            ApiKey.OFFSET_COMMIT, ErrorCode.stale_member_epoch, ErrorCode.stale_member_epoch
        )
        coordinator.group_epoch = 2
        await asyncio.sleep(1.5)
        await consumer.commit({T0: 1})
        assert coordinator.asked(ApiKey.OFFSET_COMMIT)[-1].generation_id_or_member_epoch == 2
        coordinator.refuse(ApiKey.OFFSET_COMMIT, ErrorCode.unknown_member_id)
        with pytest.raises(CommitFailed):
            await consumer.commit({T0: 1})

    run(scenario, enable_auto_commit="false")


def test_a_broken_connection_has_everything_said_again():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        await consumer.poll(2000)
        count = len(beats(coordinator))
        coordinator.broker.on(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda request: coordinator.broker.drop()
        )
        await consumer.poll(1500)
        coordinator.broker.on(ApiKey.CONSUMER_GROUP_HEARTBEAT, coordinator.consumer_beat)
        await consumer.poll(3000)
        later = beats(coordinator)[count + 1 :]
        assert later[0].subscribed_topic_names == ("t",)
        assert [t.partitions for t in later[0].topic_partitions] == [(0, 1)]
        assert heard.events == [("+", 0, 1)]

    run(scenario)


def test_the_coordinator_is_looked_up_again_if_its_broker_refuses_connections():
    async def scenario(consumer, coordinator, heard):
        await joined(consumer)
        await consumer.poll(2000)
        count = len(beats(coordinator))
        assert len(coordinator.asked(ApiKey.FIND_COORDINATOR)) == 1
        coordinator.broker.stop()
        await consumer.poll(3000)
        await coordinator.broker.start()
        await consumer.poll(3000)
        assert len(coordinator.asked(ApiKey.FIND_COORDINATOR)) == 2
        assert len(beats(coordinator)) > count

    run(scenario, enable_auto_commit="false")


def test_a_subscription_pattern_is_the_coordinators_to_match():
    async def scenario(consumer, coordinator, heard):
        await consumer.unsubscribe()
        count = len(beats(coordinator))
        consumer.subscribe(pattern=SubscriptionPattern("t.*"), listener=heard)
        await joined(consumer)
        first = beats(coordinator)[count]
        assert (first.subscribed_topic_regex, first.subscribed_topic_names) == ("t.*", ())
        assert heard.events == [("+", 0, 1)]

    async def classic(consumer, coordinator, heard):
        with pytest.raises(ClientError, match="CLASSIC"):
            consumer.subscribe(pattern=SubscriptionPattern("t.*"))

    run(scenario)
    coordinating.run(classic)


def test_a_listener_that_would_not_be_heard_is_refused():
    async def scenario(consumer, coordinator, heard):
        class Plain:
            def on_assigned(self, partitions):
                pass

        with pytest.raises(ClientError, match="Plain is not a RebalanceListener: derive it"):
            consumer.subscribe(["t"], listener=Plain())

    run(scenario)


@pytest.mark.parametrize("name", ["onPartitionsRevoked", "on_partitions_revoked"])
def test_a_listener_with_methods_of_other_clients_is_refused(name):
    with pytest.raises(TypeError, match=f"Java.{name} would never be called: .* on_revoked"):
        type("Java", (RebalanceListener,), {name: lambda self, partitions: None})


def test_a_pattern_is_matched_here_and_topics_told_by_name():
    async def scenario(consumer, coordinator, heard):
        await consumer.unsubscribe()
        count = len(beats(coordinator))
        consumer.subscribe(pattern="t.*", listener=heard)
        await joined(consumer)
        first = beats(coordinator)[count]
        assert (first.subscribed_topic_regex, first.subscribed_topic_names) == (None, ("t",))

    run(scenario)
