"""Groups as scripted brokers tell of them, where no real one would keep still for it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.config import AdminConfig
from kcli.client.group.group_protocol import write_assignment
from kcli.command.options import Refused
from kcli.groups.description import print_description
from kcli.groups.group_queries import describe_groups, readings
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, ends, metadata

T = [TopicPartition("t", n) for n in range(3)]
GONE = TopicPartition("gone", 0)
END = 10


def run(scenario, *, members=(), committed=(), state="Stable", protocol="consumer"):
    """`members` are what each is assigned, `committed` offsets by partition; partition 2 of the
    topic has no leader."""

    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop, "broker-0", id=0)
        topic = ("t", ErrorCode.none, (0, 1), (0, 1), (-1, 1))
        gone = ("gone", ErrorCode.unknown_topic_or_partition)
        broker.on(ApiKey.METADATA, metadata(broker, topics=[topic, gone]))
        broker.on(ApiKey.FIND_COORDINATOR, _coordinator(broker), (0, 3))
        broker.on(
            ApiKey.DESCRIBE_GROUPS, lambda request: _groups(request, members, state, protocol)
        )
        broker.on(ApiKey.OFFSET_FETCH, lambda request: _offsets(request, dict(committed)), (1, 7))
        broker.on(ApiKey.LIST_OFFSETS, ends(lambda topic, partition: END))
        await broker.start()
        config = AdminConfig.of({"bootstrap.servers": broker.address})
        async with Admin(config, random=Random(1)) as admin:
            return await scenario(admin, broker)

    return simulate(main, 1)


def _coordinator(broker):
    return lambda request: reply_to(request)(
        node_id=broker.id, host=broker.name, port=broker.port, error_code=ErrorCode.none
    )


def _groups(request, members, state, protocol):
    reply = reply_to(request)
    told = [
        reply.groups.members(
            member_id=f"m{n}", client_id="c", client_host="/h", member_assignment=assigned
        )
        for n, assigned in enumerate(map(write_assignment, members))
    ]
    return reply(
        groups=[
            reply.groups(group_id=name, group_state=state, protocol_type=protocol, members=told)
            for name in request.groups
        ]
    )


def _offsets(request, committed):
    reply = reply_to(request)
    return reply(
        topics=[
            reply.topics(
                name=partition.topic,
                partitions=[
                    reply.topics.partitions(
                        partition_index=partition.partition, committed_offset=offset
                    )
                ],
            )
            for partition, offset in committed.items()
        ]
    )


async def _of_group(admin):
    (group,) = (await describe_groups(admin, ["g"])).values()
    return (await readings(admin, [group]))["g"]


def test_what_was_committed_is_asked_before_where_partitions_end():
    async def scenario(admin, broker):
        await _of_group(admin)
        asked = [request.__api_key__ for request in broker.requests]
        assert asked.index(ApiKey.OFFSET_FETCH) < asked.index(ApiKey.LIST_OFFSETS)
        assert ApiKey.OFFSET_FETCH not in asked[asked.index(ApiKey.LIST_OFFSETS) :]

    run(scenario, committed={T[0]: 4})


def test_members_with_most_partitions_come_first_and_what_nobody_reads_last():
    async def scenario(admin, broker):
        found = await _of_group(admin)
        assert [(one.partition, one.member and one.member.id) for one in found] == [
            (T[0], "m1"),
            (T[1], "m1"),
            (T[2], "m0"),
            (GONE, None),
        ]
        assert [one.lag for one in found] == [None, 7, None, None]

    run(scenario, members=[[T[2]], [T[1], T[0]]], committed={T[1]: 3, GONE: 5})


def test_a_partition_without_a_leader_or_a_topic_has_no_end():
    async def scenario(admin, broker):
        found = {one.partition: one for one in await _of_group(admin)}
        assert (found[T[2]].committed, found[T[2]].end) == (3, None)
        assert (found[GONE].committed, found[GONE].end) == (5, None)
        assert found[T[0]].end == END

    run(scenario, committed={T[0]: 1, T[2]: 3, GONE: 5})


def test_a_group_that_is_not_of_consumers_is_refused():
    async def scenario(admin, broker):
        (group,) = (await describe_groups(admin, ["g"])).values()
        assert isinstance(group, Refused)
        assert "GroupId g is not a consumer group (connect)." in str(group)

    run(scenario, protocol="connect")


@pytest.mark.parametrize("view", ["offsets", "members", "state"])
@pytest.mark.parametrize(
    ("state", "status", "out", "err"),
    [
        ("Stable", 0, "", ""),
        ("Empty", 0, "", "\nConsumer group 'g' has no active members.\n"),
        ("PreparingRebalance", 0, "", "\nWarning: Consumer group 'g' is rebalancing.\n"),
        ("CompletingRebalance", 0, "", "\nWarning: Consumer group 'g' is rebalancing.\n"),
        ("Dead", 1, "\nError: Consumer group 'g' does not exist.\n", ""),
    ],
)
def test_the_state_of_a_group_is_told_before_its_table(view, state, status, out, err, capsys):
    given = SimpleNamespace(
        members=view == "members", state="" if view == "state" else None, verbose=False
    )

    async def scenario(admin, broker):
        return await print_description(admin, given, ["g"], None)

    assert run(scenario, committed={T[0]: 4}, state=state) == status
    told = capsys.readouterr()
    assert told.err == err
    assert told.out.startswith(out + "\nGROUP " if out == "" or view == "members" else out)
    assert ("GROUP" in told.out) == (state != "Dead" or view == "members")
