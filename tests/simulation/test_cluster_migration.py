"""A group on three brokers migrates from the classic to the consumer protocol and back (KIP-848),
member by member, while the broker of its coordinator is killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kcli.client.errors import ClientError
from kcli.client.group.group_descriptions import CLASSIC, CONSUMER
from kserver.coordinator.topics import partition_of
from kserver.errors import KafkaError
from kserver.model import CONSUMER_OFFSETS
from tests.support import group_run
from tests.support.checks import verify
from tests.support.group_run import BROKER, GROUP, GroupRun, committed
from tests.support.history import Wanted
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster

BROKERS, PARTITIONS, MEMBERS = 3, 6, 2
OFFSETS_PARTITIONS = int(BROKER["offsets.topic.num.partitions"])
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
"""Assignors without user data: a group that uses another assignor cannot be upgraded."""
MAX_PAUSE_S = 3.0
"""Maximum time between two members that join or leave."""
SETTLED_S = 90
"""Time limit for a group to settle, from the last member that joined or left.  The broker that was
killed may start after that."""


async def kill_coordinator(run: GroupRun, cluster: SimulatedCluster) -> None:
    """Kill the coordinator's broker at a random moment, often soon after the first member with
    the other protocol joined, and start it again."""
    random = run.loop.random
    await asyncio.sleep(random.uniform(0, random.choice([1, 2 * MEMBERS * MAX_PAUSE_S])))
    leader = cluster.leader(CONSUMER_OFFSETS, partition_of(GROUP, OFFSETS_PARTITIONS))
    assert leader is not None
    await cluster.kill(leader.leader_id)
    run.disturbed(f"broker {leader.leader_id} was killed")
    # Its session ends after 6 s, and another broker loads the group; before that, itself does.
    await asyncio.sleep(random.uniform(0, 20))
    await cluster.start(leader.leader_id)
    run.disturbed(f"broker {leader.leader_id} was started")


async def replace_members(run: GroupRun, settings: Mapping[str, str]) -> None:
    """Let members with these settings join one by one, and the others leave."""
    random = run.loop.random
    run.settings = settings
    leaving = list(run.stops)
    steps = [*["join"] * (MEMBERS - 1), *["leave"] * len(leaving)]
    random.shuffle(steps)
    for step in ["join", *steps]:
        if step == "join":
            run.join()
        else:
            run.stops.pop(leaving.pop(0)).set()
        await asyncio.sleep(random.uniform(0, MAX_PAUSE_S))


async def until_settled(run: GroupRun, admin: Admin, group_type: str) -> None:
    """Wait until the group has this type and all members are in it, and each partition has one
    owner, by the members and by the coordinator."""
    async with asyncio.timeout(SETTLED_S):
        while not await is_settled(run, admin, group_type):
            await asyncio.sleep(0.1)


async def is_settled(run: GroupRun, admin: Admin, group_type: str) -> bool:
    group = (await admin.groups.describe([GROUP]))[GROUP]
    if isinstance(group, KafkaError) or run.stops.keys() - run.consumers.keys():
        return False
    by_members = [run.consumers[name].assignment for name in run.stops]
    by_coordinator = [member.assignment for member in group.members]
    return (
        (group.type, group.state, len(group.members)) == (group_type, "Stable", len(run.stops))
        and sorted(sum(by_members, ())) == [*run.partitions]
        and sorted(sum(by_coordinator, ())) == [*run.partitions]
    )


async def watch_committed(run: GroupRun) -> None:
    """Record the committed offsets twice a second, except while no broker coordinates."""
    while True:
        try:
            await committed(run)
        except (KafkaError, ClientError) as error:
            run.loop.trace.add("committed", str(error))
        await asyncio.sleep(0.5)


async def migrate(loop: SimLoop, policy: str) -> None:
    random = loop.random
    settings = {
        "offsets.topic.replication.factor": "3",
        "min.insync.replicas": random.choice(["1", "2"]),
        "group.consumer.migration.policy": policy,
    }
    cluster = SimulatedCluster(loop, BROKERS, BROKER | settings)
    await cluster.start()
    classic = group_run.CLASSIC | {"partition.assignment.strategy": random.choice(STRATEGIES)}
    consumer = {"group.protocol": "consumer"}
    run = GroupRun(loop, tuple(cluster.brokers.values()), classic, PARTITIONS)
    async with Admin(AdminConfig.of(cluster.bootstrap), random=run.random()) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS, BROKERS)])
        run.history.append(Wanted(loop.time(), GROUP, frozenset(run.partitions)))
        calm = asyncio.Event()
        producing = loop.create_task(run.produce(calm))
        for _ in range(MEMBERS):
            run.join()
        await until_settled(run, admin, CLASSIC)
        watching = loop.create_task(watch_committed(run))
        # A group that may not be downgraded keeps its type, with classic members alone.
        downgraded = CLASSIC if policy == "bidirectional" else CONSUMER
        for members, group_type in ((consumer, CONSUMER), (classic, downgraded)):
            killing = loop.create_task(kill_coordinator(run, cluster))
            await replace_members(run, members)
            await until_settled(run, admin, group_type)
            await killing
            await cluster.until_all_in_isr()
            await until_settled(run, admin, group_type)
        calm.set()
        sent = {p: set(range(count)) for p, count in (await producing).items()}
        assert len(sent) == PARTITIONS
        async with asyncio.timeout(SETTLED_S):
            while run.read != sent:
                await asyncio.sleep(0.1)
        watching.cancel()
        for stop in run.stops.values():
            stop.set()
        await asyncio.gather(*run.members.values())
        await committed(run)
    verify(run.history)
    cluster.check()
    for id_ in sorted(cluster.up):
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
# 26: a member kept connecting to the killed coordinator, and its session ended.
@pytest.mark.parametrize("seed", [*seeds(3), 26])
def test_a_group_migrates_while_its_coordinator_is_killed(seed: int, policy: str) -> None:
    simulate(lambda loop: migrate(loop, policy), seed)
