"""AddOffsetsToTxn (key 25): v0-v4.

Behaviour:
- The group's partition of __consumer_offsets becomes part of the producer's transaction: offsets
  that TxnOffsetCommit writes there take effect once the transaction is committed.  The topic is
  created if it does not exist.

Errors: INVALID_REQUEST (an empty transactional id), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_PRODUCER_EPOCH (the
same, before v2), CONCURRENT_TRANSACTIONS.

Versions:
- v2 PRODUCER_FENCED; v3 flexible; v4 KIP-890
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.find_coordinator import find_or_create_topic
from kserver.api.response_fields import fenced_code
from kserver.errors import ErrorCode, KafkaError
from kserver.model import CONSUMER_OFFSETS, TopicPartition
from kserver.txn.requests import AddPartitions
from kserver.txn.transaction import ProducerIdAndEpoch
from kserver.wire.versions import reply_to

KEY, VERSIONS = 25, range(0, 5)

FIRST_WITH_FENCED = 2


async def handle(request: Any, context: Context) -> Any:
    code = ErrorCode.none
    parts = context.parts
    try:
        if request.transactional_id == "":
            raise KafkaError(ErrorCode.invalid_request)
        await find_or_create_topic(CONSUMER_OFFSETS, context)
        partition = TopicPartition(CONSUMER_OFFSETS, parts.groups.partition_of(request.group_id))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        add = AddPartitions(request.transactional_id, producer, frozenset({partition}))
        await parts.transactions.ask(request.transactional_id, add)
    except KafkaError as error:
        code = fenced_code(error.code, context.version >= FIRST_WITH_FENCED)
    return reply_to(request)(error_code=code)
