"""A consumer in a group of its own, and a coordinator that answers as a test needs."""

from __future__ import annotations

import asyncio
import datetime
from collections import defaultdict
from random import Random
from typing import Any

from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.consumer.listener import RebalanceListener
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.consuming import ID, T0, T1, Server
from tests.support.loop import SimLoop, simulate

OK = ErrorCode.none
GIVEN_ID = "m-1"


class Coordinator(Server):
    """The coordinator of one group: `refuse` sets errors for the next requests, `rebalance` starts
    one with the next heartbeat.
    """

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.refusals: dict[int, list[ErrorCode]] = defaultdict(list)
        self.generation = 0
        self.is_rebalancing = False
        self.joined: list[str] = []
        self.committed: dict[TopicPartition, Any] = {}
        self.target = [T0, T1]
        """The target assignment by KIP-848."""
        self.group_epoch = 1
        self.interval_ms = 1000
        self.extra_members: list[Any] = []
        self.id = self.broker.id
        """The broker id that FindCoordinator returns."""
        for key, answer in (
            (ApiKey.FIND_COORDINATOR, self.find),
            (ApiKey.JOIN_GROUP, self.join),
            (ApiKey.SYNC_GROUP, self.sync),
            (ApiKey.HEARTBEAT, self.beat),
            (ApiKey.LEAVE_GROUP, self.leave),
            (ApiKey.OFFSET_COMMIT, self.commit),
            (ApiKey.OFFSET_FETCH, self.look_up),
            (ApiKey.CONSUMER_GROUP_HEARTBEAT, self.consumer_beat),
        ):
            self.broker.on(key, answer)

    def refuse(self, api_key: int, *codes: ErrorCode) -> None:
        self.refusals[api_key] += codes

    def refusal(self, api_key: int) -> ErrorCode:
        return self.refusals[api_key].pop(0) if self.refusals[api_key] else OK

    def asked(self, api_key: int) -> list[Any]:
        return self.broker.asked(api_key)

    def find(self, request):
        reply = reply_to(request)
        found = reply.coordinators(
            key="g", node_id=self.id, host=self.broker.name, port=self.broker.port
        )
        return reply(coordinators=[found])

    def join(self, request):
        reply = reply_to(request)
        code = self.refusal(ApiKey.JOIN_GROUP)
        if code is OK and not request.member_id and request.group_instance_id is None:
            code = ErrorCode.member_id_required
        if code is not OK:
            return reply(error_code=code, member_id=GIVEN_ID, protocol_name="", leader="")
        self.generation += 1
        self.is_rebalancing = False
        self.joined.append(request.reason or "")
        member_id = request.member_id or GIVEN_ID
        first = request.protocols[0]
        me = reply.members(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            metadata=first.metadata,
        )
        return reply(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=first.name,
            leader=member_id,
            member_id=member_id,
            members=[me, *self.extra_members],
        )

    def sync(self, request):
        reply = reply_to(request)
        if (code := self.refusal(ApiKey.SYNC_GROUP)) is not OK:
            return reply(error_code=code)
        plan = {a.member_id: a.assignment for a in request.assignments}
        return reply(
            protocol_type="consumer",
            protocol_name=request.protocol_name,
            assignment=plan[request.member_id],
        )

    def beat(self, request):
        code = self.refusal(ApiKey.HEARTBEAT)
        if code is OK and self.is_rebalancing:
            code = ErrorCode.rebalance_in_progress
        return reply_to(request)(error_code=code)

    def leave(self, request):
        return reply_to(request)()

    def commit(self, request):
        reply = reply_to(request)
        code = self.refusal(ApiKey.OFFSET_COMMIT)
        topics = []
        for topic in request.topics:
            for p in topic.partitions:
                if code is OK:
                    self.committed[TopicPartition(topic.name, p.partition_index)] = p
            done = [
                reply.topics.partitions(partition_index=p.partition_index, error_code=code)
                for p in topic.partitions
            ]
            topics.append(reply.topics(name=topic.name, partitions=done))
        return reply(topics=topics)

    def look_up(self, request):
        reply = reply_to(request)
        (group,) = request.groups
        if (code := self.refusal(ApiKey.OFFSET_FETCH)) is not OK:
            return reply(groups=[reply.groups(group_id=group.group_id, error_code=code)])
        topics = []
        for topic in group.topics:
            found = []
            for n in topic.partition_indexes:
                at = self.committed.get(TopicPartition(topic.name, n))
                found.append(
                    reply.groups.topics.partitions(
                        partition_index=n,
                        committed_offset=-1 if at is None else at.committed_offset,
                        committed_leader_epoch=-1,
                        metadata="" if at is None else at.committed_metadata,
                        error_code=OK,
                    )
                )
            topics.append(reply.groups.topics(name=topic.name, partitions=found))
        return reply(groups=[reply.groups(group_id=group.group_id, topics=topics)])

    def consumer_beat(self, request):
        reply = reply_to(request)
        if (code := self.refusal(ApiKey.CONSUMER_GROUP_HEARTBEAT)) is not OK:
            return reply(error_code=code, error_message="as the test wants", assignment=None)
        numbers = [p.partition for p in self.target]
        of = reply.assignment.topic_partitions(topic_id=ID, partitions=numbers)
        return reply(
            member_id=request.member_id,
            member_epoch=max(self.group_epoch, request.member_epoch),
            heartbeat_interval=datetime.timedelta(milliseconds=self.interval_ms),
            assignment=reply.assignment(topic_partitions=[of]),
        )


class Heard(RebalanceListener):
    """Assigned, revoked and lost partitions, in order: ("+", 0, 1), ("-", 0), ("lost", 1)."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def on_assigned(self, partitions):
        self.events.append(("+", *(p.partition for p in partitions)))

    def on_revoked(self, partitions):
        self.events.append(("-", *(p.partition for p in partitions)))

    def on_lost(self, partitions):
        self.events.append(("lost", *(p.partition for p in partitions)))


def run(scenario, *, assignors=(), **settings: str):
    """Run `scenario(consumer, coordinator, heard)`; the consumer has subscribed to t-0 and t-1."""

    async def main(loop: SimLoop):
        coordinator = Coordinator(loop)
        await coordinator.broker.start()
        given = {
            "bootstrap.servers": "broker-0:9092",
            "auto.offset.reset": "earliest",
            "group.id": "g",
        }
        config = ConsumerConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        heard = Heard()
        async with Consumer(config, random=Random(1), assignors=assignors) as consumer:
            consumer.subscribe(["t"], listener=heard)
            return await scenario(consumer, coordinator, heard)

    return simulate(main, 1)


async def joined(consumer) -> None:
    async with asyncio.timeout(30):
        while not consumer.assignment:
            await consumer.poll(100)


async def poll_on(consumer) -> None:
    """Poll until it raises."""
    async with asyncio.timeout(30):
        while True:
            await consumer.poll(100)


async def poll_until_asked(consumer, coordinator, api_key: int, count: int) -> None:
    """Poll until the coordinator has had that many requests of the API."""
    async with asyncio.timeout(30):
        while len(coordinator.asked(api_key)) < count:
            await consumer.poll(100)


async def heard_all(consumer, heard, count: int) -> list:
    async with asyncio.timeout(60):
        while len(heard.events) < count:
            await consumer.poll(100)
    return heard.events
