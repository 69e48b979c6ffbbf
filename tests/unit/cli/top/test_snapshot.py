"""What one look asks, what it makes of answers and refusals, and what it costs that one is silent.

Two brokers: 0 leads t-0 and coordinates the group, 1 leads t-1.  In virtual time.
"""

from __future__ import annotations

import asyncio

import pytest

from kcli.servers.reachability import ANSWER_S
from kcli.top.snapshot import GroupSnapshot, Selection, take
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import ends, metadata

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPICS = [("t", ErrorCode.none, (0, 1), (1, 1)), ("u", ErrorCode.none, (1, 1))]
SIZES = {T0: 70, T1: 71, U0: 72}
ENDS = {T0: 10, T1: 11, U0: 12}
EVERYTHING = Selection(lambda topic: True, lambda group: True, False)


def sizes(request):
    reply = reply_to(request)

    def replica(partition, **fields):
        told = {"partition_index": partition.partition, "offset_lag": 0, "is_future_key": False}
        one = reply.results.topics.partitions(**told | fields)
        return reply.results.topics(name=partition.topic, partitions=[one])

    kept = [replica(p, partition_size=size) for p, size in SIZES.items()]
    moved = [replica(T0, partition_size=5, is_future_key=True)]
    return reply(
        error_code=ErrorCode.none,
        results=[
            reply.results(error_code=ErrorCode.none, log_dir=path, topics=topics)
            for path, topics in (("/a", kept), ("/b", moved))
        ],
    )


def listing(*groups):
    def handler(request):
        reply = reply_to(request)
        return reply(
            groups=[
                reply.groups(group_id=name, protocol_type=protocol, group_state="Stable")
                for name, protocol in groups
            ]
        )

    return handler


def committed(request):
    reply = reply_to(request)

    def of(partition):
        one = reply.groups.topics.partitions(
            partition_index=partition.partition,
            committed_offset=3,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.none,
        )
        return reply.groups.topics(name=partition.topic, partitions=[one])

    refused = ErrorCode.group_authorization_failed
    return reply(
        groups=[
            reply.groups(group_id=group.group_id, error_code=refused, topics=[])
            if group.group_id == "secret"
            else reply.groups(
                group_id=group.group_id, error_code=ErrorCode.none, topics=[of(T0), of(U0)]
            )
            for group in request.groups
        ]
    )


def refusing(code):
    return lambda request: reply_to(request)(error_code=code)


def silent(request):
    return None


def looked(arrange, wanted=EVERYTHING, **how):
    """A look at two brokers that `arrange` has changed, and the seconds that it took."""

    async def scenario(admin, *brokers):
        for broker in brokers:
            broker.on(ApiKey.METADATA, metadata(*brokers, controller=1, topics=TOPICS))
            broker.on(ApiKey.LIST_OFFSETS, ends(lambda topic, partition: ENDS[topic, partition]))
            broker.on(ApiKey.DESCRIBE_LOG_DIRS, sizes)
            broker.on(ApiKey.LIST_GROUPS, listing())
            broker.on(ApiKey.OFFSET_FETCH, committed)
        brokers[0].on(ApiKey.LIST_GROUPS, listing(("g", "consumer"), ("workers", "connect")))
        arrange(*brokers)
        loop = asyncio.get_running_loop()
        began = loop.time()
        seen = await take(admin.cluster, wanted, **{"patient": True} | how)
        asked = [{r.__api_key__ for r in broker.requests} for broker in brokers]
        counts = [len(broker.requests) for broker in brokers]
        return seen, loop.time() - began, asked, counts

    return run(scenario, brokers=2)


def nothing(*brokers):
    pass


def test_every_broker_tells_of_what_it_leads_and_coordinates():
    seen, *_ = looked(nothing)
    assert seen.controller == 1
    assert seen.responses[0].ends.values == {T0: 10}
    assert seen.responses[1].ends.values == {T1: 11, U0: 12}
    assert seen.responses[0].sizes.values == SIZES  # without what is on its way to another disk
    assert seen.responses[0].groups.values == {"g": GroupSnapshot("Stable", {T0: 3, U0: 3})}
    assert seen.groups.keys() == {"g"}  # and not workers of Connect
    assert seen.has_all_groups
    assert seen.refused == {}


def test_a_look_is_few_requests():
    """ApiVersions, ListOffsets, DescribeLogDirs and ListGroups of each; and once Metadata and
    OffsetFetch."""
    *_, counts = looked(nothing)
    assert sum(counts) == 2 * 4 + 2


