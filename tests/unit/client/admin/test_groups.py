from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.config import AdminConfig
from kcli.client.group.group_descriptions import (
    CLASSIC,
    CONSUMER,
    CommittedOffset,
    GroupListing,
    MemberToRemove,
)
from kcli.client.group.group_protocol import write_assignment
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def run(scenario, *, brokers: int = 1):
    """Of several brokers the last one leads every group."""

    async def main(loop: SimLoop):
        started = [ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(brokers)]
        leader = started[-1]

        def coordinator(request):
            reply = reply_to(request)
            keys = getattr(request, "coordinator_keys", ())
            where = {"node_id": leader.id, "host": leader.name, "port": leader.port}
            return reply(coordinators=[reply.coordinators(key=k, **where) for k in keys], **where)

        for broker in started:
            broker.on(ApiKey.METADATA, metadata(*started))
            broker.on(ApiKey.FIND_COORDINATOR, coordinator)
            await broker.start()
        given = {"bootstrap.servers": "broker-0:9092", "default.api.timeout.ms": "5000"}
        async with Admin(AdminConfig.of(given), random=Random(1)) as admin:
            return await scenario(admin.groups, *started)

    return simulate(main, 1)


def listing(*groups: tuple[str, str, str, str], errors: list[ErrorCode] | None = None):
    def handler(request):
        reply = reply_to(request)
        if errors:
            return reply(error_code=errors.pop(0))
        return reply(
            groups=[
                reply.groups(
                    group_id=id, protocol_type=protocol, group_state=state, group_type=type
                )
                for id, protocol, state, type in groups
            ]
        )

    return handler


def test_groups_are_those_of_all_brokers_each_once():
    async def scenario(groups, one, two):
        loading = [ErrorCode.coordinator_load_in_progress]
        one.on(ApiKey.LIST_GROUPS, listing(("a", "consumer", "Stable", "classic"), errors=loading))
        two.on(ApiKey.LIST_GROUPS, listing(("b", "", "Empty", "consumer"), ("a", "", "Dead", "")))
        assert await groups.listings(["Stable"], ["Classic"]) == [
            GroupListing("a", "", "Dead", None),
            GroupListing("b", "", "Empty", "Consumer"),
        ]
        (asked, _) = one.asked(ApiKey.LIST_GROUPS)
        assert (asked.states_filter, asked.types_filter) == (("Stable",), ("Classic",))

    run(scenario, brokers=2)


@pytest.mark.parametrize(
    ("newest", "states", "types", "missing"),
    [(3, ["Stable"], [], "state"), (4, [], ["Classic"], "type"), (0, [], ["Classic"], "state")],
)
def test_a_broker_that_cannot_choose_groups_is_refused_the_question(newest, states, types, missing):
    async def scenario(groups, broker):
        broker.on(ApiKey.LIST_GROUPS, listing(("a", "consumer", "", "")), (0, newest))
        assert await groups.listings() == [GroupListing("a", "consumer", None, None)]
        with pytest.raises(KafkaError, match=f"cannot choose groups by {missing}") as refused:
            await groups.listings(states, types)
        assert refused.value.code is ErrorCode.unsupported_version

    run(scenario)


def classic(**members: bytes):
    """A DescribeGroups handler: groups by name are of consumers, "connect" is not."""

    def handler(request):
        reply = reply_to(request)
        return reply(
            groups=[
                reply.groups(
                    group_id=name,
                    group_state="Stable",
                    protocol_type="connect" if name == "connect" else "consumer",
                    protocol_data="range",
                    error_code=ErrorCode.group_id_not_found if name == "none" else ErrorCode.none,
                    members=[
                        reply.groups.members(
                            member_id=id, client_id="c", client_host="/h", member_assignment=given
                        )
                        for id, given in members.items()
                    ],
                )
                for name in request.groups
            ]
        )

    return handler


def by_kip_848(*names: str):
    def handler(request):
        reply = reply_to(request)
        of = reply.groups.members
        partitions = of.assignment.topic_partitions(
            topic_id=UUID(int=1), topic_name="t", partitions=(0, 1)
        )
        assigned = of.assignment(topic_partitions=[partitions])
        member = of(
            member_id="m",
            instance_id="i",
            member_epoch=3,
            client_id="c",
            client_host="/h",
            assignment=assigned,
            target_assignment=of.target_assignment(topic_partitions=[]),
            member_type=1,
        )
        return reply(
            groups=[
                reply.groups(
                    group_id=name,
                    error_code=ErrorCode.none if name in names else ErrorCode.group_id_not_found,
                    group_state="Reconciling",
                    group_epoch=4,
                    assignment_epoch=5,
                    assignor_name="uniform",
                    members=[member],
                )
                for name in request.group_ids
            ]
        )

    return handler


