"""EndTxn (key 26): v0-v5.

Behaviour:
- Commits or aborts the producer's transaction.  It is decided by the time of the response, and is
  visible to read_committed consumers once its markers are written, which starts at once.
- A repeated request gets the same response, or CONCURRENT_TRANSACTIONS while markers are being
  written.
- v5 raises the producer's epoch and returns the id and epoch to continue with, a new producer id
  when the epochs are used up (KIP-890, transaction version 2); aborting a transaction that never
  began succeeds.

Errors: INVALID_REQUEST (an empty transactional id), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_PRODUCER_EPOCH (the
same, before v2), INVALID_TXN_STATE (nothing to end, or ended the other way),
CONCURRENT_TRANSACTIONS.

Versions:
- v2 PRODUCER_FENCED; v3 flexible; v4 KIP-890; v5 producer id and epoch
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.response_fields import fenced_code
from kserver.errors import ErrorCode, KafkaError
from kserver.txn.producer_ids import ask_with_id
from kserver.txn.requests import EndTransaction
from kserver.txn.transaction import EPOCH_BUMPS, ProducerIdAndEpoch
from kserver.wire.versions import reply_to

KEY, VERSIONS = 26, range(0, 6)

FIRST_WITH_FENCED = 2
FIRST_WITH_EPOCH_BUMPS = 5


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    parts, version = context.parts, context.version
    try:
        if request.transactional_id == "":
            raise KafkaError(ErrorCode.invalid_request)
        end = EndTransaction(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            request.committed,
            EPOCH_BUMPS if version >= FIRST_WITH_EPOCH_BUMPS else 0,
        )
        identity: ProducerIdAndEpoch = await ask_with_id(
            parts.transactions, parts.producer_ids, end
        )
        return reply(producer_id=identity.producer_id, producer_epoch=identity.epoch)
    except KafkaError as error:
        code = fenced_code(error.code, version >= FIRST_WITH_FENCED)
    return reply(error_code=code, producer_id=-1, producer_epoch=-1)
