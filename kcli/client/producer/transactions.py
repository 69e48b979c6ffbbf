"""States of a producer's transactions, and the meaning of each error.

Pure: states, tables and decisions; `transaction_manager.py` sends the requests.

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING -> READY
                                                |   |            |
                                                |   +-> ABORTABLE_ERROR <-+
                                                |            |
                                                +------------+-> ABORTING -> READY
    any -> FATAL_ERROR

    IN_TRANSACTION -> HANDED_OVER            another producer ends it, from wherever that is
    UNINITIALIZED  -> IN_TRANSACTION         in the producer that has taken it over

ABORTABLE_ERROR leaves only abort_transaction, FATAL_ERROR and HANDED_OVER only close. Kafka:
TransactionManager, which has no handover.

How partitions and offsets are added to a transaction (KIP-890):

    transaction.version 0, 1    AddPartitionsToTxn before the first record for a partition,
                                AddOffsetsToTxn before the offsets of a group; after errors a new
                                epoch through InitProducerId (KIP-360)
    transaction.version 2       implicitly by Produce and TxnOffsetCommit; each EndTxn response has
                                the epoch for the next transaction
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kcli.client.errors import (
    CommitFailed,
    IllegalTransactionState,
    ProducerFenced,
    TransactionFailed,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ProducerId
from kserver.wire.api_key import ApiKey

# The first transaction.version whose brokers add a partition when it is produced to.
IMPLICIT = 2
# The newest versions of these that do not imply transaction.version 2; AddPartitionsToTxn's later
# ones are for brokers.
BEFORE_IMPLICIT = {0: 11, ApiKey.END_TXN: 4, ApiKey.TXN_OFFSET_COMMIT: 4}
LAST_OF_CLIENTS = 3
# First version of InitProducerId with a former id and epoch (KIP-360).
BUMPING = 3


class TransactionManagerState(enum.Enum):
    UNINITIALIZED = enum.auto()
    INITIALIZING = enum.auto()
    READY = enum.auto()
    IN_TRANSACTION = enum.auto()
    COMMITTING_TRANSACTION = enum.auto()
    ABORTING_TRANSACTION = enum.auto()
    ABORTABLE_ERROR = enum.auto()
    HANDED_OVER = enum.auto()
    FATAL_ERROR = enum.auto()


VALID_PREVIOUS_STATES: dict[TransactionManagerState, frozenset[TransactionManagerState]] = {
    # Initializing was refused with an error that may be temporary.
    TransactionManagerState.UNINITIALIZED: frozenset({TransactionManagerState.INITIALIZING}),
    TransactionManagerState.INITIALIZING: frozenset({TransactionManagerState.UNINITIALIZED}),
    TransactionManagerState.READY: frozenset(
        {
            TransactionManagerState.INITIALIZING,
            TransactionManagerState.COMMITTING_TRANSACTION,
            TransactionManagerState.ABORTING_TRANSACTION,
        }
    ),
    TransactionManagerState.IN_TRANSACTION: frozenset({TransactionManagerState.READY}),
    TransactionManagerState.COMMITTING_TRANSACTION: frozenset(
        {TransactionManagerState.IN_TRANSACTION}
    ),
    TransactionManagerState.ABORTING_TRANSACTION: frozenset(
        {TransactionManagerState.IN_TRANSACTION, TransactionManagerState.ABORTABLE_ERROR}
    ),
    TransactionManagerState.ABORTABLE_ERROR: frozenset(
        {TransactionManagerState.IN_TRANSACTION, TransactionManagerState.COMMITTING_TRANSACTION}
    ),
    TransactionManagerState.HANDED_OVER: frozenset({TransactionManagerState.IN_TRANSACTION}),
    TransactionManagerState.FATAL_ERROR: frozenset(TransactionManagerState),
}
"""The states that may precede each state."""


class TransactionAction(enum.IntEnum):
    """Actions in order of severity: the most severe of a response's codes counts."""

    DONE = enum.auto()
    AGAIN = enum.auto()
    MOVED = enum.auto()
    """Retry at another coordinator."""
    ABORT = enum.auto()
    BUMP = enum.auto()
    """Abort, and then bump the epoch; fatal if the coordinator cannot bump it."""
    NOT_A_MEMBER = enum.auto()
    """Abort: the partitions were assigned to other members."""
    FENCED = enum.auto()
    FATAL = enum.auto()


