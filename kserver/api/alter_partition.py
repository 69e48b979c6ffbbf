"""AlterPartition (key 56): v2-v3.

Behaviour:
- The controller writes the ISR that a partition's leader proposes, if it leads in the current epoch
  and its partition epoch is current.  A repeated request gets the same response.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, STALE_BROKER_EPOCH; by partition
UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, INVALID_REQUEST,
INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA.

Versions:
- v3 epochs of the brokers in sync (KIP-903)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.controller.partitions import IsrChange
from kserver.errors import ErrorCode, KafkaError
from kserver.model import LeaderAndIsr
from kserver.wire.versions import reply_to

KEY, VERSIONS = 56, range(2, 4)

RECOVERING = 1
"""State of a leader from an unclean election, until it reports that it has recovered (KIP-704)."""


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    if not await context.from_broker("AlterPartition"):
        return reply(error_code=ErrorCode.cluster_authorization_failed)
    changes = [
        IsrChange(
            topic.topic_id,
            p.partition_index,
            p.leader_epoch,
            tuple((m.broker_id, m.broker_epoch) for m in p.new_isr_with_epochs)
            if request.__version__ >= 3
            else tuple((broker, -1) for broker in p.new_isr),
            p.partition_epoch,
            p.leader_recovery_state == RECOVERING,
        )
        for topic in request.topics
        for p in topic.partitions
    ]
    try:
        decided = await context.parts.controller.alter_partitions(
            request.broker_id, request.broker_epoch, changes
        )
    except KafkaError as error:
        return reply(error_code=error.code)
    topics: dict[Any, list[Any]] = {}
    for change, result in zip(changes, decided, strict=True):
        topics.setdefault(change.topic_id, []).append(
            reply.topics.partitions(partition_index=change.partition, **_fields(result))
        )
    return reply(topics=[reply.topics(topic_id=i, partitions=p) for i, p in topics.items()])


def _fields(result: LeaderAndIsr | KafkaError) -> dict[str, Any]:
    if isinstance(result, KafkaError):
        return {"error_code": result.code}
    return {
        "error_code": ErrorCode.none,
        "leader_id": result.leader,
        "leader_epoch": result.leader_epoch,
        "isr": result.isr,
        "partition_epoch": result.partition_epoch,
        "leader_recovery_state": RECOVERING if result.is_recovering else 0,
    }
