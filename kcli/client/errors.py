"""What a client raises of its own.

Exception
+-- ClientError            the client gave up
|   +-- ClusterUnreachable no broker answered in time
|   +-- TimedOut           brokers answer, but not with what was waited for
|   +-- NoOffset           a partition has no position and no rule gives it one
|   +-- LogTruncated       the log lost records that the consumer had reached (KIP-320)
|   +-- Undeserializable   a deserializer raised (KIP-334)
|   +-- IllegalTransactionState   begin, commit and abort come in another order
|   +-- TransactionFailed         abort it; where it is not abortable, close the producer
|   |   +-- ProducerFenced        another has the transactional.id now
|   +-- TransactionAborted        why a record was not sent
|   +-- CommitFailed              the group has given the partitions to others
|   +-- RebalanceInProgress       it may do so: poll, and commit what is still there
+-- kserver.errors.KafkaError   a broker refused one item (a topic, a partition, a record)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kserver.errors import ErrorCode, KafkaError
from kserver.model import Offset, OffsetAndEpoch, TopicPartition


class ClientError(Exception):
    """The client gave up; the text says on what."""


class ClusterUnreachable(ClientError):
    """No broker could be asked before the deadline.  The text is the one that Kafka's tools print
    for it; `cause` says what the last attempt met.
    """

    def __init__(self, call: str, cause: Exception | None = None) -> None:
        super().__init__(f"Timed out waiting for a node assignment. Call: {call}")
        self.call = call
        self.cause = cause


class TimedOut(ClientError):
    """What was waited for did not happen in time."""


class NoOffset(ClientError):
    """auto.offset.reset is none, and there is no position to read from."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(sorted(partitions))
        names = ", ".join(map(str, self.partitions))
        super().__init__(f"Undefined offset with no reset policy for partitions: [{names}]")


class LogTruncated(ClientError):
    """The log was cut below the consumer's position; `diverged` is where the two part, if known."""

    def __init__(
        self, partition: TopicPartition, position: int, diverged: OffsetAndEpoch | None
    ) -> None:
        self.partition = partition
        self.position = position
        self.diverged = diverged
        where = f"at offset {diverged.offset}" if diverged else "at an unknown offset"
        super().__init__(f"{partition} was truncated {where}, below position {position}")


class Undeserializable(ClientError):
    """A deserializer raised on a record; the cause is what it raised.  The consumer stands at the
    record: seek to the next offset to pass it.
    """

    def __init__(self, partition: TopicPartition, offset: Offset, cause: Exception) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"the record at offset {offset} of {partition}: {cause}")


class IllegalTransactionState(ClientError):
    """A call that cannot be made now: nothing has changed."""


class TransactionFailed(ClientError):
    """`cause` ended the transaction.  `abortable`: after abort_transaction the producer goes on;
    else it can only be closed.
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
    """The record was not sent, for its transaction is aborted."""


class CommitFailed(ClientError):
    """The group does not take the offsets: the partitions went to others."""


class RebalanceInProgress(ClientError):
    """The group shares its partitions out anew: poll, and then commit what is still owned."""


def refusal_of(item: Any) -> KafkaError | None:
    """Why a broker refused one item of its answer; None where it did not."""
    if item.error_code == ErrorCode.none:
        return None
    return KafkaError(item.error_code, getattr(item, "error_message", None) or "")
