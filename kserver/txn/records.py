"""What __transaction_state holds: each transactional id and its state, under Kafka's own schemas.

`transactionStatus` is the number of a state, as Kafka's TransactionState has them:

    0 Empty   1 Ongoing   2 PrepareCommit   3 PrepareAbort   4 CompleteCommit   5 CompleteAbort
    6 Dead   7 PrepareEpochFence

`transactionPartitions` is null while there is no transaction.  A record without a value deletes
the transactional id.

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
