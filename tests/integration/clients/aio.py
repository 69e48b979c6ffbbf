"""aiokafka: asyncio, with record batches in Cython."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from kserver.wire.special_offsets import EARLIEST, LATEST
from tests.integration.clients.client import (
    APPEND,
    CONSUME_TIMEOUT_S,
    CREATE,
    LINGER_MS,
    MAX_REQUEST_BYTES,
    PATIENCE_S,
    Record,
    Refused,
)

# While a broker restarts, every attempt to connect would log a line.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

T = TypeVar("T")
UNKNOWN_SERVER_ERROR = -1
RETRY_BACKOFF_MS = 50


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(getattr(error, "errno", UNKNOWN_SERVER_ERROR), str(error)) from error


class AioClient:
    """The event loop runs only during calls."""

    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner()
        self._address = address
        self._producers: dict[tuple[str, bool, int], AIOKafkaProducer] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._admin: AIOKafkaAdminClient | None = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with refusals():
            return self._runner.run(asyncio.wait_for(work, CONSUME_TIMEOUT_S))

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
        patience_s: int = PATIENCE_S,
    ) -> list[int]:
        return self._run(self._produce(topic, records, codec, idempotent, patience_s))

    async def _produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: str,
        idempotent: bool,
        patience_s: int,
    ) -> list[int]:
        key = (codec, idempotent, patience_s)
        if key not in self._producers:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._address,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=LINGER_MS,
                max_batch_size=MAX_REQUEST_BYTES,
                max_request_size=MAX_REQUEST_BYTES,
                retry_backoff_ms=RETRY_BACKOFF_MS,
                request_timeout_ms=1000 * patience_s,
            )
            await producer.start()
            self._producers[key] = producer
        producer = self._producers[key]
        sending = [
            await producer.send(
                topic,
                record.value,
                record.key,
                record.partition,
                record.timestamp,
                list(record.headers),
            )
            for record in records
        ]
        sent = await asyncio.gather(*sending, return_exceptions=True)
        for outcome in sent:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome.offset for outcome in sent]

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        return self._run(self._consume(topic, starts, count))

    async def _opened_consumer(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            self._consumer = AIOKafkaConsumer(
                bootstrap_servers=self._address,
                auto_offset_reset="none",
                enable_auto_commit=False,
                fetch_max_wait_ms=50,
                retry_backoff_ms=RETRY_BACKOFF_MS,
            )
            await self._consumer.start()
        return self._consumer

    async def _consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        consumer = await self._opened_consumer()
        consumer.assign([TopicPartition(topic, p) for p in starts])
        for partition, offset in starts.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        records: list[Record] = []
        while len(records) < count:
            polled = await consumer.getmany(timeout_ms=500, max_records=count - len(records))
            for found in polled.values():
                records += [
                    Record(
                        one.value,
                        one.key,
                        tuple(one.headers),
                        one.timestamp,
                        one.partition,
                        one.offset,
                        (CREATE, APPEND)[one.timestamp_type],
                    )
                    for one in found
                ]
        return records

    def offsets(self, topic: str, partition: int, times: Sequence[int]) -> list[int]:
        return self._run(self._offsets(TopicPartition(topic, partition), times))

    async def _offsets(self, where: TopicPartition, times: Sequence[int]) -> list[int]:
        consumer = await self._opened_consumer()
        offsets = []
        for time_ms in times:
            if time_ms == EARLIEST:
                offsets.append((await consumer.beginning_offsets([where]))[where])
            elif time_ms == LATEST:
                offsets.append((await consumer.end_offsets([where]))[where])
            else:
                found = (await consumer.offsets_for_times({where: time_ms}))[where]
                offsets.append(-1 if found is None else found.offset)
        return offsets

    async def _opened_admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self._address)
            await self._admin.start()
        return self._admin

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        async def create() -> None:
            admin = await self._opened_admin()
            new = NewTopic(topic, partitions, 1, topic_configs=dict(config))
            answer = await admin.create_topics([new])
            _check(error[1] for error in answer.topic_errors)

        self._run(create())

    def topics(self) -> set[str]:
        async def topics() -> set[str]:
            return set(await (await self._opened_admin()).list_topics())

        return self._run(topics())

    def partitions(self, topic: str) -> int:
        async def partitions() -> int:
            (described,) = await (await self._opened_admin()).describe_topics([topic])
            return len(described["partitions"])

        return self._run(partitions())

    def grow(self, topic: str, partitions: int) -> None:
        async def grow() -> None:
            admin = await self._opened_admin()
            answer = await admin.create_partitions({topic: NewPartitions(partitions)})
            _check(error[1] for error in answer.topic_errors)

        self._run(grow())

    def config(self, topic: str) -> dict[str, str | None]:
        async def config() -> dict[str, str | None]:
            admin = await self._opened_admin()
            asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
            (answer,) = await admin.describe_configs(asked)
            ((code, _, _, _, entries),) = answer.resources
            _check([code])
            return {entry[0]: entry[1] for entry in entries}

        return self._run(config())

    def delete(self, topic: str) -> None:
        async def delete() -> None:
            answer = await (await self._opened_admin()).delete_topics([topic])
            _check(error[1] for error in answer.topic_error_codes)

        self._run(delete())

    def close(self) -> None:
        async def close() -> None:
            for producer in self._producers.values():
                await producer.stop()
            if self._consumer is not None:
                await self._consumer.stop()
            if self._admin is not None:
                await self._admin.close()

        with self._runner:
            self._run(close())


def _check(codes: Any) -> None:
    for code in codes:
        if code:
            raise for_code(code)
