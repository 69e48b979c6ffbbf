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

With a transactional.id what is sent between begin and commit is seen by readers of committed
records as a whole or not at all, together with the offsets of what was read for it (KIP-98):

    await producer.init_transactions()
    async with producer.transaction():
        await producer.send("orders", b"...")
        await producer.send_offsets_to_transaction({partition: 42}, consumer.group_metadata())

TransactionFailed ends a transaction: where it is `abortable`, abort_transaction makes way for the
next one, and `transaction()` has done so; else the producer can only be closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Protocol, Self

from kcli.client import arguments
from kcli.client.cluster import Cluster
from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError, IllegalTransactionState
from kcli.client.group_descriptions import CommittedOffset
from kcli.client.group_metadata import GroupMetadata
from kcli.client.interceptors import ProducerInterceptor, ProducerRecord
from kcli.client.partition_queue import Delivered, OnBatch, OnDelivery, RecordMetadata
from kcli.client.partitioner import Partitioner
from kcli.client.record_appender import Plugins, RecordAppender
from kcli.client.sender import Sender
from kcli.client.serialization import Serializer
from kcli.client.transaction_manager import TransactionManager
from kcli.client.transactions import HandedOver
from kserver.errors import KafkaError
from kserver.model import Offset, TopicPartition
from kserver.wire.batch import EncodedRecords, Headers

__all__ = [
    "CommittedOffset",
    "Delivered",
    "GroupMetadata",
    "Offer",
    "OnBatch",
    "OnDelivery",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
]


