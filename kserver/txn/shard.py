"""TransactionShard: the transactional ids of one partition of __transaction_state.

    request or event                     next state                       effect
    InitProducerId                       Empty
      while a transaction is ongoing     PrepareAbort, its epoch raised   WriteMarkers
    AddPartitions                        Ongoing
    EndTransaction                       PrepareCommit or PrepareAbort    WriteMarkers
    MarkersWritten                       CompleteCommit or CompleteAbort
    ongoing for longer than its timeout  PrepareAbort, its epoch raised   WriteMarkers
    unused for the configured time       forgotten
    loaded in a Prepare state                                             WriteMarkers

While markers are being written, every request except a repeated EndTransaction fails with
CONCURRENT_TRANSACTIONS, which clients retry.

Pure: requests, events and times go in; Outcomes come out.  Kafka: TransactionCoordinator,
TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.coordinator.shard import NOTHING, Now, Outcome, Ticket, take_what_fits
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import ClusterMetadata
from kserver.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from kserver.txn import events
from kserver.txn.events import Event, TransactionalIdForgotten, TransactionChanged
from kserver.txn.requests import (
    NEEDS_ID,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    VerifyPartitions,
)
from kserver.txn.transaction import (
    EPOCH_BUMPS,
    LAST_EPOCH,
    PREPARED,
    RESTING,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    fenced,
)

MAX_IDS_PER_BATCH = 200
"""Maximum number of transactional ids changed by one call of `expire`, whose events are one
batch."""


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Effect: write markers to these partitions, then send MarkersWritten."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    partitions: frozenset[TopicPartition]
    version: int
    """Transaction version; from 2 on, no producer has used this epoch yet."""


class TransactionShard:
    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self.transactions: dict[str, Transaction] = {}
        """Transactions by transactional id."""
        self._ongoing: dict[str, None] = {}
        """Transactional ids with an ongoing transaction, which may time out."""
        self._version = 0
        """Transaction version finalized in the cluster."""
        self.next_deadline_ms: int | None = None
        self._next_abort_ms: int | None = None
        self._next_removal_ms: int | None = None

    # Requests

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Outcome:
        match request:
            case AddPartitions():
                outcome = self._add(request, ticket, now)
            case VerifyPartitions():
                outcome = self._verify(request, ticket)
            case EndTransaction():
                outcome = self._end(request, ticket, now)
            case MarkersWritten():
                outcome = self._complete(request, ticket, now)
            case InitProducerId():
                outcome = self._init(request, ticket, now)
            case _:
                raise KafkaError(ErrorCode.invalid_request)
        if outcome.events:
            self._set_deadlines(now, ongoing=True, has_ids=True)
        return outcome

    def _init(self, request: InitProducerId, ticket: Ticket, now: Now) -> Outcome:
        if not 0 < request.timeout_ms <= self._config().transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.invalid_transaction_timeout,
                f"{request.timeout_ms} ms is not within 1 and transaction.max.timeout.ms",
            )
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            if request.new_id == NO_PRODUCER_ID:
                return Outcome(responses=[(ticket, NEEDS_ID)])
            new = Transaction(
                request.transactional_id, request.new_id, 0, request.timeout_ms, now.wall_ms
            )
            return _changed(new, ticket, new.identity)
        if transaction.state in PREPARED:
            raise _concurrent()
        needs_id = transaction.needs_new_id(request.expected)
        if transaction.state is TransactionState.ONGOING:
            # The client retries, and then gets another epoch.
            aborted = transaction.fenced(self._version, now.wall_ms)
            return _changed(aborted, ticket, _concurrent(), [_markers(aborted)])
        if needs_id and request.new_id == NO_PRODUCER_ID:
            return Outcome(responses=[(ticket, NEEDS_ID)])
        new = transaction.initialized(
            request.timeout_ms, request.expected, request.new_id, now.wall_ms
        )
        return _changed(new, ticket, new.identity)

    def _add(self, request: AddPartitions, ticket: Ticket, now: Now) -> Outcome:
        transaction = self._owned(request.transactional_id, request.producer)
        if (
            transaction.state is TransactionState.ONGOING
            and request.partitions <= transaction.partitions
        ):
            return Outcome(responses=[(ticket, None)])
        new = transaction.with_partitions(request.partitions, request.version, now.wall_ms)
        return _changed(new, ticket, None)

    def _verify(self, request: VerifyPartitions, ticket: Ticket) -> Outcome:
        transaction = self._owned(request.transactional_id, request.producer)
        codes = {
            partition: ErrorCode.none
            if partition in transaction.partitions
            else ErrorCode.transaction_abortable
            for partition in request.partitions
        }
        return Outcome(responses=[(ticket, codes)])

    def _owned(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Transaction:
        """Return the transaction, after checking that this producer may continue it."""
        transaction = self._existing(transactional_id)
        if producer.producer_id != transaction.producer_id:
            raise _unknown(transactional_id, producer)
        _check_epoch(transaction, producer)
        if transaction.state in PREPARED:
            raise _concurrent()
        return transaction

    def _existing(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            text = f"transactional id {transactional_id} is not known"
            raise KafkaError(ErrorCode.invalid_producer_id_mapping, text)
        return transaction

    def _end(self, request: EndTransaction, ticket: Ticket, now: Now) -> Outcome:
        transaction = self._existing(request.transactional_id)
        bumps = request.version >= EPOCH_BUMPS
        # A repeated request, which has already ended the transaction, is answered as before.
        if _is_ended_by(transaction, request):
            if transaction.is_commit is not request.commit:
                raise _not_in_state(transaction, request)
            if transaction.state in PREPARED:
                raise _concurrent()
            return Outcome(responses=[(ticket, transaction.identity)])
        if request.producer.producer_id != transaction.producer_id:
            raise _unknown(request.transactional_id, request.producer)
        _check_epoch(transaction, request.producer)
        if transaction.state in PREPARED:
            raise _concurrent()
        if transaction.state in RESTING and (request.commit or not bumps):
            raise _not_in_state(transaction, request)
        if bumps and transaction.is_used_up and request.new_id == NO_PRODUCER_ID:
            return Outcome(responses=[(ticket, NEEDS_ID)])
        new = transaction.ended(
            commit=request.commit,
            version=request.version,
            new_id=request.new_id,
            now_ms=now.wall_ms,
        )
        # With a new producer id, the producer continues with that id.
        identity = (
            ProducerIdAndEpoch(new.next_id, 0) if new.next_id != NO_PRODUCER_ID else new.identity
        )
        return _changed(new, ticket, identity, [_markers(new)])

    def _complete(self, request: MarkersWritten, ticket: Ticket, now: Now) -> Outcome:
        transaction = self.transactions.get(request.transactional_id)
        if (
            transaction is None
            or transaction.state not in PREPARED
            or transaction.identity != request.producer
        ):
            return Outcome(responses=[(ticket, None)])  # already handled
        return _changed(transaction.completed(now.wall_ms), ticket, None)

    # Deadlines and loading

    def expire(self, now: Now) -> Outcome:
        changes: list[Event] = []
        effects: list[WriteMarkers] = []
        if self._next_abort_ms is not None and self._next_abort_ms <= now.ms:
            timed_out = (
                TransactionChanged(transaction.fenced(self._version, now.wall_ms))
                for transaction in map(self.transactions.__getitem__, self._ongoing)
                if transaction.has_timed_out(now.wall_ms)
            )
            aborted, is_all = take_what_fits(timed_out, self.encode, MAX_IDS_PER_BATCH)
            changes += aborted
            effects += [_markers(change.transaction) for change in aborted]
            self._next_abort_ms = None if is_all else now.ms
        is_removal_due = self._next_removal_ms is not None and self._next_removal_ms <= now.ms
        if is_removal_due and not changes:
            unused_ms = now.wall_ms - self._config().transactional_id_expiration_ms
            unused = (
                TransactionalIdForgotten(transaction.dead().id)
                for transaction in self.transactions.values()
                if transaction.state in RESTING and transaction.updated_ms <= unused_ms
            )
            removals, is_all = take_what_fits(unused, self.encode, MAX_IDS_PER_BATCH)
            changes += removals
            self._next_removal_ms = None if is_all else now.ms
        self._set_deadlines(now, ongoing=bool(self._ongoing), has_ids=bool(self.transactions))
        return Outcome(changes, effects=effects, only_events=True)

    def _set_deadlines(self, now: Now, *, ongoing: bool, has_ids: bool) -> None:
        """Set the deadlines of the periodic checks, one interval after the last, while there may
        be work."""
        config = self._config()
        if ongoing and self._next_abort_ms is None:
            interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._next_abort_ms = now.ms + interval_ms
        if has_ids and self._next_removal_ms is None:
            interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
            self._next_removal_ms = now.ms + interval_ms
        passes = [at for at in (self._next_abort_ms, self._next_removal_ms) if at is not None]
        self.next_deadline_ms = min(passes, default=None)

    def loaded(self, now: Now) -> Outcome:
        """Send the markers of transactions that were prepared."""
        self._set_deadlines(now, ongoing=bool(self._ongoing), has_ids=bool(self.transactions))
        prepared = [
            transaction
            for transaction in self.transactions.values()
            if transaction.state in PREPARED
        ]
        return Outcome(effects=[_markers(transaction) for transaction in prepared])

    def image_changed(self, image: ClusterMetadata, now: Now) -> Outcome:
        self._version = image.features.transaction_version
        return NOTHING

    # Persisted state

    def replay(self, event: Event, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        match event:
            case TransactionalIdForgotten(transactional_id):
                self.transactions.pop(transactional_id, None)
                self._ongoing.pop(transactional_id, None)
            case TransactionChanged(transaction):
                self.transactions[transaction.id] = transaction
                if transaction.state is TransactionState.ONGOING:
                    self._ongoing[transaction.id] = None
                else:
                    self._ongoing.pop(transaction.id, None)

    def replay_end(self, producer_id: ProducerId, committed: bool) -> None:
        """Do nothing: any client may write a marker to this partition, and it has no
        transactions."""

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        return events.encode(event, self._version)

    def decode(self, key: bytes, value: bytes | None) -> Event | None:
        return events.decode(key, value)

    def check(self) -> None:
        """Assert the invariants."""
        for transactional_id, transaction in self.transactions.items():
            assert transaction.id == transactional_id
            transaction.check()
        ongoing = {
            transaction.id
            for transaction in self.transactions.values()
            if transaction.state is TransactionState.ONGOING
        }
        assert self._ongoing.keys() == ongoing


def _is_ended_by(transaction: Transaction, request: EndTransaction) -> bool:
    """Return whether this request, or an equal one that was answered, led to the present state."""
    if transaction.state in (TransactionState.EMPTY, TransactionState.ONGOING):
        return False
    if request.version < EPOCH_BUMPS:
        return request.producer == transaction.identity
    if transaction.version < EPOCH_BUMPS:
        # That end raised no epoch, so this producer has an epoch that was fenced.  Apache's broker
        # (4.3.1) responds with success here, and the zombie then has the owner's epoch.
        return False
    # With the same epoch, the request is about the next transaction.
    producer = request.producer
    if producer.producer_id == transaction.producer_id:
        # An epoch above LAST_EPOCH belongs to no producer: the owner continues with a new producer
        # id.
        return producer.epoch == transaction.epoch - 1 and transaction.epoch <= LAST_EPOCH
    return producer.producer_id == transaction.previous_id and producer.epoch == LAST_EPOCH


def _check_epoch(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    """Raise PRODUCER_FENCED for another epoch, and for the one above LAST_EPOCH, with which the
    coordinator fences the producer."""
    if producer.epoch != transaction.epoch or producer.epoch > LAST_EPOCH:
        raise fenced(transaction, producer)


def _changed(
    new: Transaction, ticket: Ticket, response: Any, effects: Sequence[WriteMarkers] = ()
) -> Outcome:
    return Outcome([TransactionChanged(new)], [(ticket, response)], effects, only_events=True)


def _markers(prepared: Transaction) -> WriteMarkers:
    return WriteMarkers(
        prepared.id,
        prepared.identity,
        prepared.is_commit,
        prepared.partitions,
        prepared.version,
    )


def _concurrent() -> KafkaError:
    text = "the previous transaction is still being completed"
    return KafkaError(ErrorCode.concurrent_transactions, text)


def _unknown(transactional_id: str, producer: ProducerIdAndEpoch) -> KafkaError:
    text = f"producer {producer.producer_id} does not belong to transactional id {transactional_id}"
    return KafkaError(ErrorCode.invalid_producer_id_mapping, text)


def _not_in_state(transaction: Transaction, request: EndTransaction) -> KafkaError:
    what = "commit" if request.commit else "abort"
    text = (
        f"transactional id {transaction.id} is in state {transaction.state}: "
        f"there is nothing to {what}"
    )
    return KafkaError(ErrorCode.invalid_txn_state, text)
