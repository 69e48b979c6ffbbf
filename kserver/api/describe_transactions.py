"""DescribeTransactions (key 65): v0.

Behaviour:
- Returns the coordinator's state of transactional ids: producer, state, timeout, start time of the
  transaction, and its partitions.

Errors: INVALID_REQUEST (an empty transactional id), TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.

Versions:
- v0 flexible (KIP-664)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kserver.api.context import Context, Parts
from kserver.errors import ErrorCode, KafkaError
from kserver.txn.transaction import Transaction
from kserver.wire.versions import reply_to

KEY, VERSIONS = 65, range(0, 1)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    new = reply.transaction_states
    return reply(
        transaction_states=[
            _described(transactional_id, context.parts, new)
            for transactional_id in request.transactional_ids
        ]
    )


def _described(transactional_id: str, parts: Parts, new: Any) -> Any:
    try:
        transaction = _transaction(transactional_id, parts)
    except KafkaError as error:
        return new(error_code=error.code, transactional_id=transactional_id)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return new(
        transactional_id=transactional_id,
        transaction_state=str(transaction.state),
        transaction_timeout=timedelta(milliseconds=transaction.timeout_ms),
        transaction_start_time=datetime.fromtimestamp(transaction.started_ms / 1000, UTC),
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            new.topics(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()
        ],
    )


def _transaction(transactional_id: str, parts: Parts) -> Transaction:
    if transactional_id == "":
        raise KafkaError(ErrorCode.invalid_request)
    shard = parts.transactions.shard(transactional_id)
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.transactional_id_not_found)
    return transaction
