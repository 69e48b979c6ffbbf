"""A consumer, and a broker that answers its fetches as a test needs."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer, ConsumerRecord
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata

OK = ErrorCode.none
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=1)
MAX_BATCHES = 4


class Log:
    """A partition of the broker: batches by base offset."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.start = self.end = 0
        self.epoch = 1
        self.error: ErrorCode = OK
        self.divergence: tuple[int, int] = (-1, -1)

    def append(self, count: int = 1, **fields) -> None:
        """Append a batch of `count` records: each value is its offset, each timestamp 1000 more."""
        records = [(1000 + self.end + n, None, b"%d" % (self.end + n), ()) for n in range(count)]
        data = encode_batch(records, base_offset=self.end, leader_epoch=self.epoch, **fields)
        self.batches.append((self.end, count, data))
        self.end += count

    def read(self, offset: int) -> bytes:
        found = [data for base, count, data in self.batches if base + count > offset]
        return b"".join(found[:MAX_BATCHES])

    def offset(self, spec: int) -> int:
        if spec == -1:
            return self.end
        if spec == -2:
            return self.start
        return next((n for n in range(self.start, self.end) if 1000 + n >= spec), -1)


class Server:
    """A broker that leads every partition, with KIP-227's sessions and long polls."""

    def __init__(self, loop: SimLoop, name: str = "broker-0", id: int = 0) -> None:
        self.loop = loop
        self.broker = ScriptedBroker(loop, name, id=id)
        self.logs = {T0: Log(), T1: Log()}
        self.session: dict[TopicPartition, object] | None = None
        self.sessions = True
        self.epoch = 0
        self.broker.on(ApiKey.FETCH, self.fetch)
        self.broker.on(ApiKey.LIST_OFFSETS, self.list_offsets)
        self.broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, self.end_of_epoch)
        self.lead()

    def lead(self) -> None:
        leads = [(self.broker.id, log.epoch) for log in self.logs.values()]
        self.broker.on(ApiKey.METADATA, metadata(self.broker, topics=[("t", OK, *leads)]))

    @property
    def fetches(self):
        return self.broker.asked(ApiKey.FETCH)

    def list_offsets(self, request):
        reply = reply_to(request)
        found = []
        for p in request.topics[0].partitions:
            log = self.logs[TopicPartition("t", p.partition_index)]
            found.append(
                reply.topics.partitions(
                    partition_index=p.partition_index,
                    error_code=OK,
                    offset=log.offset(p.timestamp),
                    timestamp=-1,
                    leader_epoch=log.epoch,
                )
            )
        return reply(topics=[reply.topics(name="t", partitions=found)])

    def end_of_epoch(self, request):
        reply = reply_to(request)
        found = []
        for p in request.topics[0].partitions:
            offset, epoch = self.logs[TopicPartition("t", p.partition)].divergence
            found.append(
                reply.topics.partitions(
                    partition=p.partition, error_code=OK, end_offset=offset, leader_epoch=epoch
                )
            )
        return reply(topics=[reply.topics(topic="t", partitions=found)])

    async def fetch(self, request):
        reply = reply_to(request)
        asked = {TopicPartition("t", p.partition): p for t in request.topics for p in t.partitions}
        if getattr(request, "session_epoch", 0) <= 0:
            self.session, self.epoch = asked, 1
        elif self.session is None:
            return reply(error_code=ErrorCode.fetch_session_id_not_found)
        else:
            assert request.session_epoch == self.epoch
            self.epoch += 1
            for topic in request.forgotten_topics_data:
                for n in topic.partitions:
                    del self.session[TopicPartition("t", n)]
            self.session |= asked
        deadline = self.loop.time() + request.max_wait.total_seconds()
        while not (found := self.answers(reply)) and self.loop.time() < deadline:
            await asyncio.sleep(0.001)
        if not self.sessions:
            self.session = None
        return reply(
            error_code=OK,
            session_id=77 if self.sessions else 0,
            responses=[reply.responses(topic="t", topic_id=ID, partitions=found)],
        )

    def answers(self, reply):
        found = []
        for partition, p in self.session.items():
            log = self.logs[partition]
            error = log.error
            if error is OK and not log.start <= p.fetch_offset <= log.end:
                error = ErrorCode.offset_out_of_range
            if error is OK and not log.read(p.fetch_offset):
                continue
            found.append(
                reply.responses.partitions(
                    partition_index=partition.partition,
                    error_code=error,
                    high_watermark=log.end,
                    last_stable_offset=log.end,
                    log_start_offset=log.start,
                    aborted_transactions=None,
                    records=log.read(p.fetch_offset) if error is OK else b"",
                )
            )
        return found


def run(scenario, *, plugins=None, **settings: str):
    async def main(loop: SimLoop):
        server = Server(loop)
        await server.broker.start()
        given = {"bootstrap.servers": "broker-0:9092", "auto.offset.reset": "earliest"}
        config = ConsumerConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        random = Random(1)
        consumer = Consumer(config, now_ms=lambda: 1005, random=random, **(plugins or {}))
        await consumer.start()
        try:
            return await scenario(consumer, server)
        finally:
            await consumer.close()

    return simulate(main, 1)


async def read(consumer: Consumer, count: int, **options) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        polled = await consumer.poll(5000, **options)
        assert polled, f"only {len(found)} of {count} came"
        found += polled
    return found