def test_only_what_is_wanted_is_asked_for():
    only_u = Selection(lambda topic: topic == "u", lambda group: True, True)
    seen, _, asked, _ = looked(nothing, only_u)
    assert seen.topics.keys() == {"u"}
    assert seen.responses[0].sizes.values == {U0: 72}
    assert seen.responses[0].groups.values == {"g": GroupSnapshot("Stable", {U0: 3})}
    assert ApiKey.LIST_OFFSETS not in asked[0]
    no_group = Selection(lambda topic: True, lambda group: group == "other", False)
    seen, _, asked, _ = looked(nothing, no_group)
    assert seen.groups == {}
    assert ApiKey.OFFSET_FETCH not in asked[0] | asked[1]
    nobody_reads = Selection(lambda topic: topic == "none", lambda group: True, True)
    seen, *_ = looked(nothing, nobody_reads)
    assert seen.groups == {}


@pytest.mark.parametrize(
    "handler", [refusing(ErrorCode.cluster_authorization_failed), lambda r: reply_to(r)(results=[])]
)
def test_a_refusal_is_told_and_the_rest_is_known(handler):
    seen, *_ = looked(lambda one, other: other.on(ApiKey.DESCRIBE_LOG_DIRS, handler))
    (what,) = seen.refused
    assert what == "sizes of replicas of broker 1"
    assert seen.responses[1].sizes is None
    assert seen.responses[1].ends.values == {T1: 11, U0: 12}
    assert not seen.responses[1].is_silent
    assert seen.responses[0].sizes.values == SIZES


def test_what_a_coordinator_that_loads_does_not_tell_is_no_refusal():
    loading = refusing(ErrorCode.coordinator_load_in_progress)
    seen, *_ = looked(lambda one, other: one.on(ApiKey.LIST_GROUPS, loading))
    assert seen.refused == {}
    assert not seen.has_all_groups
    assert not seen.responses[0].is_silent


def test_a_group_whose_offsets_are_not_for_us_is_there():
    secret = listing(("g", "consumer"), ("secret", "consumer"))
    seen, *_ = looked(lambda one, other: one.on(ApiKey.LIST_GROUPS, secret))
    assert seen.groups["secret"].values == GroupSnapshot("Stable", None)
    assert seen.groups["g"].values.committed == {T0: 3, U0: 3}


def test_a_broker_that_falls_silent_costs_a_look_one_wait():
    def fall_silent(one, other):
        for api in (ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.LIST_GROUPS):
            other.on(api, silent)

    seen, took_s, *_ = looked(fall_silent)
    assert ANSWER_S <= took_s < ANSWER_S + 1
    assert seen.responses[1].is_silent
    assert not seen.responses[0].is_silent
    assert seen.responses[0].ends.values == {T0: 10}
    assert not seen.has_all_groups


def test_a_broker_that_cannot_be_reached_costs_nothing():
    seen, took_s, *_ = looked(lambda one, other: other.stop())
    assert took_s < 1
    assert seen.responses[1].is_silent
    assert not seen.responses[0].is_silent


def quorum(leader_id, code=ErrorCode.none):
    def handler(request):
        reply = reply_to(request)
        partition = reply.topics.partitions(
            partition_index=0, error_code=code, leader_id=leader_id, current_voters=[], observers=[]
        )
        name = request.topics[0].topic_name
        return reply(
            error_code=ErrorCode.none,
            topics=[reply.topics(topic_name=name, partitions=[partition])],
        )

    return handler


@pytest.mark.parametrize(
    ("handler", "controller"),
    [
        (quorum(100), 100),
        (quorum(-1), None),
        (quorum(0, ErrorCode.unknown_topic_or_partition), None),
        (refusing(ErrorCode.cluster_authorization_failed), None),
    ],
)
def test_in_kraft_the_controller_is_the_leader_of_the_quorum(handler, controller):
    def in_kraft(*brokers):
        for broker in brokers:
            broker.on(ApiKey.DESCRIBE_QUORUM, handler)

    seen, *_ = looked(in_kraft)
    assert seen.controller == controller


def test_a_cluster_that_is_away_is_told_of_at_once_unless_it_is_waited_for():
    def away(*brokers):
        for broker in brokers:
            broker.stop()

    async def looks(admin, *brokers):
        away(*brokers)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(ConnectionRefusedError):
            await take(admin.cluster, EVERYTHING, patient=False)
        assert loop.time() - began < 2

    run(looks, brokers=2)
