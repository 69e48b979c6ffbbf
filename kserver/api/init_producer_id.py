"""InitProducerId (key 22): v0-v5.

Behaviour:
- Without a transactional id: a new producer id, epoch 0.  A producer that names the id and epoch
  it had (v3, KIP-360) gets a new one too: it restarts its sequences either way.
- With one: COORDINATOR_NOT_AVAILABLE, which clients retry, until there is a coordinator.

Errors: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST (an empty transactional id, an id without epoch).

Versions:
- v2 flexible; v3 producer id and epoch; v4 PRODUCER_FENCED; v5 KIP-890
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.model import NO_PRODUCER_ID
from kserver.wire.versions import reply_to
from kserver.world.zookeeper import ZooKeeperError

KEY, VERSIONS = 22, range(0, 6)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    named_id = getattr(request, "producer_id", NO_PRODUCER_ID)
    named_epoch = getattr(request, "producer_epoch", -1)
    code = ErrorCode.none
    if request.transactional_id == "" or (named_id == NO_PRODUCER_ID) != (named_epoch == -1):
        code = ErrorCode.invalid_request
    elif request.transactional_id is not None:
        code = ErrorCode.coordinator_not_available
    if code is ErrorCode.none:
        try:
            producer_id = await context.parts.producer_ids.next()
            return reply(error_code=code, producer_id=producer_id, producer_epoch=0)
        except KafkaError as error:
            code = error.code
        except (ZooKeeperError, StorageError):
            # Retried by the client; until then there is nowhere to take ids from.
            code = ErrorCode.coordinator_not_available
    return reply(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=-1)
