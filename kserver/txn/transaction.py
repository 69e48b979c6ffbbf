"""Transaction: the state of one transactional id, and its transitions.

Pure: values only; each change returns a new value.

    state               entered when
    Empty               InitProducerId: the producer has an id and an epoch, and no transaction
    Ongoing             a partition, or a group's offsets, were added
    PrepareCommit       EndTxn: decided; markers are being written to the partitions
    PrepareAbort        EndTxn, a timeout, or another InitProducerId
    CompleteCommit      all markers are written
    CompleteAbort       the same
    PrepareEpochFence   transient: the coordinator itself aborts, with an epoch of its own
    Dead                transient: expired, so it is removed

There are two ways to end a transaction (KIP-890), by the producer's transaction version:

    0, 1   the epoch is unchanged, and the markers have it
    2      EndTxn raises the epoch, and the markers have the new one, so that late requests of the
           producer cannot enter the next transaction.  After the last epoch of a producer id, the
           transaction ends under the old id, and the producer continues with a new one.

If the coordinator aborts, the epoch is raised in either case, so that the producer is fenced.

Kafka: TransactionMetadata, TransactionState.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TopicPartition

NO_EPOCH = -1
LAST_EPOCH = 0x7FFE
"""Last epoch that a producer gets; the coordinator needs one more to fence it."""

EPOCH_BUMPS = 2
"""Transaction version from which on each end of a transaction raises the epoch."""


class TransactionState(Enum):
    """States, with their numbers in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    def __str__(self) -> str:
        """Return Kafka's name, such as PrepareCommit."""
        return self.name.title().replace("_", "")


RESTING = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
"""States without an open transaction."""
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

