"""Producer: sends records, many at a time, each with its outcome.

    async with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        sent = await producer.send("greetings", b"hello", key=b"me")
        print((await sent).offset)

A record is kept as it is given until its batch leaves; then it is encoded with its neighbours.
By default it is delivered once and in order (enable.idempotence), whatever happens on the way, or
its outcome is an error.

`send` costs a coroutine and a future.  Where that is too much, `try_send` takes a callback or
nothing at all, and `on_batch` hears of whole batches:

    while not producer.try_send(topic, value, on_delivery=told):
        await producer.ready(topic)

Keys and values are bytes or None, unless serializers make them so; interceptors see every record,
and a partitioner of one's own may choose where it goes:

    Producer(config, value_serializer=lambda order: json.dumps(order).encode())
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from kcli.client.cluster import Cluster
from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError
from kcli.client.intake import Intake, Plugins
from kcli.client.interceptors import ProducerInterceptor, ProducerRecord
from kcli.client.lane import Delivered, OnBatch, OnDelivery, RecordMetadata
from kcli.client.partitioner import Partitioner
from kcli.client.sender import Sender
from kcli.client.serialization import Serializer
from kserver.errors import ConfigError
from kserver.wire.batch import Headers

__all__ = [
    "Delivered",
    "Offer",
    "OnBatch",
    "OnDelivery",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
]


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Offer(Protocol):
    def __call__(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> bool: ...


class Producer:
    """Between `start` and `close`.  `now_ms` stamps records, `chance` spreads those without keys.

    `on_batch` is called with each batch's outcome (Delivered), after the futures of its records.
    What is given here goes before what settings name: key.serializer, partitioner.class and so on.
    """

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, object],
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        on_batch: OnBatch | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        chance: random.Random | None = None,
    ) -> None:
        config = ProducerConfig.taken(config)
        if config.transactional_id is not None:
            raise ConfigError(
                f"Invalid value {config.transactional_id} for configuration transactional.id:"
                " transactions are not supported so far"
            )
        self._config = config
        self._plugins = Plugins(
            config,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        self._intake: Intake | None = None
        self._chance = chance or random.Random()
        self._now_ms = now_ms
        self._on_batch = on_batch
        self.cluster = Cluster(config, chance=self._chance)
        self._sender: Sender | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to send in the background; connections are made when first needed."""
        self._sender = Sender(
            self._config,
            self.cluster,
            now_ms=self._now_ms,
            chance=self._chance,
            on_batch=self._on_batch,
            ignore_keys=(
                self._config.partitioner_ignore_keys or self._plugins.partitioner is not None
            ),
        )
        if self._plugins:
            self._intake = Intake(self._sender.accumulator, self._plugins)
        self._task = asyncio.create_task(self._sender.run())

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send what waits, for at most `timeout_ms`; what is left then fails with ClientError."""
        if self._sender is None or self._task is None:
            return
        sender, task, self._sender, self._task = self._sender, self._task, None, None
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await sender.flush()
        except TimeoutError:
            pass
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self.cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def try_send(self) -> Offer:
        """Take one record in without waiting; False when that is not possible now: `ready` waits.

        The value's, key's and headers' bytes are not copied.  `partition` None leaves the choice to
        the key, else to chance; `timestamp` None stands for now.  KafkaError for a record that can
        never be sent.
        """
        sender = self._running()
        return sender.accumulator.offer if self._intake is None else self._intake.offer

    def try_send_all(self, topic: str, values: Sequence[Any], timestamp: int | None = None) -> int:
        """As `try_send` for each of many values, without keys, in a tenth of its time.

        How many were taken, from the first on; `ready` waits for room for the rest.
        """
        sender = self._running()
        if self._intake is None:
            return sender.accumulator.offer_all(topic, values, timestamp)
        for taken, value in enumerate(values):
            if not self._intake.offer(topic, value, timestamp=timestamp):
                return taken
        return len(values)

    async def ready(self, topic: str) -> None:
        """Wait until `try_send` may succeed.  TimedOut after max.block.ms."""
        sender = self._running()
        deadline = self.cluster.deadline(self._config.max_block_ms)
        await sender.ready(topic, deadline)
        # Metadata that does not have the topic yet changes nothing.
        while not sender.accumulator.knows(topic):
            await sender.ready(topic, deadline)

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Take one record in; the future is done once it is delivered or has failed.

        Waits only while the topic is unknown or buffer.memory is full: TimedOut after max.block.ms.
        """
        sender = self._running()
        outcome: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        on_delivery = functools.partial(_settle, outcome)
        if self._intake is not None:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            await self._send(sender, self._intake, record, on_delivery)
            return outcome
        deadline: float | None = None
        while not sender.accumulator.offer(
            topic, value, key, partition, timestamp, headers, on_delivery
        ):
            if deadline is None:
                deadline = self.cluster.deadline(self._config.max_block_ms)
            await sender.ready(topic, deadline)
        return outcome

    async def _send(
        self, sender: Sender, intake: Intake, record: ProducerRecord, on_delivery: OnDelivery
    ) -> None:
        record = intake.prepare(record)
        deadline = self.cluster.deadline(self._config.max_block_ms)
        while not intake.take(record, on_delivery):
            with intake.interceptors.telling(record):
                await sender.ready(record.topic, deadline)

    async def flush(self) -> None:
        """Send what waits now; back when all of it is delivered or has failed."""
        await self._running().flush()

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has.  TimedOut after max.block.ms."""
        sender = self._running()
        deadline = self.cluster.deadline(self._config.max_block_ms)
        while not sender.accumulator.knows(topic):
            await sender.ready(topic, deadline)
        return len(sender.accumulator.lanes(topic))

    def _running(self) -> Sender:
        if self._sender is None:
            raise ClientError("the producer is not started, or was closed")
        return self._sender


def _settle(
    outcome: asyncio.Future[RecordMetadata],
    error: Exception | None,
    metadata: RecordMetadata | None,
) -> None:
    if outcome.done():
        return
    if error is not None:
        outcome.set_exception(error)
    elif metadata is not None:
        outcome.set_result(metadata)
