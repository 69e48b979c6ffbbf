"""TransactionManager: sends the requests of a producer's transactions to the coordinators.

`transactions.py` decides on what is allowed and on errors. Here are the requests, retried until
they are answered, and their order relative to the batches:

    commit    all batches delivered                         -> EndTxn
    abort     waiting batches fail, those in flight return  -> EndTxn -> InitProducerId after errors

One request is in flight at a time, except that AddPartitionsToTxn may run while a commit waits for
its batches. A call that timed out after max.block.ms continues; the same call again waits for it.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn, Protocol, TypeAlias

from kcli.client.admin.descriptions import CoordinatorType
from kcli.client.cluster import Cluster
from kcli.client.config import ProducerConfig
from kcli.client.coordinators import find
from kcli.client.errors import ClientError, IllegalTransactionState, TimedOut, TransactionAborted
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.producer.partition_queue import PartitionQueue, Rules
from kcli.client.producer.transactions import (
    BEFORE_IMPLICIT,
    BUMPING,
    LAST_OF_CLIENTS,
    TransactionAction,
    TransactionHandover,
    TransactionManagerState,
    Transactions,
    action_after,
    most_severe,
)
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import NO_PRODUCER_ID, BrokerId, ProducerId, TopicPartition
from kserver.peer import ANY_VERSION, Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import api_name

TRANSACTION_VERSION = "transaction.version"
INITIALIZE = "init_transactions"
CLOSED = "the producer was closed"
# Seconds: the former transaction mostly ends sooner.
CONCURRENT_PAUSE = 0.02

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_logger = logging.getLogger(__name__)


class Batches(Protocol):
    """The methods of the sender that a transaction manager needs."""

    async def flush(self) -> None: ...

    async def drain(self, queues: Iterable[PartitionQueue]) -> None:
        """Return once no batch of these queues is in flight."""

    def give_up_unsent(self, error: Exception) -> None:
        """Fail batches that are not in flight."""

    def fail(self, error: Exception) -> None: ...

    def enqueue(self, queue: PartitionQueue) -> None: ...


class TransactionManager:
    def __init__(
        self, config: ProducerConfig, cluster: Cluster, rules: Rules, batches: Batches
    ) -> None:
        assert config.transactional_id is not None
        self.core = Transactions(config.transactional_id)
        self._config = config
        self._cluster = cluster
        self._rules = rules
        self._batches = batches
        self._loop = asyncio.get_running_loop()
        self._coordinators: dict[tuple[CoordinatorType, str], BrokerId] = {}
        self._features = (0, -1)
        """transaction.version and the features' epoch, as the coordinator reported them last."""
        self._members: dict[PartitionQueue, None] = {}
        """The queues that take part in the transaction."""
        self._written: dict[PartitionQueue, None] = {}
        """The queues with sequences under this producer id and epoch."""
        self._new: dict[PartitionQueue, None] = {}
        """The queues that are not yet added at the coordinator."""
        self._wake = asyncio.Event()
        self._adding: asyncio.Future[None] | None = None
        self._queue: asyncio.Queue[tuple[Work, asyncio.Future[None]]] = asyncio.Queue()
        self._pending: tuple[str, asyncio.Future[None]] | None = None

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_adding())
                while True:
                    await self._work(*await self._queue.get())
        finally:
            while not self._queue.empty():
                _, outcome = self._queue.get_nowait()
                outcome.set_exception(ClientError(CLOSED))

    async def _work(self, work: Work, outcome: asyncio.Future[None]) -> None:
        try:
            await work()
        except (ClientError, KafkaError) as error:
            outcome.set_exception(error)
        except asyncio.CancelledError:
            outcome.set_exception(ClientError(CLOSED))
            raise
        except Exception as error:
            # A bug, which ends this task: the caller must not wait for max.block.ms too.
            outcome.set_exception(error)
            raise
        else:
            outcome.set_result(None)

    # For the producer

    async def initialize(self) -> None:
        call = INITIALIZE
        if not self._is_pending_call(call):
            self.core.enter(TransactionManagerState.INITIALIZING, call)
            self._pending = (call, self._begin(self._initialize))
        await self._outcome()

    def begin(self) -> None:
        self._is_pending_call("begin_transaction")
        self.core.enter(TransactionManagerState.IN_TRANSACTION, "begin_transaction")

    async def commit(self) -> None:
        call = "commit_transaction"
        if not self._is_pending_call(call):
            self.core.enter(TransactionManagerState.COMMITTING_TRANSACTION, call)
            self._pending = (call, self._begin(self._commit))
        await self._outcome()

    async def abort(self) -> None:
        call = "abort_transaction"
        if not self._is_pending_call(call):
            self.core.enter(TransactionManagerState.ABORTING_TRANSACTION, call)
            self._new.clear()
            self._batches.give_up_unsent(TransactionAborted("the transaction is aborted"))
            self._pending = (call, self._begin(self._abort))
        await self._outcome()

    async def hand_over(self) -> TransactionHandover:
        """Deliver all batches, as for a commit; the holder of the result may end the
        transaction.
        """
        call = "hand_over_transaction"
        self._is_pending_call(call)
        self.core.expect_open(call)
        await self._batches.flush()
        self.core.enter(TransactionManagerState.HANDED_OVER, call)
        identity = self._rules.producer_id, self._rules.producer_epoch
        return TransactionHandover(
            self.core.transactional_id, *identity, self.core.version, self.core.started
        )

    def take_over(self, handover: TransactionHandover) -> None:
        """Take over a transaction that another producer handed over, instead of `initialize`."""
        self.core.take_over(handover)
        self._rules.producer_id = handover.producer_id
        self._rules.producer_epoch = handover.producer_epoch
        self._rules.implicit = self.core.implicit

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        call = "send_offsets_to_transaction"
        self._is_pending_call(call)
        self.core.expect_open(call)
        if offsets:
            work = partial(self._send_offsets, dict(offsets), group)
            await self._wait(call, self._begin(work))

    async def end(self) -> None:
        """Before the producer is closed, abort an open transaction or wait for one that is
        ending.
        """
        if self.core.is_open:
            await self.abort()
        elif self._pending is not None and self._pending[0] != INITIALIZE:
            await self._outcome()

    def expect_open(self) -> None:
        """Raises unless a record may be sent now."""
        self._is_pending_call("send")
        self.core.expect_open("send")

    # For the sender

    def join(self, queue: PartitionQueue) -> None:
        """Add a queue with a batch to the transaction."""
        if queue in self._members:
            return
        self._members[queue] = None
        if self.core.implicit:
            self.core.started = True
            queue.awaits_transaction = False
        else:
            self._new[queue] = None
            self._wake.set()

    def handle_failed_batch(self, error: Exception) -> None:
        before = self.core.state
        self.core.handle_failed_batch(error)
        if self.core.state is not before:
            self._fail_batches_on_error()

    # One call after the other

    def _is_pending_call(self, call: str) -> bool:
        """Whether this call timed out before, so that its outcome is pending."""
        if self._pending is None:
            return False
        pending = self._pending[0]
        if pending != call:
            raise IllegalTransactionState(
                f"{call} cannot be called: {pending} timed out before and must be called again"
            )
        return True

    def _begin(self, work: Work) -> asyncio.Future[None]:
        outcome: asyncio.Future[None] = self._loop.create_future()
        # Mark the exception as retrieved: a caller that timed out may never look.
        outcome.add_done_callback(lambda outcome: outcome.exception())
        self._queue.put_nowait((work, outcome))
        return outcome

    async def _outcome(self) -> None:
        assert self._pending is not None
        call, outcome = self._pending
        try:
            await self._wait(call, outcome)
        finally:
            if outcome.done():
                self._pending = None

    async def _wait(self, call: str, outcome: asyncio.Future[None]) -> None:
        limit_ms = self._config.max_block_ms
        await asyncio.wait([outcome], timeout=limit_ms / 1000)
        if not outcome.done():
            raise TimedOut(f"Timeout expired after {limit_ms}ms while awaiting {call}")
        outcome.result()

    # Work of the calls

    async def _initialize(self) -> None:
        """Get a producer id, or bump its epoch if there is one."""
        timeout = datetime.timedelta(milliseconds=self._config.transaction_timeout_ms)
        rules = self._rules
        response = await self._ask(
            ApiKey.INIT_PRODUCER_ID,
            lambda new: new(
                transactional_id=self.core.transactional_id,
                transaction_timeout=timeout,
                producer_id=rules.producer_id,
                producer_epoch=rules.producer_epoch,
            ),
            lambda response: [response.error_code],
        )
        self._identify(response.producer_id, response.producer_epoch)
        if self.core.state is TransactionManagerState.INITIALIZING:
            self._complete()

    async def _commit(self) -> None:
        await self._batches.flush()
        self.core.check()
        await self._end(committed=True)

    async def _abort(self) -> None:
        if self._adding is not None:
            await asyncio.wait([self._adding])
        await self._batches.drain(self._members)
        # A response may have shown that another producer has the id.
        self.core.check()
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        core = self.core
        if core.started:
            response = await self._ask(
                ApiKey.END_TXN,
                lambda new: new(
                    transactional_id=core.transactional_id,
                    producer_id=self._rules.producer_id,
                    producer_epoch=self._rules.producer_epoch,
                    committed=committed,
                ),
                lambda response: [response.error_code],
            )
            if core.implicit and response.producer_id != NO_PRODUCER_ID:
                self._identify(response.producer_id, response.producer_epoch)
        if any(queue.broken for queue in self._members):
            core.bump_needed = True
        core.learn(*self._features)
        if core.bump_needed:
            if not core.can_bump:
                core.fail(_no_new_epoch())
                self._fail_batches_on_error()
                raise core.failure()
            await self._initialize()
        self._complete()

    def _identify(self, producer_id: ProducerId, epoch: int) -> None:
        self._rules.producer_id, self._rules.producer_epoch = producer_id, epoch
        for queue in (*self._written, *self._members):
            queue.restart()
        self._written.clear()

    def _complete(self) -> None:
        core = self.core
        core.learn(*self._features)
        core.complete()
        self._rules.implicit = core.implicit
        for queue in self._members:
            queue.awaits_transaction = True
        self._written |= self._members
        self._members.clear()
        self._new.clear()

    async def _send_offsets(
        self, offsets: dict[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        core = self.core
        core.expect_open("send_offsets_to_transaction")
        # If it is implicit, the commit itself adds the group to the transaction.
        if not core.implicit:
            await self._ask(
                ApiKey.ADD_OFFSETS_TO_TXN,
                lambda new: new(group_id=group.group_id, **self._identity()),
                lambda response: [response.error_code],
            )
        core.started = True

        def commit(new: Any) -> Any:
            topics: dict[str, list[Any]] = {}
            for (topic, partition), (offset, epoch, metadata) in offsets.items():
                topics.setdefault(topic, []).append(
                    new.topics.partitions(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=-1 if epoch is None else epoch,
                        committed_metadata=metadata,
                    )
                )
            return new(
                group_id=group.group_id,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=[new.topics(name=name, partitions=of) for name, of in topics.items()],
                **self._identity(),
            )

        def codes(response: Any) -> list[ErrorCode]:
            results = [
                (TopicPartition(topic.name, p.partition_index), p.error_code)
                for topic in response.topics
                for p in topic.partitions
            ]
            # A retry commits only the offsets that failed.
            for partition, code in results:
                if code is ErrorCode.none:
                    offsets.pop(partition, None)
            return [code for _, code in results]

        await self._ask(ApiKey.TXN_OFFSET_COMMIT, commit, codes, group=group.group_id)

    async def _keep_adding(self) -> None:
        """Add partitions at the coordinator before their first record is sent."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._new:
                self._adding = self._loop.create_future()
                try:
                    await self._add()
                except (ClientError, KafkaError) as error:
                    _logger.debug("no partitions added: %s", error)
                finally:
                    self._adding.set_result(None)
                    self._adding = None

    async def _add(self) -> None:
        queues = list(self._new)
        self._new.clear()
        topics: dict[str, list[int]] = {}
        for queue in queues:
            topics.setdefault(queue.partition.topic, []).append(queue.partition.partition)

        def add(new: Any) -> Any:
            topic_kind = new.v3_and_below_topics
            return new(
                v3_and_below_transactional_id=self.core.transactional_id,
                v3_and_below_producer_id=self._rules.producer_id,
                v3_and_below_producer_epoch=self._rules.producer_epoch,
                v3_and_below_topics=[topic_kind(name=n, partitions=of) for n, of in topics.items()],
            )

        def codes(response: Any) -> list[ErrorCode]:
            return [
                p.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for p in topic.results_by_partition
            ]

        await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, add, codes)
        self.core.started = True
        for queue in queues:
            queue.awaits_transaction = False
            self._batches.enqueue(queue)

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.core.transactional_id,
            "producer_id": self._rules.producer_id,
            "producer_epoch": self._rules.producer_epoch,
        }

    # Requests

    async def _ask(
        self,
        api: int,
        build: Callable[[Any], Any],
        codes: Callable[[Any], Iterable[ErrorCode]],
        *,
        group: str | None = None,
    ) -> Any:
        """Send a request to the coordinator until it succeeds. If refused for good, raises
        TransactionFailed, or KafkaError if the call may be made again.

        Requests of a transaction that is aborted meanwhile are given up, except after a lost
        response: its outcome decides whether there is a transaction to end.
        """
        tries = 0
        while True:
            is_lost, pause = False, self._cluster.backoff(tries + 1)
            try:
                peer = await self._coordinator(group)
                new = versions.request(api, peer.version(api, self._limit(api)))
                response = await peer.call(build(new))
                code = most_severe(api, codes(response))
                action = action_after(api, code)
            except (OSError, ProtocolError) as error:
                _logger.debug("%s was not answered: %s", api_name(api), error)
                is_lost, action = True, TransactionAction.MOVED
            except KafkaError as error:
                code, action = error.code, action_after(ApiKey.FIND_COORDINATOR, error.code)
            if action is TransactionAction.DONE:
                return response
            if action is TransactionAction.MOVED:
                moved = self._coordinators.pop(self._key(group), None)
                if moved is not None:
                    self._cluster.doubt(moved)  # it may still name itself
            elif action is not TransactionAction.AGAIN:
                refusal = KafkaError(code, f"{api_name(api)} was refused")
                self._refuse(refusal, action, of_open=api in _OF_OPEN)
            elif code is ErrorCode.concurrent_transactions:
                pause = min(pause, CONCURRENT_PAUSE)
            if not is_lost and api in _OF_OPEN and not self.core.is_sending:
                raise TransactionAborted("the transaction is aborted")
            tries += 1
            await asyncio.sleep(pause)

    def _refuse(self, error: KafkaError, action: TransactionAction, *, of_open: bool) -> NoReturn:
        core = self.core
        core.handle_error(error, action, of_open=of_open)
        self._fail_batches_on_error()
        if core.error is not None:
            raise core.failure()
        raise error

    def _fail_batches_on_error(self) -> None:
        """Fail the batches when the transaction enters an error state."""
        match self.core.state:
            case TransactionManagerState.ABORTABLE_ERROR:
                self._new.clear()
                cause = f"its transaction failed: {self.core.error}"
                self._batches.give_up_unsent(TransactionAborted(cause))
            case TransactionManagerState.FATAL_ERROR:
                self._batches.fail(self.core.failure())

    def _limit(self, api: int) -> int:
        """Return the newest version to use."""
        if api == ApiKey.ADD_PARTITIONS_TO_TXN:
            return LAST_OF_CLIENTS
        return ANY_VERSION if self.core.implicit else BEFORE_IMPLICIT.get(api, ANY_VERSION)

    # Coordinators

    def _key(self, group: str | None) -> tuple[CoordinatorType, str]:
        if group is None:
            return CoordinatorType.TRANSACTION, self.core.transactional_id
        return CoordinatorType.GROUP, group

    async def _coordinator(self, group: str | None) -> Peer:
        """Return a connection to the coordinator of the transactional id, or of a group. Raises
        KafkaError if it cannot be found.
        """
        key = self._key(group)
        if key not in self._coordinators:
            kind, name = key
            coordinator = (await find(self._cluster, [name], kind))[name]
            if isinstance(coordinator, KafkaError):
                raise coordinator
            self._coordinators[key] = coordinator.id
        peer = await self._cluster.peer(self._coordinators[key])
        if group is None:
            self.core.can_bump = peer.versions.get(ApiKey.INIT_PRODUCER_ID, (0, 0))[1] >= BUMPING
            self._features = (peer.features.get(TRANSACTION_VERSION, 0), peer.features_epoch)
        return peer


# Requests that are pointless once the transaction cannot be committed any more.
_OF_OPEN = frozenset(
    {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT}
)


def _no_new_epoch() -> KafkaError:
    return KafkaError(
        ErrorCode.unsupported_version,
        "the coordinator gives no new epochs (Kafka 2.5), and batches without an answer may still"
        " arrive",
    )
