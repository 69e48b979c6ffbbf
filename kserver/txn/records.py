"""Schemas of the records of __transaction_state: each transactional id and its state, as in Kafka.

`transactionStatus` is the number of a state in Kafka's TransactionState:

    0 Empty   1 Ongoing   2 PrepareCommit   3 PrepareAbort   4 CompleteCommit   5 CompleteAbort
    6 Dead   7 PrepareEpochFence

`transactionPartitions` is null while there is no transaction.  A record without a value is a
tombstone of the transactional id.

Pure: values and bytes only.
"""

from __future__ import annotations

from kserver.wire.schema import keyed

TRANSACTION = 0

RECORDS = keyed(
    """
TransactionLogKey 0
    transactionalId string
TransactionLogValue 0-1 flexible 1+
    producerId int64
    previousProducerId int64 1+ tag 0 = -1
    nextProducerId int64 1+ tag 1 = -1
    producerEpoch int16
    nextProducerEpoch int16 1+ tag 3 = -1
    transactionTimeoutMs int32
    transactionStatus int8
    transactionPartitions []?
        topic string
        partitionIds []int32
    transactionLastUpdateTimestampMs int64
    transactionStartTimestampMs int64
    clientTransactionVersion int16 1+ tag 2
""",
    {TRANSACTION: "TransactionLog"},
)
