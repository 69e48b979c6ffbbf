"""Verification (KIP-890): asks the coordinator whether a partition is part of a transaction before
a producer's first batch of the transaction is appended to it.

Without it, records could be written that no marker would ever end.

    transaction version of the producer    request to the coordinator
    0, 1: adds partitions itself           check that it did (VerifyPartitions)
    2: relies on the broker                add the partition (AddPartitions)

If a marker is appended to the partition while the response is awaited, it ends the transaction in
question, so the batch is rejected.  In version 2 a marker has its own epoch, so it ends an earlier
transaction: the producer got that end's response before the marker was written everywhere, or the
partition rejects the batch for its old epoch.

    the coordinator's response            error of the batch
    PRODUCER_FENCED                       INVALID_PRODUCER_EPOCH
    TRANSACTION_ABORTABLE                 the same, or INVALID_TXN_STATE for older clients
    CONCURRENT_TRANSACTIONS               the same after some retries in version 2, else
                                          NOT_ENOUGH_REPLICAS
    loading, moved, or unreachable        NOT_ENOUGH_REPLICAS, which every producer retries
                                          without a metadata request
    any other error                       the same
    (a broker from before KIP-890)        none: it cannot verify, so the producer is trusted

The coordinator is this broker, or another one that receives AddPartitionsToTxn: one request at a
time to each broker, for all transactions that wait at that moment.

(Kafka: AddPartitionsToTxnManager, VerificationGuard.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from kserver.config.broker import BrokerConfig
from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.metadata import MetadataCache
from kserver.model import NO_BROKER, TRANSACTION_STATE, BrokerId, ProducerId, TopicPartition
from kserver.peers.peers import NotTriedAgain, Outbox, Peers
from kserver.txn.requests import AddPartitions, VerifyPartitions
from kserver.txn.transaction import EPOCH_BUMPS, ProducerIdAndEpoch
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import request

log = logging.getLogger(__name__)

PartitionErrors: TypeAlias = Mapping[TopicPartition, KafkaError]
Codes: TypeAlias = Mapping[TopicPartition, ErrorCode]

FIRST_FROM_BROKERS = 4
MAX_TRANSACTIONS_PER_REQUEST = 1000
"""Maximum number of transactions in one request."""

AWAY = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
    }
)


class VerificationRequest(NamedTuple):
    """Request to the coordinator of `transactional_id`, to verify the partitions or, with `adds`,
    to add them."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    adds: bool

    def all(self, code: ErrorCode) -> Codes:
        return dict.fromkeys(self.partitions, code)


class PendingRequest(NamedTuple):
    request: VerificationRequest
    codes: asyncio.Future[Codes]


