"""Transaction: what is kept of one transactional id, and how it may change.

Pure: values only; each change is a new value.

    state               reached by
    Empty               InitProducerId: the producer has an id and an epoch, and no transaction
    Ongoing             a partition, or a group's offsets, were added
    PrepareCommit       EndTxn: it is decided; markers are being written to the partitions
    PrepareAbort        EndTxn, the timeout, or another InitProducerId
    CompleteCommit      all markers are written
    CompleteAbort       the same
    PrepareEpochFence   passed through: the coordinator itself aborts, with an epoch of its own
    Dead                passed through: not used for so long that it is forgotten

Two ways of ending (KIP-890), by the transaction version of the producer:

    0, 1   the epoch stays, and the markers carry it
    2      the epoch is raised by EndTxn, and the markers carry the new one: what the producer sent
           before cannot enter the next transaction.  When the epochs of a producer id are used up,
           the transaction ends under the old id, and the producer goes on with a new one.

When the coordinator aborts, the epoch is raised in either, so that the producer is fenced.

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
"""The last one that a producer is given: there is one more for the coordinator to fence it with."""

EPOCH_BUMPS = 2
"""The transaction version from which on each end of a transaction raises the epoch."""


class TransactionState(Enum):
    """By the number that a record has for it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    def __str__(self) -> str:
        """Kafka's name for it: PrepareCommit."""
        return self.name.title().replace("_", "")


RESTING = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
"""No transaction is open."""
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

VALID_PREVIOUS_STATES = {
    TransactionState.EMPTY: RESTING,
    TransactionState.ONGOING: RESTING | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # From a resting state: a producer of version 2 does not know whether its partitions came to be
    # added, and aborts to be sure.
    TransactionState.PREPARE_ABORT: RESTING
    | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: RESTING,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
"""The states that each may follow."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch."""

    producer_id: ProducerId
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    id: str
    """The transactional id."""
    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    """How long a transaction may be ongoing."""
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    """When the first partition was added; of the last transaction while there is none."""
    previous_id: ProducerId = NO_PRODUCER_ID
    """The producer id that was used up, until the next change: its owner may not have heard of the
    new one, and asks again under the old."""
    next_id: ProducerId = NO_PRODUCER_ID
    """The producer id from the end of this transaction on; none where it stays."""
    version: int = 0
    """The transaction version of whoever made the last change."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """The epoch before, when its owner asked for the next: it may ask again.  Not kept, as in
    Kafka: one that asks again of another coordinator is fenced."""

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_used_up(self) -> bool:
        """No epoch of this producer id can be given any more."""
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
        """For a producer that begins, or, with `expected`, goes on after an error (KIP-360).

        `new_id` is taken where `wants_new_id`.  PRODUCER_FENCED.
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
                # Somebody else than who had the old ones: who had them is fenced.
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

    def wants_new_id(self, expected: ProducerIdAndEpoch | None) -> bool:
        """Whether `initialized` needs a new producer id.  PRODUCER_FENCED."""
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
        """Its owner was given the present identity, and did not hear of it."""
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
        """By its producer; `new_id` is taken when this one is used up, and only from version 2."""
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
        """Aborted by the coordinator, whose version this is."""
        # From version 2 on its producer may go on once it hears of this, as after its own abort.
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
        """All markers are written."""
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
        kept: dict[str, object] = {"previous_id": NO_PRODUCER_ID}
        return replace(self, state=state, **(kept | changes))  # type: ignore[arg-type]

    def check(self) -> None:
        """The invariants of what is kept."""
        assert self.state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
        assert self.producer_id >= 0
        assert 0 <= self.epoch <= LAST_EPOCH + 1
        assert self.last_epoch < self.epoch or self.epoch == 0
        if self.epoch > LAST_EPOCH:
            # Given to no producer.
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


def fenced(transaction: Transaction, named: ProducerIdAndEpoch) -> KafkaError:
    return KafkaError(
        ErrorCode.producer_fenced,
        f"Producer {named.producer_id} with epoch {named.epoch} of transactional id"
        f" {transaction.id} was replaced by producer {transaction.producer_id} with epoch"
        f" {transaction.epoch}",
    )