def test_each_group_is_described_in_the_protocol_that_it_speaks():
    async def scenario(groups, _, leader):
        leader.on(ApiKey.CONSUMER_GROUP_DESCRIBE, by_kip_848("new"))
        leader.on(ApiKey.DESCRIBE_GROUPS, classic(m=write_assignment([T1, U0]), joining=b""))
        found = await groups.describe(["new", "old", "none", "connect"])
        new, old = found["new"], found["old"]
        assert (new.type, new.state, new.assignor) == (CONSUMER, "Reconciling", "uniform")
        assert (new.epoch, new.target_epoch, new.coordinator.id) == (4, 5, 1)
        (member,) = new.members
        assert (member.instance_id, member.assignment, member.target) == ("i", (T0, T1), ())
        assert (member.epoch, member.is_upgraded) == (3, True)
        assert (old.type, old.state, old.assignor, old.epoch) == (CLASSIC, "Stable", "range", None)
        assert [m.assignment for m in old.members] == [(T1, U0), ()]
        assert found["none"].code is ErrorCode.group_id_not_found
        # What the members of other protocols are given, only they can read.
        assert (found["connect"].protocol_type, found["connect"].members[0].assignment) == (
            "connect",
            (),
        )
        (asked,) = leader.asked(ApiKey.DESCRIBE_GROUPS)
        assert asked.groups == ("old", "none", "connect")

    run(scenario, brokers=2)


def test_a_broker_without_kip_848_is_asked_about_classic_groups_alone():
    async def scenario(groups, broker):
        broker.on(ApiKey.DESCRIBE_GROUPS, classic(m=write_assignment([T0])), (0, 0))
        found = await groups.describe(["old"])
        assert found["old"].members[0].assignment == (T0,)

    run(scenario)


def fetched(offsets: dict[str, dict[TopicPartition, int | ErrorCode]], loading: int = 0):
    """An OffsetFetch handler; the first `loading` answers say that the group is being loaded."""
    left = [loading]

    def handler(request):
        reply = reply_to(request)

        def topics(make, of):
            return [
                make(
                    name=p.topic,
                    partitions=[
                        make.partitions(
                            partition_index=p.partition,
                            committed_offset=-1 if isinstance(at, ErrorCode) else at,
                            committed_leader_epoch=7,
                            metadata="note",
                            error_code=at if isinstance(at, ErrorCode) else ErrorCode.none,
                        )
                    ],
                )
                for p, at in of.items()
            ]

        code = ErrorCode.coordinator_load_in_progress if left[0] > 0 else ErrorCode.none
        left[0] -= 1
        if request.__version__ < 8:
            return reply(topics=topics(reply.topics, offsets[request.group_id]), error_code=code)
        return reply(
            groups=[
                reply.groups(
                    group_id=group.group_id,
                    error_code=code,
                    topics=topics(reply.groups.topics, offsets[group.group_id]),
                )
                for group in request.groups
            ]
        )

    return handler


@pytest.mark.parametrize(("newest", "requests"), [(2, 3), (7, 3), (8, 2), (9, 2), (10, 2)])
def test_committed_offsets_of_many_groups_are_fetched_together_where_that_can_be(newest, requests):
    async def scenario(groups, broker):
        told = {
            "a": {T0: 5, T1: -1},
            "b": {U0: 6, T0: ErrorCode.topic_authorization_failed},
        }
        broker.on(ApiKey.OFFSET_FETCH, fetched(told, loading=1), (1, newest))
        found = await groups.offsets(["a", "b"])
        epoch = None if newest < 5 else 7
        assert found["a"] == {T0: CommittedOffset(5, epoch, "note")}
        assert found["b"][U0].offset == 6
        assert found["b"][T0].code is ErrorCode.topic_authorization_failed
        asked = broker.asked(ApiKey.OFFSET_FETCH)
        assert len(asked) == requests
        everything = asked[-1].groups[0].topics if newest >= 8 else asked[-1].topics
        assert everything is None

    run(scenario)


def test_of_a_group_some_partitions_can_be_named():
    async def scenario(groups, broker):
        broker.on(ApiKey.OFFSET_FETCH, fetched({"a": {T1: 5}}))
        await groups.offsets({"a": [T0, T1, U0]}, require_stable=True)
        (asked,) = broker.asked(ApiKey.OFFSET_FETCH)
        assert asked.require_stable
        named = {topic.name: topic.partition_indexes for topic in asked.groups[0].topics}
        assert named == {"t": (0, 1), "u": (0,)}

    run(scenario)


def test_all_partitions_of_a_group_are_more_than_a_very_old_broker_tells():
    async def scenario(groups, broker):
        broker.on(ApiKey.OFFSET_FETCH, fetched({"a": {T0: 5}}), (1, 1))
        assert (await groups.offsets(["a"]))["a"].code is ErrorCode.unsupported_version
        assert (await groups.offsets({"a": [T0]}))["a"][T0].offset == 5

    run(scenario)


