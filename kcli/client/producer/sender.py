"""Sender: sends the accumulator's batches to their leaders, and handles the outcome.

Whatever may let more be sent (a batch begins or fills, a linger ends, a response arrives, metadata
names a leader) puts a queue into the broker sender of its leader.

Tasks: one for each broker sender, one that refreshes metadata, one that fetches the producer id.
Timers: the oldest linger, the oldest delivery timeout, and the end of each failed queue's pause.

`decision.py` decides on a batch after an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from random import Random

from kcli.client.cluster import Cluster, expect_topic_name
from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError, TimedOut, TransactionAborted
from kcli.client.producer.accumulator import Accumulator, AccumulatorLimits
from kcli.client.producer.broker_sender import BrokerSender, Encoder
from kcli.client.producer.partition_queue import (
    BatchResult,
    OnBatch,
    PartitionQueue,
    ProducerBatch,
    Rules,
)
from kcli.client.producer.produce import PartitionProduceResponse
from kcli.client.producer.produce_decision import (
    MAYBE_APPENDED,
    NOT_LEADER,
    ProduceDecision,
    decide,
)
from kcli.client.producer.producer_id import fetch_producer_id
from kcli.client.producer.transaction_manager import CONCURRENT_PAUSE, TransactionManager
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import BrokerId, Offset

# Reasons of refused records to report: with a timestamp in it, each record's reason differs.
MAX_REASONS = 3

_logger = logging.getLogger(__name__)


class Sender:
    """`run` sends until it is cancelled; the other methods may be called while it runs."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        *,
        now_ms: Callable[[], int],
        random: Random,
        on_batch: OnBatch | None = None,
        ignore_keys: bool = False,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._on_batch = on_batch
        self._loop = asyncio.get_running_loop()
        self._linger = config.linger_ms / 1000
        self._rules = Rules(
            config.enable_idempotence,
            config.max_in_flight_requests_per_connection,
            transactional=config.transactional_id is not None,
        )
        self.accumulator = Accumulator(
            AccumulatorLimits(
                batch_size=config.batch_size,
                buffer_memory=config.buffer_memory,
                max_request_size=config.max_request_size,
                ignore_keys=ignore_keys,
                adaptive=config.partitioner_adaptive_partitioning_enable,
                stuck_after=config.partitioner_availability_timeout_ms / 1000,
            ),
            self._rules,
            now=self._loop.time,
            now_ms=now_ms,
            random=random,
            on_open=self._on_batch_opened,
            on_full=self.enqueue,
            on_stamp=self._on_stamp,
        )
        self._encoder = Encoder(config)
        self._broker_senders: dict[BrokerId, BrokerSender] = {}
        self._lingering: deque[tuple[float, ProducerBatch]] = deque()
        self._linger_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._stale = asyncio.Event()
        self._new_topic = asyncio.Event()
        self._need_id = asyncio.Event()
        self._pending_topics: dict[str, Exception | None] = {}
        """Topics that a caller waits for, and the error of the last attempt to get their metadata.
        """
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._tasks: asyncio.TaskGroup | None = None
        self._fatal: Exception | None = None
        self.transaction_manager = (
            TransactionManager(config, cluster, self._rules, self)
            if self._rules.transactional
            else None
        )

    # For the producer

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._keep_metadata())
                if self.transaction_manager is not None:
                    tasks.create_task(self.transaction_manager.run())
                elif self._config.enable_idempotence:
                    self._need_id.set()
                    tasks.create_task(self._keep_producer_id())
                for broker_sender in self._broker_senders.values():
                    tasks.create_task(broker_sender.run())
                try:
                    await asyncio.Event().wait()
                finally:
                    # The timer of a failed queue's pause may still fire.
                    self._tasks = None
        except ExceptionGroup as bugs:
            self.fail(ClientError(f"the producer failed: {bugs.exceptions[0]!r}"))
            raise
        finally:
            for timer in (self._linger_timer, self._expiry_timer):
                if timer is not None:
                    timer.cancel()
            self.fail(ClientError("the producer was closed"))

    async def ready(self, topic: str, deadline: float) -> None:
        """Wait until a record for `topic` may be offered again: for metadata, or for memory.

        Raises ClientError if no topic can have this name.
        """
        config, accumulator = self._config, self.accumulator
        expect_topic_name(topic)
        if self._fatal is not None:
            raise self._fatal
        try:
            async with asyncio.timeout_at(deadline):
                if not accumulator.knows(topic):
                    if topic not in self._pending_topics:
                        self._pending_topics[topic] = None
                        self._new_topic.set()
                    self._stale.set()
                    await self._change()
                    error = self._pending_topics.get(topic)
                    if isinstance(error, KafkaError) and not error.code.retriable:
                        self._pending_topics.pop(topic, None)
                        raise error
                elif accumulator.has_room:
                    # Yield, so that offered records are sent: a caller may never wait otherwise.
                    await asyncio.sleep(0)
                else:
                    for queue in accumulator.due_all():
                        self.enqueue(queue)
                    await self._change()
        except TimeoutError as error:
            limit_ms = config.max_block_ms
            if accumulator.knows(topic):
                raise TimedOut(
                    f"Failed to allocate {config.batch_size} bytes within the configured max"
                    f" blocking time {limit_ms} ms."
                ) from error
            self._pending_topics.pop(topic, None)
            raise TimedOut(f"Topic {topic} not present in metadata after {limit_ms} ms.") from error

    async def flush(self) -> None:
        """Send all waiting batches, and wait until each batch begun before now has its outcome."""
        for queue in self.accumulator.due_all():
            self.enqueue(queue)
        outcomes = []
        for batch in self.accumulator.incomplete:
            outcome: asyncio.Future[None] = self._loop.create_future()
            batch.on_finish.append(functools.partial(_settle, outcome))
            outcomes.append(outcome)
        if outcomes:
            await asyncio.wait(outcomes)
        if self._config.required_acks == 0:
            for broker_sender in list(self._broker_senders.values()):
                await broker_sender.wait_until_written()

    def fail(self, error: Exception) -> None:
        """Fail every pending record with `error`, and every record offered later. The first error
        of several is used.
        """
        error = self._fatal = self._fatal or error
        self._give_up(list(self.accumulator.incomplete), error)
        self._wake_waiters()

    def _give_up(self, batches: list[ProducerBatch], error: Exception) -> None:
        for batch in batches:
            # In a transaction the first failure fails other batches too.
            if not batch.finished:
                self.accumulator.give_up(batch)
                self._finish(batch, error, -1, -1)

    # For the transaction manager

    def give_up_unsent(self, error: Exception) -> None:
        """Fail waiting batches; those in flight still get their response, but are not retried."""
        waiting = [b for b in self.accumulator.incomplete if b not in b.queue.in_flight]
        self._give_up(waiting, error)

    async def drain(self, queues: Iterable[PartitionQueue]) -> None:
        """Return once no batch of these queues is in flight."""
        while any(queue.in_flight for queue in queues):
            await self._change()

    # Callbacks of the accumulator

    def _on_batch_opened(self, batch: ProducerBatch) -> None:
        if self._fatal is not None:
            self._loop.call_soon(self.fail, self._fatal)
            return
        if self.transaction_manager is not None:
            self.transaction_manager.join(batch.queue)
        if self._linger == 0:
            batch.queue.due = True
            self.enqueue(batch.queue)
        else:
            self._lingering.append((batch.created_at + self._linger, batch))
            if self._linger_timer is None:
                self._set_linger_timer()
        if self._expiry_timer is None:
            self._set_expiry_timer()

    def _on_stamp(self) -> None:
        self._loop.call_soon(setattr, self.accumulator, "stamp_ms", 0)

    def enqueue(self, queue: PartitionQueue) -> None:
        """Hand a queue that may have something to send to the broker sender of its leader."""
        if queue.queued:
            return
        if queue.leader is None:
            self._stale.set()
            return
        broker_sender = self._broker_senders.get(queue.leader) or self._open_broker_sender(
            queue.leader
        )
        broker_sender.add(queue)

    def _open_broker_sender(self, node: BrokerId) -> BrokerSender:
        broker_sender = self._broker_senders[node] = BrokerSender(
            node,
            self._config,
            self._cluster,
            self.accumulator,
            self._rules,
            self._encoder,
            self,
        )
        if self._tasks is not None:
            self._tasks.create_task(broker_sender.run())
        return broker_sender

    # Timers

    def _set_linger_timer(self) -> None:
        self._linger_timer = None
        if self._lingering:
            self._linger_timer = self._loop.call_at(self._lingering[0][0], self._on_linger_expired)

    def _on_linger_expired(self) -> None:
        now = self._loop.time()
        while self._lingering and self._lingering[0][0] <= now:
            _, batch = self._lingering.popleft()
            if self.accumulator.due(batch):
                self.enqueue(batch.queue)
        self._set_linger_timer()

    def _set_expiry_timer(self) -> None:
        self._expiry_timer = None
        first = next(iter(self.accumulator.incomplete), None)
        if first is not None:
            deadline = first.created_at + self._config.delivery_timeout_ms / 1000
            self._expiry_timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        limit_ms = self._config.delivery_timeout_ms
        born_before = self._loop.time() - limit_ms / 1000
        for batch in list(self.accumulator.incomplete):
            if batch.created_at > born_before:
                break
            error = TimedOut(
                f"Expiring {len(batch.records)} record(s) for {batch.queue.partition}:{limit_ms} ms"
                " has passed since batch creation"
            )
            self._give_up([batch], error)
        self._set_expiry_timer()

    # Callbacks of the broker senders

    def settle(self, batch: ProducerBatch, response: PartitionProduceResponse) -> None:
        queue, error, was_finished = batch.queue, response.error, batch.finished
        decision = decide(
            error,
            batch,
            retries=self._config.retries,
            transactional=self.transaction_manager is not None,
        )
        if decision is ProduceDecision.DELIVERED:
            for older in queue.complete(batch, appended=True):
                self._finish(older, None, -1, -1)
            if not was_finished:
                offset = response.offset if error == ErrorCode.none else -1
                self._finish(batch, None, offset, response.append_time)
        elif was_finished:
            queue.complete(batch, appended=None if error in MAYBE_APPENDED else False)
        elif decision is ProduceDecision.SPLIT:
            self.accumulator.split(batch)
        elif decision is ProduceDecision.FAILED:
            self.fail_batch(batch, _refusal(response))
        elif self.transaction_manager is not None and not self.transaction_manager.core.is_sending:
            self.fail_batch(batch, TransactionAborted("its transaction failed or is aborted"))
        else:
            self._retry(batch, decision, error)
        if was_finished:
            self.accumulator.free(batch)
            self._wake_waiters()
        if self.transaction_manager is not None and queue.lost:
            self.transaction_manager.handle_failed_batch(_refusal(response))
        if queue.waiting or queue.due:
            self.enqueue(queue)

    def metadata_is_stale(self) -> None:
        self._stale.set()

    def need_producer_id(self) -> None:
        self._need_id.set()

    def _retry(self, batch: ProducerBatch, decision: ProduceDecision, error: ErrorCode) -> None:
        queue = batch.queue
        if error in NOT_LEADER:
            self._stale.set()
        pause = self._cluster.backoff(batch.attempts + 1)
        if error is ErrorCode.concurrent_transactions:
            pause = min(pause, CONCURRENT_PAUSE)
        not_before = self._loop.time() + pause
        if decision is ProduceDecision.OUT_OF_ORDER:
            queue.out_of_order(batch, not_before)
        elif decision is ProduceDecision.NEW_EPOCH:
            queue.broken = True
            queue.put_back(batch, not_before, maybe_appended=False)
        else:
            queue.put_back(
                batch, not_before, maybe_appended=batch.maybe_appended or error in MAYBE_APPENDED
            )
        self._loop.call_later(pause, self._resume, queue)

    def _resume(self, queue: PartitionQueue) -> None:
        """Resume a queue after the pause of a failure, unless another failure extended it."""
        # A timer may fire a clock tick early.
        if queue.not_before <= self._loop.time() + 0.001:
            queue.not_before = 0.0
            self.enqueue(queue)

    def fail_batch(self, batch: ProducerBatch, error: Exception) -> None:
        batch.queue.complete(batch, appended=False)
        if not batch.finished:
            self._finish(batch, error, -1, -1)

    def _finish(
        self, batch: ProducerBatch, error: Exception | None, offset: Offset, append_time: int
    ) -> None:
        """Free the memory, then report the outcome."""
        queue = batch.queue
        self.accumulator.finish(batch)
        # Otherwise records would stay in memory until the end of their linger.
        while self._lingering and self._lingering[0][1].finished:
            self._lingering.popleft()
        for on_delivery, outcome, metadata in batch.deliver(error, offset, append_time):
            self._call(on_delivery, outcome, metadata)
        if self._on_batch is not None:
            topic, partition = queue.partition
            result = BatchResult(topic, partition, offset, append_time, batch.records, error)
            self._call(self._on_batch, result)
        for on_finish in batch.on_finish:
            on_finish()
        if error is not None and self.transaction_manager is not None:
            self.transaction_manager.handle_failed_batch(error)
        if self._waiters:
            self._wake_waiters()

    def _call(self, callback: Callable[..., object], *values: object) -> None:
        """Call the user's code; its exceptions must not stop the sender."""
        try:
            callback(*values)
        except Exception:
            _logger.exception("a delivery callback failed")

    # Waiting

    async def _change(self) -> None:
        """Wait until memory is freed, or metadata arrived or failed to arrive."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            _settle(waiter)

    # Metadata and the producer id

    async def _keep_metadata(self) -> None:
        """Refresh metadata when it is stale or missing, and every metadata.max.age.ms."""
        tries = 0
        while True:
            if tries:
                await self._pause(tries)
            else:
                await self._until_stale()
            self._stale.clear()
            self._new_topic.clear()
            since = self._loop.time() - self._config.metadata_max_idle_ms / 1000
            names = dict.fromkeys((*self.accumulator.topics(since), *self._pending_topics))
            if not names:
                tries = 0
                continue
            try:
                refusals = await self._cluster.refresh(names, create=True)
            except (OSError, KafkaError, ProtocolError) as error:
                _logger.debug("no metadata: %s", error)
                tries += 1
                continue
            complete = self._learn(names, refusals)
            tries = 0 if complete else tries + 1

    async def _pause(self, tries: int) -> None:
        """Wait before a retry, unless another topic is needed: it must not wait for a deleted
        topic, for example.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._cluster.backoff(tries)):
                await self._new_topic.wait()

    async def _until_stale(self) -> None:
        max_age = self._config.metadata_max_age_ms / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max_age):
                await self._stale.wait()

    def _learn(self, names: Iterable[str], refusals: dict[str, KafkaError]) -> bool:
        """Update the queues of these topics from the cluster's metadata. Return whether metadata is
        complete for all that is to be sent.
        """
        complete = True
        accumulator = self.accumulator
        for name in names:
            topic = self._cluster.topics.get(name)
            if topic is None or not topic.partitions:
                if name in self._pending_topics:
                    self._pending_topics[name] = refusals.get(name)
                    complete = False
                elif any(queue.waiting or queue.due for queue in accumulator.queues(name)):
                    complete = False
                continue
            accumulator.grow(name, len(topic.partitions))
            for queue, partition in zip(accumulator.queues(name), topic.partitions, strict=False):
                queue.lead(partition.leader)
                if queue.waiting or queue.due:
                    complete = complete and queue.leader is not None
                    self.enqueue(queue)
            self._pending_topics.pop(name, None)
        self._wake_waiters()
        return complete

    async def _keep_producer_id(self) -> None:
        """Fetch a producer id now, and again when its epochs are used up."""
        while True:
            await self._need_id.wait()
            try:
                identity = await fetch_producer_id(self._cluster)
            except KafkaError as error:
                self.fail(error)
                return
            self._need_id.clear()
            self._rules.producer_id, self._rules.producer_epoch = identity
            for broker_sender in self._broker_senders.values():
                broker_sender.schedule()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _refusal(response: PartitionProduceResponse) -> KafkaError:
    """Return the error with distinct reasons of single records, which Apache's broker has in its
    message too.
    """
    message = response.message
    reasons = {why: None for _, why in response.bad_records if why and why not in message}
    reason_list = [*islice(reasons, MAX_REASONS), *(["..."] if len(reasons) > MAX_REASONS else [])]
    return KafkaError(response.error, ": ".join(filter(None, (message, "; ".join(reason_list)))))