_COORDINATOR = {
    ErrorCode.none: TransactionAction.DONE,
    ErrorCode.coordinator_not_available: TransactionAction.MOVED,
    ErrorCode.not_coordinator: TransactionAction.MOVED,
    # Coordinators of older brokers have only one code for both.
    ErrorCode.invalid_producer_epoch: TransactionAction.FENCED,
    ErrorCode.producer_fenced: TransactionAction.FENCED,
    ErrorCode.transaction_abortable: TransactionAction.ABORT,
}
_OF_TRANSACTION = _COORDINATOR | {ErrorCode.unknown_producer_id: TransactionAction.BUMP}

MEANINGS: dict[int, dict[ErrorCode, TransactionAction]] = {
    ApiKey.FIND_COORDINATOR: {
        ErrorCode.none: TransactionAction.DONE,
        # Metadata does not have the broker yet.
        ErrorCode.broker_not_available: TransactionAction.MOVED,
        ErrorCode.group_authorization_failed: TransactionAction.ABORT,
        ErrorCode.transaction_abortable: TransactionAction.ABORT,
    },
    ApiKey.INIT_PRODUCER_ID: _COORDINATOR
    | {
        ErrorCode.transactional_id_authorization_failed: TransactionAction.ABORT,
        ErrorCode.cluster_authorization_failed: TransactionAction.ABORT,
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: _OF_TRANSACTION
    | {
        ErrorCode.transactional_id_authorization_failed: TransactionAction.FATAL,
        ErrorCode.invalid_txn_state: TransactionAction.FATAL,
        ErrorCode.invalid_producer_id_mapping: TransactionAction.FATAL,
    },
    ApiKey.ADD_OFFSETS_TO_TXN: _OF_TRANSACTION
    | {ErrorCode.group_authorization_failed: TransactionAction.ABORT},
    ApiKey.END_TXN: _OF_TRANSACTION,
    ApiKey.TXN_OFFSET_COMMIT: _COORDINATOR
    | {
        ErrorCode.request_timed_out: TransactionAction.MOVED,
        ErrorCode.group_authorization_failed: TransactionAction.ABORT,
        ErrorCode.fenced_instance_id: TransactionAction.ABORT,
        ErrorCode.unknown_member_id: TransactionAction.NOT_A_MEMBER,
        ErrorCode.illegal_generation: TransactionAction.NOT_A_MEMBER,
    },
}
"""Action by API and code. A code that is missing here means AGAIN if it is retriable, else FATAL,
or ABORT for AddPartitionsToTxn, where the partition is at fault.
"""

# Errors of a partition's leader that an abort cannot repair.
_FATAL_OF_BATCH = frozenset(
    {
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.producer_fenced,
        ErrorCode.unsupported_version,
        ErrorCode.invalid_producer_id_mapping,
    }
)


def action_after(api: int, code: ErrorCode) -> TransactionAction:
    action = MEANINGS[api].get(code)
    if action is not None:
        return action
    if code.retriable:
        return TransactionAction.AGAIN
    return (
        TransactionAction.ABORT if api == ApiKey.ADD_PARTITIONS_TO_TXN else TransactionAction.FATAL
    )


def most_severe(api: int, codes: Iterable[ErrorCode]) -> ErrorCode:
    """Return the most severe of a response's codes."""

    def severity(code: ErrorCode) -> tuple[TransactionAction, bool]:
        # Not attempted because of another partition, whose code has the cause.
        return action_after(api, code), code is not ErrorCode.operation_not_attempted

    return max(codes, key=severity, default=ErrorCode.none)


class TransactionHandover(NamedTuple):
    """An open transaction, all of whose records are delivered, and its transaction.version.

    `started`: whether the coordinator has a transaction to end.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    version: int
    started: bool


@dataclass(slots=True)
class Transactions:
    """One producer's transactions. `version` is the cluster's transaction.version as of the last
    response; `started`: the coordinator has, or may have, a transaction to end.
    """

    transactional_id: str
    state: TransactionManagerState = TransactionManagerState.UNINITIALIZED
    error: Exception | None = None
    """The cause of an error state."""
    version: int = 0
    features_epoch: int = -1
    can_bump: bool = False
    bump_needed: bool = False
    started: bool = False

    @property
    def implicit(self) -> bool:
        return self.version >= IMPLICIT

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction to commit or abort."""
        return self.state in (
            TransactionManagerState.IN_TRANSACTION,
            TransactionManagerState.ABORTABLE_ERROR,
        )

    @property
    def is_sending(self) -> bool:
        """Whether waiting batches may still be sent."""
        return self.state in (
            TransactionManagerState.IN_TRANSACTION,
            TransactionManagerState.COMMITTING_TRANSACTION,
        )

    def check(self) -> None:
        """Raises TransactionFailed in an error state."""
        if self.error is not None:
            raise self.failure()

    def failure(self) -> TransactionFailed:
        assert self.error is not None
        if self.state is TransactionManagerState.ABORTABLE_ERROR:
            return TransactionFailed(self.error, abortable=True)
        if isinstance(self.error, KafkaError) and self.error.code is ErrorCode.producer_fenced:
            return ProducerFenced(self.error, abortable=False)
        return TransactionFailed(self.error, abortable=False)

    # Steps

    def enter(self, target: TransactionManagerState, call: str) -> None:
        """Change the state for a call. Raises IllegalTransactionState if it is not allowed now,
        TransactionFailed in an error state.
        """
        if not (
            target is TransactionManagerState.ABORTING_TRANSACTION
            and self.state is TransactionManagerState.ABORTABLE_ERROR
        ):
            self.check()
        if self.state not in VALID_PREVIOUS_STATES[target]:
            raise IllegalTransactionState(
                f"TransactionalId {self.transactional_id}: {call} cannot be called in state"
                f" {self.state.name}"
            )
        self.state = target
        self.error = None

    def expect_open(self, call: str) -> None:
        """Raises IllegalTransactionState outside of a transaction, TransactionFailed after an
        error.
        """
        self.check()
        if self.state is not TransactionManagerState.IN_TRANSACTION:
            raise IllegalTransactionState(
                f"TransactionalId {self.transactional_id}: {call} needs a transaction that was"
                f" begun (state {self.state.name})"
            )

    def take_over(self, handover: TransactionHandover) -> None:
        """Enter a transaction that was begun elsewhere, instead of initializing."""
        assert self.state is TransactionManagerState.UNINITIALIZED, self.state
        assert self.transactional_id == handover.transactional_id
        self.state = TransactionManagerState.IN_TRANSACTION
        self.version, self.started = handover.version, handover.started

    def complete(self) -> None:
        """Note that the producer is initialized, or the transaction committed or aborted."""
        assert self.state in VALID_PREVIOUS_STATES[TransactionManagerState.READY], self.state
        self.state = TransactionManagerState.READY
        self.started = False
        self.bump_needed = False

    # Errors

    def handle_error(
        self, error: Exception, means: TransactionAction, *, of_open: bool = False
    ) -> None:
        """Handle a permanent error of one of the transaction's own requests; with `of_open`, of
        one that only an open transaction needs.
        """
        match means:
            case TransactionAction.FENCED:
                self.fail(KafkaError(ErrorCode.producer_fenced, _FENCED))
            case TransactionAction.NOT_A_MEMBER:
                text = f"the offsets are not this member's to commit: {error}"
                self.abortable(CommitFailed(text), of_open=of_open)
            case TransactionAction.BUMP if self.can_bump and not self.implicit:
                self.bump_needed = True
                self.abortable(error, of_open=of_open)
            case TransactionAction.ABORT:
                self.abortable(error, of_open=of_open)
            case _:
                self.fail(error)

    def handle_failed_batch(self, error: Exception) -> None:
        """Handle a record of the transaction that will not be delivered."""
        code = error.code if isinstance(error, KafkaError) else None
        if code in _FATAL_OF_BATCH:
            self.fail(error)
            return
        if self.is_sending:
            self.abortable(error)

    def abortable(self, error: Exception, *, of_open: bool = False) -> None:
        """Enter a state that allows only an abort. If an abort is under way, it has failed for
        good, unless the error is of a request that it makes obsolete (`of_open`).
        """
        if self.state is TransactionManagerState.INITIALIZING:
            self.state = TransactionManagerState.UNINITIALIZED
        elif self.is_sending:
            self.state = TransactionManagerState.ABORTABLE_ERROR
            self.error = error
        elif not of_open and self.state is TransactionManagerState.ABORTING_TRANSACTION:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Enter the state that allows no further call."""
        if self.state is not TransactionManagerState.FATAL_ERROR:
            self.state = TransactionManagerState.FATAL_ERROR
            self.error = error

    # The cluster's features

    def learn(self, version: int, features_epoch: int) -> None:
        """Update transaction.version from a broker; features of an older epoch are ignored.

        To be called between transactions: with the newer protocol each begins in a new epoch.
        """
        if features_epoch < self.features_epoch:
            return
        was_implicit, self.version = self.implicit, version
        self.features_epoch = features_epoch
        if (
            self.implicit
            and not was_implicit
            and self.state is not TransactionManagerState.INITIALIZING
        ):
            self.bump_needed = True


_FENCED = "There is a newer producer with the same transactionalId which fences the current one."
