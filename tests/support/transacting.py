"""A transactional producer, and a coordinator that answers as a test needs."""

from __future__ import annotations

from collections import defaultdict, deque
from random import Random

from kcli.client.config import ProducerConfig
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK, Topic
from tests.support.scripted_broker import ScriptedBroker, metadata


class Coordinator:
    """The coordinator of transactions and groups, on one broker. `says[api]` holds the error codes
    of its next responses to an API, None to close the connection instead; later ones succeed.
    """

    def __init__(self, broker: ScriptedBroker, implicit: bool) -> None:
        self.broker = broker
        self.implicit = implicit
        self.says: dict[int, deque[ErrorCode | None]] = defaultdict(deque)
        self.epoch = -1
        self.offsets: dict[tuple[str, int], int] = {}
        if implicit:
            broker.features["transaction.version"] = 2
        for api, handler in {
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.INIT_PRODUCER_ID: self._initialize,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.END_TXN: self._end,
            ApiKey.TXN_OFFSET_COMMIT: self.commit_offsets,
        }.items():
            broker.on(api, handler)

    def calls(self) -> list[str]:
        """Return the names of its requests, except those that every broker receives."""
        names = {
            ApiKey.INIT_PRODUCER_ID: "init",
            ApiKey.ADD_PARTITIONS_TO_TXN: "partitions",
            ApiKey.ADD_OFFSETS_TO_TXN: "offsets",
            ApiKey.END_TXN: "end",
            ApiKey.TXN_OFFSET_COMMIT: "commit offsets",
            ApiKey.PRODUCE: "produce",
        }
        asked = [(request.__api_key__, request) for request in self.broker.requests]
        return [
            ("commit" if request.committed else "abort") if api == ApiKey.END_TXN else names[api]
            for api, request in asked
            if api in names
        ]

    def _code(self, api: int) -> ErrorCode | None:
        code = self.says[api].popleft() if self.says[api] else OK
        if code is None:
            self.broker.drop()
        return code

    def _find(self, request):
        reply, code = reply_to(request), self._code(ApiKey.FIND_COORDINATOR)
        at = {"node_id": 0, "host": "broker-0", "port": 9092, "error_code": code}
        keys = getattr(request, "coordinator_keys", ())
        return reply(coordinators=[reply.coordinators(key=key, **at) for key in keys], **at)

    def _initialize(self, request):
        if (code := self._code(ApiKey.INIT_PRODUCER_ID)) is None:
            return None
        self.epoch += code is OK
        return reply_to(request)(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _add_partitions(self, request):
        if (code := self._code(ApiKey.ADD_PARTITIONS_TO_TXN)) is None:
            return None
        reply = reply_to(request)
        topic = reply.results_by_topic_v3_and_below
        return reply(
            results_by_topic_v3_and_below=[
                topic(
                    name=asked.name,
                    results_by_partition=[
                        topic.results_by_partition(partition_index=p, partition_error_code=code)
                        for p in asked.partitions
                    ],
                )
                for asked in request.v3_and_below_topics
            ]
        )

    def _add_offsets(self, request):
        code = self._code(ApiKey.ADD_OFFSETS_TO_TXN)
        return None if code is None else reply_to(request)(error_code=code)

    def _end(self, request):
        if (code := self._code(ApiKey.END_TXN)) is None:
            return None
        if code is OK and self.implicit:
            self.epoch += 1
        return reply_to(request)(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def commit_offsets(self, request):
        reply = reply_to(request)
        topics = []
        for topic in request.topics:
            partitions = []
            for p in topic.partitions:
                if (code := self._code(ApiKey.TXN_OFFSET_COMMIT)) is OK:
                    self.offsets[topic.name, p.partition_index] = p.committed_offset
                partitions.append(
                    reply.topics.partitions(partition_index=p.partition_index, error_code=code)
                )
            topics.append(reply.topics(name=topic.name, partitions=partitions))
        return reply(topics=topics)


def run(scenario, *, implicit: bool, partitions: int = 2, **settings: str):
    """Run `scenario(producer, coordinator, topic)`, with the producer started and not
    initialized.
    """

    async def main(loop: SimLoop):
        broker, topic = ScriptedBroker(loop, "broker-0"), Topic()
        leads = [(0, 1)] * partitions
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", OK, *leads)]))
        broker.on(ApiKey.PRODUCE, topic.handle)
        coordinator = Coordinator(broker, implicit)
        await broker.start()
        given = {"bootstrap.servers": "broker-0:9092", "transactional.id": "x"}
        config = ProducerConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        producer = Producer(config, now_ms=lambda: 1234, random=Random(1))
        await producer.start()
        try:
            return await scenario(producer, coordinator, topic)
        finally:
            await producer.close(timeout_ms=0)

    return simulate(main, 1)
