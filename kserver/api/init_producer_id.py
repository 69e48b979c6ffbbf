"""InitProducerId (key 22): v0-v5.

Behaviour:
- Without a transactional id: returns a new producer id with epoch 0.  A producer that sends its
  previous id and epoch (v3, KIP-360) gets a new one too, since it restarts its sequences anyway.
- With one: returns its producer id and the next epoch, which fences all earlier producers.  An
  ongoing transaction is aborted first, with CONCURRENT_TRANSACTIONS meanwhile.  When the epochs
  are used up, it gets a new producer id.
- A producer that continues after an error sends its id and epoch: it is fenced if another has taken
  over.

Errors: INVALID_REQUEST (a transactional id that is empty or that no record can hold, an id without
epoch), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS (also while the controller allocates no ids),
COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, INVALID_PRODUCER_EPOCH (the
same, before v4), INVALID_TRANSACTION_TIMEOUT.

Versions:
- v2 flexible; v3 producer id and epoch; v4 PRODUCER_FENCED; v5 KIP-890
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kserver.api.context import Context, Parts
from kserver.api.response_fields import fenced_code
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_PRODUCER_ID
from kserver.txn.producer_ids import ask_with_id
from kserver.txn.requests import InitProducerId
from kserver.txn.transaction import NO_EPOCH, ProducerIdAndEpoch
from kserver.wire.versions import reply_to

KEY, VERSIONS = 22, range(0, 6)

FIRST_WITH_FENCED = 4


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    try:
        identity = await _identity(request, context.parts)
        return reply(producer_id=identity.producer_id, producer_epoch=identity.epoch)
    except KafkaError as error:
        code = fenced_code(error.code, context.version >= FIRST_WITH_FENCED)
    return reply(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


async def _identity(request: Any, parts: Parts) -> ProducerIdAndEpoch:
    current = ProducerIdAndEpoch(
        getattr(request, "producer_id", NO_PRODUCER_ID),
        getattr(request, "producer_epoch", NO_EPOCH),
    )
    transactional_id = request.transactional_id
    if (current.producer_id == NO_PRODUCER_ID) != (current.epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.invalid_request)
    if transactional_id is None:
        return ProducerIdAndEpoch(await parts.producer_ids.next(), 0)
    if transactional_id == "":
        raise KafkaError(ErrorCode.invalid_request)
    shard_request = InitProducerId(
        transactional_id,
        request.transaction_timeout // timedelta(milliseconds=1),
        None if current.producer_id == NO_PRODUCER_ID else current,
    )
    identity: ProducerIdAndEpoch = await ask_with_id(
        parts.transactions, parts.producer_ids, shard_request
    )
    return identity