VALID_PREVIOUS_STATES = {
    TransactionState.EMPTY: RESTING,
    TransactionState.ONGOING: RESTING | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # A producer of version 2 may abort without an open transaction, as it does not know whether
    # its partitions were added.
    TransactionState.PREPARE_ABORT: RESTING
    | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: RESTING,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
"""Valid previous states of each state."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch."""

    producer_id: ProducerId
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    id: str
    """Transactional id."""
    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    """Maximum duration of a transaction, in ms."""
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    """When the first partition was added, in ms since 1970; of the last transaction if none is
    open."""
    previous_id: ProducerId = NO_PRODUCER_ID
    """Producer id that ran out of epochs, until the next change.  Its owner may have missed the
    new one, and may retry with the old one."""
    next_id: ProducerId = NO_PRODUCER_ID
    """Producer id after the end of this transaction; NO_PRODUCER_ID if unchanged."""
    version: int = 0
    """Transaction version of the producer or coordinator that made the last change."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """Previous epoch, if its owner requested the present one: it may retry.  Not persisted, as in
    Kafka: after a change of the coordinator, a retry is fenced."""

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_used_up(self) -> bool:
        """Whether this producer id has no epochs left."""
        return self.epoch >= LAST_EPOCH

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def has_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.started_ms + self.timeout_ms < now_ms

    # Changes

    def initialized(
        self, timeout_ms: int, expected: ProducerIdAndEpoch | None, new_id: ProducerId, now_ms: int
    ) -> Transaction:
        """Return the state after InitProducerId; with `expected`, the producer continues after an
        error (KIP-360).

        `new_id` is used if `needs_new_id` returns True.  Raises PRODUCER_FENCED.
        """
        self._check_expected(expected)
        if expected is not None and self._is_repeated(expected):
            identity, previous_id, last_epoch = self.identity, self.previous_id, self.last_epoch
        else:
            identity, previous_id = (
                ProducerIdAndEpoch(self.producer_id, self.epoch + 1),
                NO_PRODUCER_ID,
            )
            if self.is_used_up:
                assert new_id != NO_PRODUCER_ID
                identity, previous_id = ProducerIdAndEpoch(new_id, 0), self.producer_id
            last_epoch = self.epoch
            if expected is None:
                # A new instance of the producer: the previous one is fenced.
                last_epoch, previous_id = NO_EPOCH, NO_PRODUCER_ID
        return self._to(
            TransactionState.EMPTY,
            producer_id=identity.producer_id,
            epoch=identity.epoch,
            last_epoch=last_epoch,
            previous_id=previous_id,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
        )

    def needs_new_id(self, expected: ProducerIdAndEpoch | None) -> bool:
        """Return whether `initialized` needs a new producer id.  Raises PRODUCER_FENCED."""
        self._check_expected(expected)
        return self.is_used_up and (expected is None or not self._is_repeated(expected))

    def _check_expected(self, expected: ProducerIdAndEpoch | None) -> None:
        if expected is None:
            return
        if expected.producer_id == self.producer_id:
            is_owner = expected.epoch in (self.epoch, self.last_epoch)
        else:
            is_owner = self._is_repeated(expected)
        if not is_owner:
            raise fenced(self, expected)

    def _is_repeated(self, expected: ProducerIdAndEpoch) -> bool:
        """Return whether the owner already got the present identity, but missed the response."""
        if expected.producer_id == self.producer_id:
            return expected.epoch == self.last_epoch and not self.epoch > LAST_EPOCH
        return expected.producer_id == self.previous_id and expected.epoch >= LAST_EPOCH

    def with_partitions(
        self, added: Iterable[TopicPartition], version: int, now_ms: int
    ) -> Transaction:
        begins = self.state is not TransactionState.ONGOING
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions | frozenset(added),
            started_ms=now_ms if begins else self.started_ms,
            updated_ms=now_ms,
            version=version,
        )

    def ended(self, *, commit: bool, version: int, new_id: ProducerId, now_ms: int) -> Transaction:
        """Return the state after EndTxn.  `new_id` is used if the epochs are used up, only from
        version 2."""
        bumps = version >= EPOCH_BUMPS
        return self._to(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            epoch=self.epoch + 1 if bumps else self.epoch,
            last_epoch=self.epoch if bumps else self.last_epoch,
            next_id=new_id if bumps and self.is_used_up else NO_PRODUCER_ID,
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            version=version,
        )

    def fenced(self, version: int, now_ms: int) -> Transaction:
        """Return the state after an abort by the coordinator, whose transaction version is
        `version`."""
        # From version 2 on, the producer may continue after this abort, as after its own.
        last_epoch = self.epoch if version >= EPOCH_BUMPS else NO_EPOCH
        return self._to(
            TransactionState.PREPARE_EPOCH_FENCE, epoch=self.epoch + 1, last_epoch=last_epoch
        )._to(
            TransactionState.PREPARE_ABORT,
            last_epoch=last_epoch,
            updated_ms=now_ms,
            version=version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return the state after all markers are written."""
        takes_next = self.next_id != NO_PRODUCER_ID
        return self._to(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            producer_id=self.next_id if takes_next else self.producer_id,
            epoch=0 if takes_next else self.epoch,
            previous_id=self.producer_id if takes_next else NO_PRODUCER_ID,
            next_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    def dead(self) -> Transaction:
        return self._to(TransactionState.DEAD)

    def _to(self, state: TransactionState, **changes: object) -> Transaction:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.id}: {self.state} > {state}"
        fields: dict[str, object] = {"previous_id": NO_PRODUCER_ID}
        return replace(self, state=state, **(fields | changes))  # type: ignore[arg-type]

    def check(self) -> None:
        """Assert the invariants of the persisted state."""
        assert self.state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
        assert self.producer_id >= 0
        assert 0 <= self.epoch <= LAST_EPOCH + 1
        assert self.last_epoch < self.epoch or self.epoch == 0
        if self.epoch > LAST_EPOCH:
            # The coordinator's own epoch, which no producer has.
            assert self.state in PREPARED or self.state is TransactionState.COMPLETE_ABORT
        if self.state in RESTING:
            assert not self.partitions
        elif self.state is TransactionState.ONGOING:
            assert self.partitions
        if self.state is TransactionState.EMPTY:
            assert self.started_ms == NO_TIMESTAMP
        else:
            assert self.started_ms >= 0
        if self.next_id != NO_PRODUCER_ID:
            assert self.state in PREPARED
            assert self.version >= EPOCH_BUMPS
            assert self.epoch == LAST_EPOCH + 1
        if self.previous_id != NO_PRODUCER_ID:
            assert self.state in RESTING
            assert self.epoch == 0
            assert self.previous_id != self.producer_id


def fenced(transaction: Transaction, producer: ProducerIdAndEpoch) -> KafkaError:
    return KafkaError(
        ErrorCode.producer_fenced,
        f"Producer {producer.producer_id} with epoch {producer.epoch} of transactional id"
        f" {transaction.id} was replaced by producer {transaction.producer_id} with epoch"
        f" {transaction.epoch}",
    )
