"""Producer: sends records, in batches, and reports the outcome of each.

    async with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        sent = await producer.send("greetings", b"hello", key=b"me")
        print((await sent).offset)

A record is kept as it is until its batch is sent; then it is encoded with its neighbours. By
default it is delivered exactly once and in order (enable.idempotence), whatever fails on the way,
or its outcome is an error.

`send` costs a coroutine and a future. Where that is too much, `try_send` takes a callback or
nothing at all, and `on_batch` gets the outcome of whole batches:

    while not producer.try_send(topic, value, on_delivery=on_delivery):
        await producer.ready(topic)

Keys and values are bytes or None, unless serializers convert them; interceptors see every record,
and a custom partitioner may choose its partition:

    Producer(config, value_serializer=lambda order: json.dumps(order).encode())

With a transactional.id, records sent between begin and commit are visible to read_committed
consumers all together or not at all, together with the offsets of their input (KIP-98):

    await producer.init_transactions()
    async with producer.transaction():
        await producer.send("orders", b"...")
        await producer.send_offsets_to_transaction({partition: 42}, consumer.group_metadata())

TransactionFailed ends a transaction. If it is `abortable`, the next one can begin after
abort_transaction, which `transaction()` calls itself; else the producer can only be closed.
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
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.interceptors import ProducerInterceptor, ProducerRecord
from kcli.client.producer.partition_queue import BatchResult, OnBatch, OnDelivery, RecordMetadata
from kcli.client.producer.partitioner import Partitioner
from kcli.client.producer.record_appender import Plugins, RecordAppender
from kcli.client.producer.sender import Sender
from kcli.client.producer.transaction_manager import TransactionManager
from kcli.client.producer.transactions import TransactionHandover
from kcli.client.serialization import Serializer
from kserver.errors import KafkaError
from kserver.model import Offset, TopicPartition
from kserver.wire.batch import EncodedRecords, Headers

__all__ = [
    "BatchResult",
    "CommittedOffset",
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
    """Usable between `start` and `close`. `now_ms` stamps records, `random` spreads those without
    keys.

    `on_batch` is called with each batch's outcome (BatchResult), after the futures of its records.
    Arguments take precedence over configs: key.serializer, partitioner.class and so on.
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
        config = ProducerConfig.resolve(config)
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
        """Send waiting batches for at most `timeout_ms`; the rest then fails with ClientError.

        An open transaction is aborted; a commit that timed out is awaited once more.
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
        """Append one record without waiting; False if that is not possible now: `ready` waits for
        it.

        The bytes of value, key and headers are not copied. `partition` None leaves the choice to
        the key, else to chance; `timestamp` None stands for now. Raises KafkaError if a record can
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
        """Append many values without keys, as `try_send` does, in a tenth of its time.

        Returns how many were accepted, from the first on; `ready` waits for room for the rest.
        """
        sender = self._running()
        if sender.transaction_manager is not None:
            sender.transaction_manager.expect_open()
        if self._appender is None:
            return sender.accumulator.offer_all(topic, values, timestamp)
        for count, value in enumerate(values):
            if not self._appender.offer(topic, value, timestamp=timestamp):
                return count
        return len(values)

    def try_send_encoded(self, topic: str, partition: int, records: EncodedRecords) -> bool:
        """Append records that are a batch already, as `try_send` does. The batch has at most
        batch.size bytes, or one record. Interceptors, serializers and partitioners do not see them
        (`has_plugins`).
        """
        sender = self._running()
        if sender.transaction_manager is not None:
            sender.transaction_manager.expect_open()
        return sender.accumulator.offer_encoded(TopicPartition(topic, partition), records)

    @property
    def has_plugins(self) -> bool:
        """Whether records pass interceptors, serializers or a partitioner."""
        return bool(self._plugins)

    def choose_partition(self, topic: str) -> int:
        """Return a partition for records without a key, of a topic that `partitions_for`
        returned.
        """
        return self._running().accumulator.choose(topic)

    async def ready(self, topic: str) -> None:
        """Wait until `try_send` may succeed. Raises TimedOut after max.block.ms."""
        sender = self._running()
        deadline = self.cluster.deadline(self._config.max_block_ms)
        await sender.ready(topic, deadline)
        # Metadata may arrive without the topic: wait again.
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
        """Append one record; the returned future is done once it is delivered or has failed.

        Waits only while the topic is unknown or buffer.memory is full. Raises TimedOut after
        max.block.ms.
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
            with appender.interceptors.report_errors(record):
                await sender.ready(record.topic, deadline)

    async def _send_in_transaction(
        self,
        sender: Sender,
        transaction_manager: TransactionManager,
        record: ProducerRecord,
        on_delivery: OnDelivery,
    ) -> None:
        """Append a record within a transaction; an error fails the transaction that it
        belongs to.
        """
        offer = self.try_send
        deadline = self.cluster.deadline(self._config.max_block_ms)
        try:
            while not offer(*record, on_delivery):
                await sender.ready(record.topic, deadline)
        except IllegalTransactionState:
            raise
        except (ClientError, KafkaError) as error:
            transaction_manager.handle_failed_batch(error)
            raise

    async def flush(self) -> None:
        """Send waiting batches now; return when all are delivered or have failed."""
        await self._running().flush()

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises TimedOut after max.block.ms."""
        sender = self._running()
        deadline = self.cluster.deadline(self._config.max_block_ms)
        while not sender.accumulator.knows(topic):
            await sender.ready(topic, deadline)
        return len(sender.accumulator.queues(topic))

    # Transactions

    async def init_transactions(self) -> None:
        """Take the transactional.id over from an earlier producer and abort its open transaction.
        To be called once, before the first transaction.

        Raises TimedOut after max.block.ms, as commit and abort do: call it again then. Raises
        KafkaError if it is refused but may be called again, for example without authorization for
        the id.
        """
        await self._transaction_manager().initialize()

    async def begin_transaction(self) -> None:
        """Begin a transaction with the records sent from here on."""
        self._transaction_manager().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, Offset | CommittedOffset],
        group: GroupMetadata | str,
    ) -> None:
        """Commit a group's offsets, the next offset of each partition, with the transaction.

        The cause of TransactionFailed is CommitFailed if the partitions were assigned to other
        members. A plain group.id stands for a group that does not assign partitions.
        """
        notes = arguments.committed(offsets)
        member = GroupMetadata(group) if isinstance(group, str) else group
        if not isinstance(member, GroupMetadata):
            raise ClientError(
                f"group is a group.id or a consumer's group_metadata(), not {group!r}"
            )
        await self._transaction_manager().send_offsets(notes, member)

    async def commit_transaction(self) -> None:
        """Deliver the records and commit. Raises TransactionFailed if any record failed."""
        await self._transaction_manager().commit()

    async def abort_transaction(self) -> None:
        """Abort all records since begin_transaction; those not sent yet fail."""
        await self._transaction_manager().abort()

    async def hand_over_transaction(self) -> TransactionHandover:
        """Deliver the records, and leave it to a TransactionSuccessor elsewhere to end the
        transaction. This producer can then only be closed. Raises TransactionFailed if any record
        failed.
        """
        return await self._transaction_manager().hand_over()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction; commit at the end, or abort on an exception, which is raised
        again.
        """
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
    """Wrap `offer` so that it raises unless a transaction is open."""

    def offer_in_transaction(*values: Any, **keywords: Any) -> bool:
        transaction_manager.expect_open()
        return offer(*values, **keywords)

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
    """Settle the future and mark its exception as retrieved: commit reports every failure."""
    _settle(outcome, error, metadata)
    if error is not None and not outcome.cancelled():
        outcome.exception()
