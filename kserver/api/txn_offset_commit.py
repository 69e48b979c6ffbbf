"""TxnOffsetCommit (key 28): v0-v5.

Behaviour:
- Offsets are written as part of a producer's transaction: they take effect once it is committed,
  and are discarded if it is aborted.
- A request with a member id and generation is checked against the group (KIP-447).
- The first request of a transaction is written once the transaction's coordinator confirms that the
  group is part of it; from v5 on that adds it (KIP-890).

Errors: INVALID_GROUP_ID, UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING,
INVALID_TXN_STATE (the group is not part of the transaction), TRANSACTION_ABORTABLE (the same, from
v4), CONCURRENT_TRANSACTIONS, UNKNOWN_SERVER_ERROR (more than a record may hold),
COORDINATOR_LOAD_IN_PROGRESS (also of the transaction's), COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR.

Versions:
- v2 leader epoch, COORDINATOR_LOAD_IN_PROGRESS, before that COORDINATOR_NOT_AVAILABLE (KAFKA-7296)
- v3 generation, member id and group_instance_id, flexible; v4 TRANSACTION_ABORTABLE; v5 adds the
  group to the transaction
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import ask, commits, exists, resolve_topic
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import (
    NO_GENERATION,
    NO_MEMBER,
    Commit,
    CommitTransactionalOffsets,
)
from kserver.model import CONSUMER_OFFSETS, TopicPartition
from kserver.txn.transaction import ProducerIdAndEpoch
from kserver.wire.versions import reply_to

KEY, VERSIONS = 28, range(0, 6)

FIRST_WITH_LOADING = 2
FIRST_WITH_ABORTABLE = 4
FIRST_TO_ADD = 5


async def handle(request: Any, context: Context) -> Any:
    image = context.parts.metadata.current
    topics = [(topic, *resolve_topic(topic, image)) for topic in request.topics]
    codes = iter(await _commit(request, commits(topics), context))
    reply = reply_to(request)
    return reply(
        topics=[
            reply.topics(
                name=topic.name,
                partitions=[
                    reply.topics.partitions(
                        partition_index=partition.partition_index,
                        error_code=next(codes) if info and exists(partition, info) else unknown,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic, info, unknown in topics
        ]
    )


async def _commit(request: Any, offsets: list[Commit], context: Context) -> list[ErrorCode]:
    """Commit the offsets; return an error code for each partition that exists."""
    if not offsets:
        return []
    shard_request = CommitTransactionalOffsets(
        request.group_id,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        getattr(request, "generation_id", NO_GENERATION),
        getattr(request, "member_id", NO_MEMBER),
        getattr(request, "group_instance_id", None),
        offsets,
    )
    try:
        await _verify(request, context)
        codes: list[ErrorCode] = await ask(request.group_id, shard_request, context)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.coordinator_load_in_progress and context.version < FIRST_WITH_LOADING:
            code = ErrorCode.coordinator_not_available
        return [code for _ in offsets]
    return codes


async def _verify(request: Any, context: Context) -> None:
    """Raise KafkaError if the group is not part of the transaction.

    The offsets must be written before anything else is awaited.
    """
    parts = context.parts
    adds = context.version >= FIRST_TO_ADD
    if not adds and not parts.config().transaction_partition_verification_enable:
        return
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    partition = TopicPartition(CONSUMER_OFFSETS, parts.groups.partition_of(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    replica = parts.replicas.partitions.get(partition)
    if replica is not None and replica.open_epoch(producer.producer_id) == producer.epoch:
        return
    errors = await parts.verification.verify(
        request.transactional_id,
        producer,
        frozenset({partition}),
        adds,
        context.version >= FIRST_WITH_ABORTABLE,
    )
    error = errors.get(partition)
    if error is not None:
        if error.code is ErrorCode.not_enough_replicas:
            # Clients know NOT_ENOUGH_REPLICAS only from Produce; this error they retry as well.
            raise KafkaError(ErrorCode.coordinator_load_in_progress, error.message)
        raise error
