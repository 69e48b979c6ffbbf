"""ListTransactions (key 66): v0-v2.

Behaviour:
- Returns the transactional ids that this broker coordinates, filtered by producer ids, states,
  minimum duration and pattern.
- An unknown state is returned as such, and matches nothing.

Errors: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION.

Versions:
- v0 flexible (KIP-664); v1 duration (KIP-994); v2 pattern (KIP-1152)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import KafkaError
from kserver.group.topic_patterns import matching
from kserver.txn.transaction import TransactionState
from kserver.wire.versions import reply_to

KEY, VERSIONS = 66, range(0, 3)

STATES = {str(state): state for state in TransactionState}


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    parts = context.parts
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producer_ids = frozenset(request.producer_id_filters)
    longest_ms = getattr(request, "duration_filter", -1)
    latest_ms = parts.world.clock.now_ms() - longest_ms
    try:
        transactions = [
            transaction
            for shard in parts.transactions.shards()
            for transaction in shard.transactions.values()
            if (not request.state_filters or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (longest_ms < 0 or transaction.started_ms < latest_ms)
        ]
        pattern = getattr(request, "transactional_id_pattern", None)
        if pattern:
            names = matching(pattern, [transaction.id for transaction in transactions])
            transactions = [transaction for transaction in transactions if transaction.id in names]
    except KafkaError as error:
        return reply(error_code=error.code)
    new = reply.transaction_states
    return reply(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES],
        transaction_states=[
            new(
                transactional_id=transaction.id,
                producer_id=transaction.producer_id,
                transaction_state=str(transaction.state),
            )
            for transaction in transactions
        ],
    )
