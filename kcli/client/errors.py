"""Exceptions of the clients.

Exception
+-- ClientError            the client gave up
|   +-- ClusterUnreachable no broker responded in time
|   +-- TimedOut           brokers respond, but the awaited event did not happen
|   +-- NoOffset           a partition has no position and no rule gives it one
|   +-- LogTruncated       the log lost records that the consumer had reached (KIP-320)
|   +-- Undeserializable   a deserializer raised (KIP-334)
|   +-- IllegalTransactionState   begin, commit and abort were called out of order
|   +-- TransactionFailed         abort it; if it is not abortable, close the producer
|   |   +-- ProducerFenced        another producer uses the transactional.id now
|   +-- TransactionAborted        a record was not sent because its transaction is aborted
|   +-- CommitFailed              the partitions were assigned to other members
|   +-- RebalanceInProgress       they may be: poll, and commit what is still owned
+-- kserver.errors.KafkaError   a broker refused one item (a topic, a partition, a record)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kserver.errors import ErrorCode, KafkaError
from kserver.model import Offset, OffsetAndEpoch, TopicPartition


class ClientError(Exception):
    """The client gave up; the text names the reason."""


class ClusterUnreachable(ClientError):
    """No broker could be reached before the deadline. The text is that of Kafka's tools; `cause` is
    the error of the last attempt.
    """

    def __init__(self, call: str, cause: Exception | None = None) -> None:
        super().__init__(f"Timed out waiting for a node assignment. Call: {call}")
        self.call = call
        self.cause = cause


class TimedOut(ClientError):
    """The awaited event did not happen in time."""


class NoOffset(ClientError):
    """auto.offset.reset is none, and there is no position to read from."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(sorted(partitions))
        names = ", ".join(map(str, self.partitions))
        super().__init__(f"Undefined offset with no reset policy for partitions: [{names}]")


class LogTruncated(ClientError):
    """The log was truncated below the consumer's position. `diverged` is where the logs diverge, if
    known.
    """

    def __init__(
        self, partition: TopicPartition, position: int, diverged: OffsetAndEpoch | None
    ) -> None:
        self.partition = partition
        self.position = position
        self.diverged = diverged
        where = f"at offset {diverged.offset}" if diverged else "at an unknown offset"
        super().__init__(f"{partition} was truncated {where}, below position {position}")


class Undeserializable(ClientError):
    """A deserializer raised on a record; the cause is its exception. The consumer's position is the
    record: seek to the next offset to skip it.
    """

    def __init__(self, partition: TopicPartition, offset: Offset, cause: Exception) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"the record at offset {offset} of {partition}: {cause}")


class IllegalTransactionState(ClientError):
    """A call that is not allowed now; nothing was changed."""


class TransactionFailed(ClientError):
    """`cause` ended the transaction. If `abortable`, the producer can continue after
    abort_transaction; otherwise it can only be closed.
    """

    def __init__(self, cause: Exception, *, abortable: bool) -> None:
        remedy = "abort it" if abortable else "close the producer"
        super().__init__(f"the transaction failed, {remedy}: {cause}")
        self.cause = cause
        self.abortable = abortable


class ProducerFenced(TransactionFailed):
    """Another producer was started with the same transactional.id, or a transaction took longer
    than transaction.timeout.ms.
    """


class TransactionAborted(ClientError):
    """The record was not sent because its transaction is aborted."""


class CommitFailed(ClientError):
    """The group refused the offsets because the partitions were assigned to others."""


class RebalanceInProgress(ClientError):
    """The group is rebalancing: poll, and then commit what is still owned."""


def refusal_of(item: Any) -> KafkaError | None:
    """Return the error of one item of a response, or None."""
    if item.error_code == ErrorCode.none:
        return None
    return KafkaError(item.error_code, getattr(item, "error_message", None) or "")