_logger = logging.getLogger(__name__)


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
    """Between `start` and `close`.  `now_ms` stamps records, `random` spreads those without keys.

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
        random: Random | None = None,
    ) -> None:
        config = ProducerConfig.taken(config)
        self._config = config
        self._plugins = Plugins(
            config,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        self._appender: RecordAppender | None = None
        self._random = random or Random()
        self._now_ms = now_ms
        self._on_batch = on_batch
        self.cluster = Cluster(config, random=self._random)
        self._sender: Sender | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to send in the background; connections are made when first needed."""
        self._sender = Sender(
            self._config,
            self.cluster,
            now_ms=self._now_ms,
            random=self._random,
            on_batch=self._on_batch,
            ignore_keys=(
                self._config.partitioner_ignore_keys or self._plugins.partitioner is not None
            ),
        )
        if self._plugins:
            self._appender = RecordAppender(self._sender.accumulator, self._plugins)
        self._task = asyncio.create_task(self._sender.run())

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send what waits, for at most `timeout_ms`; what is left then fails with ClientError.

        An open transaction is aborted; a commit that timed out is waited for once more.
        """
        if self._sender is None or self._task is None:
            return
        sender, task, self._sender, self._task = self._sender, self._task, None, None
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if sender.transaction_manager is not None:
                    await sender.transaction_manager.end()
                await sender.flush()
        except (TimeoutError, ClientError, KafkaError) as error:
            _logger.debug("closed before all was done: %s", error)
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
        offer = sender.accumulator.offer if self._appender is None else self._appender.offer
        return (
            offer
            if sender.transaction_manager is None
            else _in_transaction(sender.transaction_manager, offer)
        )

    def try_send_all(self, topic: str, values: Sequence[Any], timestamp: int | None = None) -> int:
        """Does what `try_send` does for each of many values, without keys, in a tenth of its time.

        How many were taken, from the first on; `ready` waits for room for the rest.
        """
        sender = self._running()
        if sender.transaction_manager is not None:
            sender.transaction_manager.expect_open()
        if self._appender is None:
            return sender.accumulator.offer_all(topic, values, timestamp)
        for taken, value in enumerate(values):
            if not self._appender.offer(topic, value, timestamp=timestamp):
                return taken
        return len(values)

    def try_send_encoded(self, topic: str, partition: int, records: EncodedRecords) -> bool:
        """Does what `try_send` does for records that are a batch already, of at most batch.size
        bytes or but one.  Interceptors, serializers and partitioners do not see them:
        `has_plugins`."""
        sender = self._running()
        if sender.transaction_manager is not None:
            sender.transaction_manager.expect_open()
        return sender.accumulator.offer_encoded(TopicPartition(topic, partition), records)

    @property
    def has_plugins(self) -> bool:
        """Whether records pass interceptors, serializers or a partitioner on their way in."""
        return bool(self._plugins)

    def choose_partition(self, topic: str) -> int:
        """A partition for records without a key, of a topic that `partitions_for` has told of."""
        return self._running().accumulator.choose(topic)

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
        if partition is not None:
            arguments.expect_whole_number("partition", partition)
        sender = self._running()
        outcome: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        on_delivery = functools.partial(_settle, outcome)
        if sender.transaction_manager is not None or self._appender is not None:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            if sender.transaction_manager is not None:
                on_delivery = functools.partial(_settle_in_transaction, outcome)
                await self._send_in_transaction(
                    sender, sender.transaction_manager, record, on_delivery
                )
            elif self._appender is not None:
                await self._send(sender, self._appender, record, on_delivery)
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
        self,
        sender: Sender,
        appender: RecordAppender,
        record: ProducerRecord,
        on_delivery: OnDelivery,
    ) -> None:
        record = appender.prepare(record)
        deadline = self.cluster.deadline(self._config.max_block_ms)
        while not appender.take(record, on_delivery):
            with appender.interceptors.telling(record):
                await sender.ready(record.topic, deadline)

    async def _send_in_transaction(
        self,
        sender: Sender,
        transaction_manager: TransactionManager,
        record: ProducerRecord,
        on_delivery: OnDelivery,
    ) -> None:
        """A record that is refused here fails its transaction too: it was to be part of it."""
        offer = self.try_send
        deadline = self.cluster.deadline(self._config.max_block_ms)
        try:
            while not offer(*record, on_delivery):
                await sender.ready(record.topic, deadline)
        except IllegalTransactionState:
            raise
        except (ClientError, KafkaError) as error:
            transaction_manager.batch_failed(error)
            raise

    async def flush(self) -> None:
        """Send what waits now; back when all of it is delivered or has failed."""
        await self._running().flush()

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has.  TimedOut after max.block.ms."""
        sender = self._running()
        deadline = self.cluster.deadline(self._config.max_block_ms)
        while not sender.accumulator.knows(topic):
            await sender.ready(topic, deadline)
        return len(sender.accumulator.queues(topic))

    # Transactions

    async def init_transactions(self) -> None:
        """Once, before the first: take the transactional.id over from an earlier producer, whose
        open transaction is aborted.

        Like commit and abort TimedOut after max.block.ms: then call it again.  KafkaError where it
        is refused but may be called again, as without the right to the id.
        """
        await self._transaction_manager().initialize()

    async def begin_transaction(self) -> None:
        """What is sent from here on belongs together."""
        self._transaction_manager().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, Offset | CommittedOffset],
        group: GroupMetadata | str,
    ) -> None:
        """Commit what a group has read, the next offset of each partition, with the transaction.

        The cause of TransactionFailed is CommitFailed where the group gave the partitions to other
        members.  A mere group.id stands for a group whose partitions nobody assigns.
        """
        notes = arguments.committed(offsets)
        member = GroupMetadata(group) if isinstance(group, str) else group
        if not isinstance(member, GroupMetadata):
            raise ClientError(
                f"group is a group.id or a consumer's group_metadata(), not {group!r}"
            )
        await self._transaction_manager().send_offsets(notes, member)

    async def commit_transaction(self) -> None:
        """Deliver what was sent, and make it visible.  TransactionFailed when any of it failed."""
        await self._transaction_manager().commit()

    async def abort_transaction(self) -> None:
        """Nothing of what was sent since begin_transaction counts; what was not sent yet fails."""
        await self._transaction_manager().abort()

    async def hand_over_transaction(self) -> HandedOver:
        """Deliver what was sent, and leave it to a TransactionSuccessor to end the transaction,
        from anywhere; this producer can only be closed.  TransactionFailed when any of it failed.
        """
        return await self._transaction_manager().hand_over()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin; then commit, or abort where anything is raised, which is raised on."""
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            if self._transaction_manager().core.is_open:
                await self.abort_transaction()
            raise

    def _transaction_manager(self) -> TransactionManager:
        transaction_manager = self._running().transaction_manager
        if transaction_manager is None:
            raise IllegalTransactionState("this producer has no transactional.id")
        return transaction_manager

    def _running(self) -> Sender:
        if self._sender is None:
            raise ClientError("the producer is not started, or was closed")
        return self._sender


def _in_transaction(transaction_manager: TransactionManager, offer: Offer) -> Offer:
    """Only while a transaction is open."""

    def offer_in_transaction(*values: Any, **named: Any) -> bool:
        transaction_manager.expect_open()
        return offer(*values, **named)

    return offer_in_transaction


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


def _settle_in_transaction(
    outcome: asyncio.Future[RecordMetadata],
    error: Exception | None,
    metadata: RecordMetadata | None,
) -> None:
    """The commit tells of every failure: nobody need look here."""
    _settle(outcome, error, metadata)
    if error is not None and not outcome.cancelled():
        outcome.exception()
