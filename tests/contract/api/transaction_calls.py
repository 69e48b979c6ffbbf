"""Calls of a transactional producer, built by hand, in any version."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.schema import schemas
from tests.contract.api.calls import Topic, batch, fetch, produce_fields
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

FIRST_FROM_BROKERS = 4
"""First version of AddPartitionsToTxn that brokers send."""
BY_TOPIC_NAME = 11
"""A version of Produce without implicitly added partitions."""
IMPLICIT = 12

DESCRIBED = schemas(
    """
DescribeTransactionsResponse 0 flexible 0+
    throttleTimeMs int32
    transactionStates []
        errorCode int16
        transactionalId string
        transactionState string
        transactionTimeoutMs int32
        transactionStartTimeMs int64
        producerId int64
        producerEpoch int16
        topics []
            topic string
            partitions []int32
"""
)["DescribeTransactionsResponse"]
HEADER_BYTES = 5

NAMES = (f"contract-{number}" for number in itertools.count(1))

ASK_AGAIN = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
        ErrorCode.not_enough_replicas,
    }
)


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int

    def fields(self) -> dict[str, Any]:
        return self._asdict()


def retried(call: Callable[[], Any], code: Callable[[Any], ErrorCode]) -> Any:
    """Repeat the call until its error is not retriable; return the last response."""
    answers: list[Any] = []

    def is_told() -> bool:
        answers.append(call())
        return code(answers[-1]) not in ASK_AGAIN

    until(is_told)
    return answers[-1]


def init(client: WireClient, name: str, version: int = 4, **fields: Any) -> Any:
    """Return InitProducerId's response, once the coordinator is ready and no transaction is in the
    way."""
    client.call(ApiKey.FIND_COORDINATOR, 3, key=name, key_type=1)
    asked = {"transactional_id": name, "transaction_timeout": milliseconds(60_000)} | fields
    return retried(
        lambda: client.call(ApiKey.INIT_PRODUCER_ID, version, **asked), lambda a: a.error_code
    )


def begun(client: WireClient, name: str | None = None) -> Producer:
    """Return a producer with its producer id; with a new transactional id if `name` is None."""
    name = name or next(NAMES)
    answer = init(client, name)
    assert answer.error_code is ErrorCode.none
    return Producer(name, answer.producer_id, answer.producer_epoch)


def add(
    client: WireClient,
    version: int,
    producer: Producer,
    topics: dict[str, tuple[int, ...]],
    *,
    verify_only: bool = False,
) -> dict[tuple[str, int], ErrorCode]:
    """Return AddPartitionsToTxn's error codes, by topic and partition."""
    asked = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
    if version < FIRST_FROM_BROKERS:
        fields: dict[str, Any] = {
            f"v3_and_below_{key}": value for key, value in producer.fields().items()
        } | {"v3_and_below_topics": asked}
    else:
        one = producer.fields() | {"verify_only": verify_only, "topics": asked}
        fields = {"transactions": [one]}

    def codes(answer: Any) -> dict[tuple[str, int], ErrorCode]:
        if version < FIRST_FROM_BROKERS:
            results = answer.results_by_topic_v3_and_below
        else:
            assert answer.error_code is ErrorCode.none
            results = answer.results_by_transaction[0].topic_results
        return {
            (topic.name, one.partition_index): one.partition_error_code
            for topic in results
            for one in topic.results_by_partition
        }

    return codes(
        retried(
            lambda: client.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, **fields),
            lambda answer: next(iter(codes(answer).values())),
        )
    )


def write(
    client: WireClient,
    producer: Producer,
    topic: Topic,
    *values: bytes,
    sequence: int = 0,
    partition: int = 0,
    version: int = BY_TOPIC_NAME,
    transactional: bool = True,
    **fields: Any,
) -> Any:
    """Produce one batch; return the partition's response."""
    records = batch(
        *values,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    asked = produce_fields(version, topic, {partition: records})
    asked |= {"transactional_id": producer.transactional_id} | fields
    return retried(
        lambda: client.call(ApiKey.PRODUCE, version, **asked).responses[0].partition_responses[0],
        lambda answer: answer.error_code,
    )


def end(client: WireClient, producer: Producer, *, commit: bool, version: int = 3) -> ErrorCode:
    """Return EndTxn's error code, once no markers are being written."""
    code: ErrorCode = ended(client, producer, commit=commit, version=version).error_code
    return code


def ended(client: WireClient, producer: Producer, *, commit: bool, version: int) -> Any:
    return retried(
        lambda: client.call(ApiKey.END_TXN, version, committed=commit, **producer.fields()),
        lambda answer: answer.error_code,
    )


def state(client: WireClient, name: str) -> SimpleNamespace:
    """Return the transaction from DescribeTransactions.

    The response is decoded by schema, because kio does not accept -1 (no start time) as a time.
    """
    client.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])
    told = DESCRIBED.decode(0, client.receive_frame()[HEADER_BYTES:])
    (one,) = told["transactionStates"]
    return SimpleNamespace(
        error_code=ErrorCode(one["errorCode"]),
        transaction_state=one["transactionState"],
        timeout_ms=one["transactionTimeoutMs"],
        start_ms=one["transactionStartTimeMs"],
        producer=Producer(one["transactionalId"], one["producerId"], one["producerEpoch"]),
        topics={topic["topic"]: sorted(topic["partitions"]) for topic in one["topics"]},
    )


def settled(client: WireClient, producer: Producer) -> Any:
    """Wait until the transaction has ended; return its description."""
    name = producer.transactional_id
    until(lambda: not state(client, name).transaction_state.startswith("Prepare"))
    return state(client, name)


def stable_offset(client: WireClient, topic: Topic) -> int:
    offset: int = fetch(client, 11, topic, 0).last_stable_offset
    return offset