def of_partitions(codes: dict[TopicPartition, ErrorCode], later: ErrorCode = ErrorCode.none):
    """A handler for OffsetCommit and OffsetDelete, which changes its mind after one answer."""
    answers = [codes, dict.fromkeys(codes, later)]

    def handler(request):
        reply = reply_to(request)
        told = answers.pop(0) if len(answers) > 1 else answers[0]
        return reply(
            topics=[
                reply.topics(
                    name=p.topic,
                    partitions=[
                        reply.topics.partitions(partition_index=p.partition, error_code=code)
                    ],
                )
                for p, code in told.items()
            ]
        )

    return handler


def test_offsets_are_committed_in_the_place_of_members_again_while_the_group_loads():
    async def scenario(groups, broker):
        loading = dict.fromkeys((T0, U0), ErrorCode.coordinator_load_in_progress)
        broker.on(ApiKey.OFFSET_COMMIT, of_partitions(loading))
        offsets = {T0: CommittedOffset(5), U0: CommittedOffset(0, 3, "note")}
        assert await groups.commit("g", offsets) == {T0: None, U0: None}
        asked = broker.asked(ApiKey.OFFSET_COMMIT)[-1]
        assert (asked.group_id, asked.member_id, asked.generation_id_or_member_epoch) == (
            "g",
            "",
            -1,
        )
        told = {
            (t.name, p.partition_index): (
                p.committed_offset,
                p.committed_leader_epoch,
                p.committed_metadata,
            )
            for t in asked.topics
            for p in t.partitions
        }
        assert told == {("t", 0): (5, -1, ""), ("u", 0): (0, 3, "note")}

    run(scenario)


def test_a_commit_is_refused_partition_by_partition():
    async def scenario(groups, broker):
        told = {T0: ErrorCode.none, T1: ErrorCode.unknown_topic_or_partition}
        broker.on(ApiKey.OFFSET_COMMIT, of_partitions(told))
        found = await groups.commit("g", dict.fromkeys((T0, T1, U0), CommittedOffset(1)))
        assert found[T0] is None
        assert found[T1].code is ErrorCode.unknown_topic_or_partition
        assert "left this out" in found[U0].message
        assert await groups.commit("g", {}) == {}

    run(scenario)


def test_offsets_are_deleted_and_what_concerns_the_group_is_raised():
    async def scenario(groups, broker):
        told = {T0: ErrorCode.none, U0: ErrorCode.group_subscribed_to_topic}
        broker.on(ApiKey.OFFSET_DELETE, of_partitions(told))
        found = await groups.delete_offsets("g", [T0, U0])
        assert found[T0] is None
        assert found[U0].code is ErrorCode.group_subscribed_to_topic
        unknown = ErrorCode.group_id_not_found
        broker.on(ApiKey.OFFSET_DELETE, lambda request: reply_to(request)(error_code=unknown))
        with pytest.raises(KafkaError) as raised:
            await groups.delete_offsets("g", [T0])
        assert raised.value.code is unknown

    run(scenario)


def test_groups_are_deleted_each_with_its_own_outcome():
    async def scenario(groups, broker):
        def handler(request):
            reply = reply_to(request)
            codes = {"a": ErrorCode.none, "b": ErrorCode.non_empty_group}
            named = [name for name in request.groups_names if name in codes]
            return reply(results=[reply.results(group_id=n, error_code=codes[n]) for n in named])

        broker.on(ApiKey.DELETE_GROUPS, handler)
        found = await groups.delete(["a", "b", "c"])
        assert found["a"] is None
        assert found["b"].code is ErrorCode.non_empty_group
        assert "left this out" in found["c"].message

    run(scenario)


def test_members_are_removed_together_by_id_or_as_static_members():
    async def scenario(groups, broker):
        def handler(request):
            reply = reply_to(request)
            return reply(
                members=[
                    reply.members(
                        member_id=one.member_id,
                        group_instance_id=one.group_instance_id,
                        error_code=ErrorCode.unknown_member_id
                        if one.member_id == "b"
                        else ErrorCode.none,
                    )
                    for one in request.members
                ]
            )

        broker.on(ApiKey.LEAVE_GROUP, handler)
        broker.on(ApiKey.DESCRIBE_GROUPS, classic(m=b"", n=b""))
        a, b, static = MemberToRemove("a"), MemberToRemove("b"), MemberToRemove(instance_id="i")
        removed = await groups.remove_members("g", [a, b, static])
        assert (removed[a], removed[static]) == (None, None)
        assert removed[b].code is ErrorCode.unknown_member_id
        assert len(broker.asked(ApiKey.LEAVE_GROUP)) == 1
        # Without a name: all that the group has.
        removed = await groups.remove_members("g")
        assert removed == {MemberToRemove("m"): None, MemberToRemove("n"): None}

    run(scenario)


def test_members_are_removed_one_by_one_from_an_old_broker():
    async def scenario(groups, broker):
        broker.on(ApiKey.LEAVE_GROUP, lambda request: reply_to(request)(), (0, 2))
        removed = await groups.remove_members("g", [MemberToRemove("a"), MemberToRemove("b")])
        assert set(removed.values()) == {None}
        assert [one.member_id for one in broker.asked(ApiKey.LEAVE_GROUP)] == ["a", "b"]

    run(scenario)
