"""Before a producer's first batch of a transaction is appended to a partition, the coordinator says
whether that partition is part of it: else no marker would ever end what is written (KIP-890).

    the producer has transaction version   the coordinator is asked
    0, 1: it added the partition itself    whether it did (VerifyPartitions)
    2: it leaves that to the broker        to add it (AddPartitions)

A marker that is written to the partition while the answer is awaited ends the very transaction that
the answer is about: what comes after it is refused.

    the coordinator answers               the batch is refused with
    PRODUCER_FENCED                       INVALID_PRODUCER_EPOCH
    TRANSACTION_ABORTABLE                 itself, or INVALID_TXN_STATE to who does not know it
    CONCURRENT_TRANSACTIONS               itself after some tries in version 2, else
                                          NOT_ENOUGH_REPLICAS
    it is loading, has moved, is away     NOT_ENOUGH_REPLICAS, which every producer tries again
                                          without asking for metadata
    anything else                         itself

(Kafka: AddPartitionsToTxnManager, VerificationGuard.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kserver.config.broker import BrokerConfig
from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ProducerId, TopicPartition
from kserver.txn.requests import AddPartitions, VerifyPartitions
from kserver.txn.transaction import EPOCH_BUMPS, ProducerIdAndEpoch

Refused: TypeAlias = Mapping[TopicPartition, KafkaError]

AWAY = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
    }
)


class Verification:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transactions: CoordinatorRuntime[Any],
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._loop = loop
        self._transactions = transactions
        self._config = config
        self._awaited: set[_Awaited] = set()
        self._turns: dict[ProducerId, asyncio.Future[None]] = {}

    def turn(self, producer_id: ProducerId) -> Turn:
        """For what a producer sends while an answer about it is awaited, to stay in order."""
        return Turn(self._turns, producer_id)

    def is_awaited(self, producer_id: ProducerId) -> bool:
        """Whether what it sends has to take its turn."""
        return producer_id in self._turns

    async def refused(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        adds: bool,
        knows_abortable: bool = True,
    ) -> Refused:
        """Those of the partitions that must not be written to.  What is written to the others has
        to be so before anything else is awaited."""
        awaited = _Awaited(producer.producer_id)
        self._awaited.add(awaited)
        try:
            codes = await self._codes(transactional_id, producer, partitions, adds=adds)
        finally:
            self._awaited.discard(awaited)
        codes |= dict.fromkeys(awaited.ended & partitions, ErrorCode.invalid_txn_state)
        return _refused(codes, adds=adds, knows_abortable=knows_abortable)

    def refused_now(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        adds: bool,
        knows_abortable: bool = True,
    ) -> Refused | None:
        """The same, where it can be told at once; None where `refused` has to wait."""
        try:
            answer = self._ask(transactional_id, producer, partitions, adds=adds)
            if not answer.done():
                answer.cancel()
                return None
            codes = answer.result() or {}
        except KafkaError as error:
            if adds and error.code is ErrorCode.concurrent_transactions:
                return None
            codes = dict.fromkeys(partitions, error.code)
        return _refused(codes, adds=adds, knows_abortable=knows_abortable)

    def ended(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """A marker of the producer was appended to the partition."""
        for awaited in self._awaited:
            if awaited.producer_id == producer_id:
                awaited.ended.add(partition)

    async def _codes(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        config = self._config()
        deadline_s = self._loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            try:
                found = await self._ask(transactional_id, producer, partitions, adds=adds)
                return dict(found or {})
            except KafkaError as error:
                is_late = self._loop.time() >= deadline_s
                if not adds or error.code is not ErrorCode.concurrent_transactions or is_late:
                    return dict.fromkeys(partitions, error.code)
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    def _ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> asyncio.Future[Any]:
        request: AddPartitions | VerifyPartitions
        if adds:
            request = AddPartitions(transactional_id, producer, partitions, EPOCH_BUMPS)
        else:
            request = VerifyPartitions(transactional_id, producer, partitions)
        return self._transactions.ask(transactional_id, request)


class Turn:
    """An asynchronous context: entered when all turns of the producer that were taken before are
    over.  It is taken when this is made."""

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


class _Awaited:
    """An answer that is awaited, and where markers of its producer came meanwhile."""

    __slots__ = ("ended", "producer_id")

    def __init__(self, producer_id: ProducerId) -> None:
        self.producer_id = producer_id
        self.ended: set[TopicPartition] = set()


def _refused(
    codes: Mapping[TopicPartition, ErrorCode], *, adds: bool, knows_abortable: bool
) -> Refused:
    refused = {}
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
        refused[partition] = KafkaError(code, text)
    return refused
