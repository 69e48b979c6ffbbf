"""Changes of transactional ids, and their records in __transaction_state.

Version 0 of the value, which older brokers read, lacks the fields of KIP-890.  It is written below
transaction version 1, if those fields are empty.

Pure: values and bytes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from kserver.errors import ProtocolError
from kserver.model import NO_PRODUCER_ID, TopicPartition
from kserver.txn.records import RECORDS, TRANSACTION
from kserver.txn.transaction import PREPARED, Transaction, TransactionState
from kserver.wire.schema import UnknownKind

FLEXIBLE_VALUES = 1
"""Transaction version from which on version 1 of the value is written."""


@dataclass(frozen=True, slots=True)
class TransactionChanged:
    """The transactional id has this state now."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class TransactionalIdForgotten:
    transactional_id: str


Event: TypeAlias = TransactionChanged | TransactionalIdForgotten


def encode(event: Event, transaction_version: int) -> tuple[bytes, bytes | None]:
    """Return key and value; `transaction_version` is the cluster's."""
    if isinstance(event, TransactionalIdForgotten):
        return _key(event.transactional_id), None
    transaction = event.transaction
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    topics = [{"topic": name, "partitionIds": ids} for name, ids in by_topic.items()]
    values: dict[str, Any] = {
        "producerId": transaction.producer_id,
        "previousProducerId": transaction.previous_id,
        "nextProducerId": transaction.next_id,
        "producerEpoch": transaction.epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": transaction.state.value,
        "transactionPartitions": None if transaction.state is TransactionState.EMPTY else topics,
        "transactionLastUpdateTimestampMs": transaction.updated_ms,
        "transactionStartTimestampMs": transaction.started_ms,
        "clientTransactionVersion": transaction.version,
    }
    has_tagged_fields = (
        transaction.version
        or transaction.previous_id != NO_PRODUCER_ID
        or transaction.next_id != NO_PRODUCER_ID
    )
    version = 1 if has_tagged_fields or transaction_version >= FLEXIBLE_VALUES else 0
    return _key(transaction.id), RECORDS.encode_value(TRANSACTION, version, values)


def decode(key: bytes, value: bytes | None) -> Event | None:
    """Return the event; None for an unknown kind of record.  Raises ProtocolError."""
    try:
        _, key_fields = RECORDS.decode_key(key)
    except UnknownKind:
        return None
    transactional_id = key_fields["transactionalId"]
    if value is None:
        return TransactionalIdForgotten(transactional_id)
    _, fields = RECORDS.decode_value(TRANSACTION, value)
    try:
        state = TransactionState(fields["transactionStatus"])
    except ValueError:
        raise ProtocolError(
            f"{transactional_id}: {fields['transactionStatus']} is not a transaction state"
        ) from None
    return TransactionChanged(
        Transaction(
            transactional_id,
            fields["producerId"],
            fields["producerEpoch"],
            fields["transactionTimeoutMs"],
            fields["transactionLastUpdateTimestampMs"],
            state,
            frozenset(
                TopicPartition(topic["topic"], partition)
                for topic in fields["transactionPartitions"] or ()
                for partition in topic["partitionIds"]
            ),
            fields["transactionStartTimestampMs"],
            # Kafka also writes the previous id if it is the same, or no longer relevant.
            _previous(fields, state),
            fields["nextProducerId"],
            fields["clientTransactionVersion"],
        )
    )


def _previous(fields: dict[str, Any], state: TransactionState) -> int:
    previous: int = fields["previousProducerId"]
    is_relevant = (
        state not in PREPARED
        and state is not TransactionState.ONGOING
        and fields["producerEpoch"] == 0
    )
    return previous if is_relevant and previous != fields["producerId"] else NO_PRODUCER_ID


def _key(transactional_id: str) -> bytes:
    return RECORDS.encode_key(TRANSACTION, {"transactionalId": transactional_id})
