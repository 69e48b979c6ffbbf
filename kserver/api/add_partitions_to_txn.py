"""AddPartitionsToTxn (key 24): v0-v5.

Behaviour:
- The partitions become part of the producer's transaction, which begins with the first of them;
  their records take effect once it is committed.  All partitions of a request are added, or none:
  if one topic does not exist, the others fail with OPERATION_NOT_ATTEMPTED.
- v4 and later come from brokers, for many transactions at once; `verify_only` adds nothing, and
  returns TRANSACTION_ABORTABLE for a partition that is not part of the transaction (KIP-890).

Errors: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED (a coordinator's own topic),
OPERATION_NOT_ATTEMPTED, INVALID_REQUEST (an empty transactional id), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING,
PRODUCER_FENCED, INVALID_PRODUCER_EPOCH (the same, before v2), CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE.

Versions:
- v2 PRODUCER_FENCED; v3 flexible; v4 batches from brokers, verify_only; v5 transaction version 2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kserver.api.context import Context, Parts
from kserver.api.response_fields import fenced_code
from kserver.errors import ErrorCode, KafkaError
from kserver.model import INTERNAL_TOPICS, TopicPartition
from kserver.txn.requests import AddPartitions, VerifyPartitions
from kserver.txn.transaction import EPOCH_BUMPS, ProducerIdAndEpoch
from kserver.wire.versions import reply_to

KEY, VERSIONS = 24, range(0, 6)

FIRST_WITH_FENCED = 2
FIRST_FROM_BROKERS = 4
FIRST_WITH_EPOCH_BUMPS = 5


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    version = context.version
    if version >= FIRST_FROM_BROKERS:
        transactions = [
            reply.results_by_transaction(
                transactional_id=transaction.transactional_id,
                topic_results=_topics(
                    transaction.topics,
                    await _add(
                        transaction.transactional_id,
                        ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch),
                        transaction.topics,
                        version,
                        context.parts,
                        verify_only=transaction.verify_only,
                    ),
                    reply.results_by_transaction.topic_results,
                ),
            )
            for transaction in request.transactions
        ]
        return reply(results_by_transaction=transactions)
    topics = request.v3_and_below_topics
    codes = await _add(
        request.v3_and_below_transactional_id,
        ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        topics,
        version,
        context.parts,
    )
    topics = _topics(topics, codes, reply.results_by_topic_v3_and_below)
    return reply(results_by_topic_v3_and_below=topics)


async def _add(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Any,
    version: int,
    parts: Parts,
    *,
    verify_only: bool = False,
) -> Mapping[TopicPartition, ErrorCode]:
    partitions = frozenset(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
    )
    errors = _errors(partitions, version, parts)
    if errors:
        not_attempted = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
        return not_attempted | errors
    try:
        if transactional_id == "":
            raise KafkaError(ErrorCode.invalid_request)
        if verify_only:
            verify = VerifyPartitions(transactional_id, producer, partitions)
            codes: Mapping[TopicPartition, ErrorCode] = await parts.transactions.ask(
                transactional_id, verify
            )
            return codes
        transaction_version = EPOCH_BUMPS if version >= FIRST_WITH_EPOCH_BUMPS else 0
        add = AddPartitions(transactional_id, producer, partitions, transaction_version)
        await parts.transactions.ask(transactional_id, add)
    except KafkaError as error:
        return dict.fromkeys(partitions, fenced_code(error.code, version >= FIRST_WITH_FENCED))
    return dict.fromkeys(partitions, ErrorCode.none)


def _errors(
    partitions: frozenset[TopicPartition], version: int, parts: Parts
) -> dict[TopicPartition, ErrorCode]:
    topics = parts.metadata.current.topics
    errors = {}
    for key in partitions:
        topic = topics.get(key.topic)
        if version < FIRST_FROM_BROKERS and key.topic in INTERNAL_TOPICS:
            errors[key] = ErrorCode.topic_authorization_failed
        elif topic is None or not 0 <= key.partition < len(topic.partitions):
            errors[key] = ErrorCode.unknown_topic_or_partition
    return errors


def _topics(topics: Any, codes: Mapping[TopicPartition, ErrorCode], new: Any) -> list[Any]:
    return [
        new(
            name=topic.name,
            results_by_partition=[
                new.results_by_partition(
                    partition_index=index,
                    partition_error_code=codes[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
