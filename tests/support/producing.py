"""A producer, and a broker that answers its batches as a test needs."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from random import Random

from kcli.client.config import ProducerConfig
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import RecordBatch, batches
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata

OK = ErrorCode.none


class Topic:
    """A topic on the broker, and its responses: `verdict(batch)` is a code, or None for no
    response.
    """

    def __init__(self) -> None:
        self.log: list[RecordBatch] = []
        self.verdict: Callable[[RecordBatch], ErrorCode | None] = lambda batch: OK
        self.append_time: datetime.datetime | None = None

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.log for record in batch.records()]

    def handle(self, request):
        reply = reply_to(request)
        responses = []
        for topic in request.topic_data:
            partitions = []
            for p in topic.partition_data:
                (batch,) = batches(p.records)
                code = self.verdict(batch)
                if code is None:
                    return None
                offset = -1
                if code is OK:
                    offset = sum(b.count for b in self.log)
                    self.log.append(batch)
                partitions.append(
                    reply.responses.partition_responses(
                        index=p.index,
                        error_code=code,
                        base_offset=offset,
                        log_append_time=self.append_time,
                    )
                )
            named = {
                "topic_id": getattr(topic, "topic_id", None),
                "name": getattr(topic, "name", ""),
            }
            responses.append(reply.responses(**named, partition_responses=partitions))
        return reply(responses=responses)


def identity(request):
    return reply_to(request)(error_code=OK, producer_id=7, producer_epoch=0)


def run(
    scenario,
    *,
    produce_versions=None,
    partitions: int = 1,
    on_batch=None,
    plugins=None,
    **settings: str,
):
    async def main(loop: SimLoop):
        broker, topic = ScriptedBroker(loop, "broker-0"), Topic()
        leads = [(0, 1)] * partitions
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", OK, *leads)]))
        broker.on(ApiKey.INIT_PRODUCER_ID, identity)
        broker.on(ApiKey.PRODUCE, topic.handle, produce_versions)
        await broker.start()
        given = {"bootstrap.servers": "broker-0:9092"}
        config = ProducerConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        producer = Producer(
            config,
            now_ms=lambda: 1234,
            random=Random(1),
            on_batch=on_batch,
            **(plugins or {}),
        )
        await producer.start()
        try:
            return await scenario(producer, broker, topic)
        finally:
            await producer.close(timeout_ms=0)

    return simulate(main, 1)
