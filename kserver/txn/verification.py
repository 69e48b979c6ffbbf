"""Before a producer's first batch of a transaction is appended to a partition, the coordinator says
whether that partition is part of it: else no marker would ever end what is written (KIP-890).

    the producer has transaction version   the coordinator is asked
    0, 1: it added the partition itself    whether it did (VerifyPartitions)
    2: it leaves that to the broker        to add it (AddPartitions)

A marker that is written to the partition while the answer is awaited ends the very transaction that
the answer is about: what comes after it is refused.  Not so in version 2, where a marker has an
epoch of its own: it is the end of the transaction before, whose producer was told of it before the
marker was everywhere, or the partition refuses the batch for its old epoch.

    the coordinator answers               the batch is refused with
    PRODUCER_FENCED                       INVALID_PRODUCER_EPOCH
    TRANSACTION_ABORTABLE                 itself, or INVALID_TXN_STATE to who does not know it
    CONCURRENT_TRANSACTIONS               itself after some tries in version 2, else
                                          NOT_ENOUGH_REPLICAS
    it is loading, has moved, is away     NOT_ENOUGH_REPLICAS, which every producer tries again
                                          without asking for metadata
    anything else                         itself
    (it is a broker from before KIP-890)  nothing: it cannot say, so the producer is believed

The coordinator is this broker, or another that is asked with AddPartitionsToTxn: one request to a
broker at a time, for all transactions that wait then.

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
from kserver.peers import NotTriedAgain, Outbox, Peers
from kserver.txn.requests import AddPartitions, VerifyPartitions
from kserver.txn.transaction import EPOCH_BUMPS, ProducerIdAndEpoch
from kserver.wire.versions import request

log = logging.getLogger(__name__)

Refused: TypeAlias = Mapping[TopicPartition, KafkaError]
Codes: TypeAlias = Mapping[TopicPartition, ErrorCode]

ADD_PARTITIONS_TO_TXN = 24
FIRST_FROM_BROKERS = 4
MOST_AT_ONCE = 1000
"""Transactions in one request."""

AWAY = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
    }
)


class Question(NamedTuple):
    """What the coordinator of `transactional_id` is asked: with `adds`, to add the partitions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    adds: bool

    def all(self, code: ErrorCode) -> Codes:
        return dict.fromkeys(self.partitions, code)


class Asked(NamedTuple):
    question: Question
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
        self._outbox = Outbox[Asked](self._ask_broker, MOST_AT_ONCE)
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
        question = Question(transactional_id, producer, partitions, adds)
        awaited = _Awaited(producer.producer_id)
        self._awaited.add(awaited)
        try:
            codes = dict(await self._codes(question))
        finally:
            self._awaited.discard(awaited)
        if not adds:
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
        question = Question(transactional_id, producer, partitions, adds)
        try:
            if self._coordinator(transactional_id) != self._id:
                return None
            answer = self._ask_own(question)
            if not answer.done():
                answer.cancel()
                return None
            codes = answer.result() or question.all(ErrorCode.none)
        except KafkaError as error:
            if adds and error.code is ErrorCode.concurrent_transactions:
                return None
            codes = question.all(error.code)
        return _refused(codes, adds=adds, knows_abortable=knows_abortable)

    def ended(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """A marker of the producer was appended to the partition."""
        for awaited in self._awaited:
            if awaited.producer_id == producer_id:
                awaited.ended.add(partition)

    async def _codes(self, question: Question) -> Codes:
        config = self._config()
        deadline_s = self._loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            codes = await self._ask(question)
            is_late = self._loop.time() >= deadline_s
            is_concurrent = ErrorCode.concurrent_transactions in codes.values()
            if not question.adds or not is_concurrent or is_late:
                return codes
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    async def _ask(self, question: Question) -> Codes:
        try:
            coordinator = self._coordinator(question.transactional_id)
            if coordinator == self._id:
                return await self._ask_own(question) or question.all(ErrorCode.none)
        except KafkaError as error:
            return question.all(error.code)
        asked = Asked(question, self._loop.create_future())
        self._outbox.put(coordinator, asked)
        return await asked.codes

    def _coordinator(self, transactional_id: str) -> BrokerId:
        """KafkaError where nobody is known to be it."""
        index = self._transactions.partition_of(transactional_id)
        leader = self._metadata.current.topics[TRANSACTION_STATE].partitions[index].leader
        if leader == NO_BROKER:
            raise KafkaError(ErrorCode.coordinator_not_available)
        return leader

    def _ask_own(self, question: Question) -> asyncio.Future[Codes | None]:
        """None where all were added."""
        transactional_id, producer, partitions, adds = question
        wanted: AddPartitions | VerifyPartitions
        if adds:
            wanted = AddPartitions(transactional_id, producer, partitions, EPOCH_BUMPS)
        else:
            wanted = VerifyPartitions(transactional_id, producer, partitions)
        return self._transactions.ask(transactional_id, wanted)

    # Other brokers

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            await self._outbox.run()
        finally:
            self._peers.close()

    async def _ask_broker(self, broker: BrokerId, waiting: Sequence[Asked]) -> None:
        """A request has a transactional id once: what else is asked of it waits for the next."""
        once: dict[str, Asked] = {}
        for asked in waiting:
            if asked.codes.done():
                continue  # its connection has gone
            if once.setdefault(asked.question.transactional_id, asked) is not asked:
                self._outbox.put(broker, asked)
        if not once:
            return
        try:
            answers = await self._answers(broker, [asked.question for asked in once.values()])
        except NotTriedAgain:
            answers = {}
        except (OSError, ProtocolError, KafkaError) as error:
            log.info("broker %d: verifying transactions failed: %s", broker, error)
            answers = {}
        for transactional_id, (question, codes) in once.items():
            if not codes.done():
                answer = answers.get(transactional_id, {})
                away = ErrorCode.network_exception
                codes.set_result({p: answer.get(p, away) for p in question.partitions})

    async def _answers(
        self, broker: BrokerId, questions: Sequence[Question]
    ) -> Mapping[str, Codes]:
        peer = await self._peers.to(broker)
        version = peer.version(ADD_PARTITIONS_TO_TXN)
        if version < FIRST_FROM_BROKERS:
            return {
                one.transactional_id: one.all(ErrorCode.none) for one in questions if not one.adds
            }
        answer = await peer.call(_request(version, questions))
        if answer.error_code is not ErrorCode.none:
            # This broker may not ask; its producers may not go unverified for it.
            return {one.transactional_id: one.all(ErrorCode.invalid_txn_state) for one in questions}
        return {
            one.transactional_id: {
                TopicPartition(topic.name, partition.partition_index): (
                    partition.partition_error_code
                )
                for topic in one.topic_results
                for partition in topic.results_by_partition
            }
            for one in answer.results_by_transaction
        }


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


def _request(version: int, questions: Sequence[Question]) -> Any:
    new = request(ADD_PARTITIONS_TO_TXN, version)
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