class Verification:
    def __init__(
        self,
        broker_id: BrokerId,
        loop: asyncio.AbstractEventLoop,
        transactions: CoordinatorRuntime[Any],
        config: Callable[[], BrokerConfig],
        metadata: MetadataCache,
        peers: Peers,
    ) -> None:
        self._id = broker_id
        self._loop = loop
        self._transactions = transactions
        self._config = config
        self._metadata = metadata
        self._peers = peers
        self._outbox = Outbox[PendingRequest](self._ask_broker, MAX_TRANSACTIONS_PER_REQUEST)
        self._guards: set[_VerificationGuard] = set()
        self._turns: dict[ProducerId, asyncio.Future[None]] = {}

    def turn(self, producer_id: ProducerId) -> Turn:
        """Return a context that keeps a producer's requests in order while one awaits
        verification."""
        return Turn(self._turns, producer_id)

    def has_turn(self, producer_id: ProducerId) -> bool:
        """Return whether the producer's next request has to take a turn."""
        return producer_id in self._turns

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        adds: bool,
        knows_abortable: bool = True,
    ) -> PartitionErrors:
        """Verify the partitions; return errors for those that must not be written to.  The caller
        has to write to the others before it awaits anything."""
        verification = VerificationRequest(transactional_id, producer, partitions, adds)
        guard = _VerificationGuard(producer.producer_id)
        self._guards.add(guard)
        try:
            codes = dict(await self._codes(verification))
        finally:
            self._guards.discard(guard)
        if not adds:
            codes |= dict.fromkeys(guard.ended & partitions, ErrorCode.invalid_txn_state)
        return _errors(codes, adds=adds, knows_abortable=knows_abortable)

    def verify_now(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        adds: bool,
        knows_abortable: bool = True,
    ) -> PartitionErrors | None:
        """Return the same without waiting; None if `verify` would have to wait."""
        verification = VerificationRequest(transactional_id, producer, partitions, adds)
        try:
            if self._coordinator(transactional_id) != self._id:
                return None
            response = self._ask_own(verification)
            if not response.done():
                response.cancel()
                return None
            codes = response.result() or verification.all(ErrorCode.none)
        except KafkaError as error:
            if adds and error.code is ErrorCode.concurrent_transactions:
                return None
            codes = verification.all(error.code)
        return _errors(codes, adds=adds, knows_abortable=knows_abortable)

    def on_marker(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """Handle a marker of the producer that was appended to the partition."""
        for guard in self._guards:
            if guard.producer_id == producer_id:
                guard.ended.add(partition)

    async def _codes(self, verification: VerificationRequest) -> Codes:
        config = self._config()
        deadline_s = self._loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            codes = await self._ask(verification)
            is_late = self._loop.time() >= deadline_s
            is_concurrent = ErrorCode.concurrent_transactions in codes.values()
            if not verification.adds or not is_concurrent or is_late:
                return codes
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    async def _ask(self, verification: VerificationRequest) -> Codes:
        try:
            coordinator = self._coordinator(verification.transactional_id)
            if coordinator == self._id:
                return await self._ask_own(verification) or verification.all(ErrorCode.none)
        except KafkaError as error:
            return verification.all(error.code)
        pending = PendingRequest(verification, self._loop.create_future())
        self._outbox.put(coordinator, pending)
        return await pending.codes

    def _coordinator(self, transactional_id: str) -> BrokerId:
        """Return the coordinator's id.  Raises KafkaError if none is known."""
        index = self._transactions.partition_of(transactional_id)
        leader = self._metadata.current.topics[TRANSACTION_STATE].partitions[index].leader
        if leader == NO_BROKER:
            raise KafkaError(ErrorCode.coordinator_not_available)
        return leader

    def _ask_own(self, verification: VerificationRequest) -> asyncio.Future[Codes | None]:
        """Ask this broker's own coordinator; the result is None if all partitions were added."""
        transactional_id, producer, partitions, adds = verification
        shard_request: AddPartitions | VerifyPartitions
        if adds:
            shard_request = AddPartitions(transactional_id, producer, partitions, EPOCH_BUMPS)
        else:
            shard_request = VerifyPartitions(transactional_id, producer, partitions)
        return self._transactions.ask(transactional_id, shard_request)

    # Requests to other brokers

    async def run(self) -> None:
        """Send requests until cancelled."""
        try:
            await self._outbox.run()
        finally:
            self._peers.close()

    async def _ask_broker(self, broker: BrokerId, waiting: Sequence[PendingRequest]) -> None:
        """Send one request.  It has each transactional id only once; others of the same id wait."""
        pending_by_id: dict[str, PendingRequest] = {}
        for pending in waiting:
            if pending.codes.done():
                continue  # its client has disconnected
            if pending_by_id.setdefault(pending.request.transactional_id, pending) is not pending:
                self._outbox.put(broker, pending)
        if not pending_by_id:
            return
        try:
            codes_by_id = await self._call(
                broker, [pending.request for pending in pending_by_id.values()]
            )
        except NotTriedAgain:
            codes_by_id = {}
        except (OSError, ProtocolError, KafkaError) as error:
            log.info("broker %d: verifying transactions failed: %s", broker, error)
            codes_by_id = {}
        for transactional_id, (verification, codes) in pending_by_id.items():
            if not codes.done():
                partition_codes = codes_by_id.get(transactional_id, {})
                unreachable = ErrorCode.network_exception
                codes.set_result(
                    {p: partition_codes.get(p, unreachable) for p in verification.partitions}
                )

    async def _call(
        self, broker: BrokerId, questions: Sequence[VerificationRequest]
    ) -> Mapping[str, Codes]:
        peer = await self._peers.to(broker)
        version = peer.version(ApiKey.ADD_PARTITIONS_TO_TXN)
        if version < FIRST_FROM_BROKERS:
            return {
                one.transactional_id: one.all(ErrorCode.none) for one in questions if not one.adds
            }
        response = await peer.call(_request(version, questions))
        if response.error_code is not ErrorCode.none:
            # This broker is not authorized; its producers must not bypass verification because of
            # that.
            return {one.transactional_id: one.all(ErrorCode.invalid_txn_state) for one in questions}
        return {
            one.transactional_id: {
                TopicPartition(topic.name, partition.partition_index): (
                    partition.partition_error_code
                )
                for topic in one.topic_results
                for partition in topic.results_by_partition
            }
            for one in response.results_by_transaction
        }


class Turn:
    """An asynchronous context for one producer's requests; entered when all earlier turns of the
    producer are over.  A turn is taken when the object is created."""

    def __init__(
        self, turns: dict[ProducerId, asyncio.Future[None]], producer_id: ProducerId
    ) -> None:
        self._turns = turns
        self._producer_id = producer_id
        self._before = turns.get(producer_id)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns[producer_id] = self._over

    async def __aenter__(self) -> None:
        if self._before is not None:
            await asyncio.wait((self._before,))

    async def __aexit__(self, *_: object) -> None:
        self._over.set_result(None)
        if self._turns[self._producer_id] is self._over:
            del self._turns[self._producer_id]


class _VerificationGuard:
    """A pending verification, and the partitions that got markers of its producer meanwhile."""

    __slots__ = ("ended", "producer_id")

    def __init__(self, producer_id: ProducerId) -> None:
        self.producer_id = producer_id
        self.ended: set[TopicPartition] = set()


def _request(version: int, questions: Sequence[VerificationRequest]) -> Any:
    new = request(ApiKey.ADD_PARTITIONS_TO_TXN, version)
    transactions = []
    for transactional_id, producer, partitions, adds in questions:
        topics: dict[str, list[int]] = {}
        for key in sorted(partitions):
            topics.setdefault(key.topic, []).append(key.partition)
        transactions.append(
            new.transactions(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=not adds,
                topics=[
                    new.transactions.topics(name=name, partitions=tuple(indexes))
                    for name, indexes in topics.items()
                ],
            )
        )
    return new(transactions=transactions)


def _errors(
    codes: Mapping[TopicPartition, ErrorCode], *, adds: bool, knows_abortable: bool
) -> PartitionErrors:
    errors = {}
    for partition, code in codes.items():
        if code is ErrorCode.none:
            continue
        text = "the partition is not known to be part of the transaction"
        if code is ErrorCode.producer_fenced:
            code = ErrorCode.invalid_producer_epoch
        elif code is ErrorCode.transaction_abortable and not knows_abortable:
            code = ErrorCode.invalid_txn_state
        elif code in AWAY or (code is ErrorCode.concurrent_transactions and not adds):
            text = f"{text} yet: {code.name}"
            code = ErrorCode.not_enough_replicas
        errors[partition] = KafkaError(code, text)
    return errors
