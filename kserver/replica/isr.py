"""What a leader knows of its followers: how far each has come, who is in sync, what is committed.

    state       input                                  next        effect
    committed   fetched: a follower has caught up      pending     the ISR with it is proposed
    committed   fetched: a follower began again, and   pending     the ISR without it is proposed
                lacks what is committed
    committed   tick: followers lag                    pending     the ISR without them is proposed
    pending     accepted                               committed
    pending     refused: surely nothing was written    committed
    pending     any other error                        pending     proposed again by the sender
    any         told: the controller wrote since       committed

A follower joins once it has all that is committed, and all that this leader found when it began;
it leaves when it was caught up longer than `replica.lag.time.max.ms` ago, or is more records behind
than `replica.lag.max.messages`, where that is set.  One proposal is out at a time.  Until its
outcome is known either may be true, so whoever is in the old ISR or in the new one counts: nothing
is called committed that one of the two could lose.  A follower that is about to join is waited for,
else a stream of appends would keep it out for ever.

A broker that restarts is another follower than it was: what it fetched in an earlier life, which
its broker epoch tells apart, counts no more (KIP-903).  A proposal has the epochs in which its
members were seen, so that the controller refuses one that is out of date.

Pure: no I/O, no clock, no await; offsets and times come in.  (Kafka: cluster/Partition, Replica;
KIP-497, KIP-841, KIP-903.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kserver.model import BrokerId, Offset

UNKNOWN_OFFSET: Offset = -1
UNKNOWN_EPOCH = -1
"""The broker epoch of a follower that has not fetched, or does not tell."""
LONG_AGO_MS = -(1 << 62)
"""When a follower was caught up that has not been since."""


class IsrProposal(NamedTuple):
    """For the controller to write, unless another one was written since `partition_epoch`."""

    isr: frozenset[BrokerId]
    partition_epoch: int
    broker_epochs: Mapping[BrokerId, int]
    """In which each follower of the ISR was seen; those that were not are not in it."""


class SessionClock:
    """When a follower last fetched in one of its sessions (KIP-227): a fetch in a session is one of
    all its partitions, and need not name those that have not moved."""

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms = LONG_AGO_MS


class FollowerState:
    """One follower, as its fetches tell; times in milliseconds."""

    __slots__ = (
        "_caught_up_ms",
        "_is_at_end",
        "_session",
        "broker_epoch",
        "end",
        "fetched_ms",
        "leader_end_at_fetch",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: int, broker_epoch: int = UNKNOWN_EPOCH) -> None:
        self.broker_epoch = broker_epoch
        self.end: Offset = UNKNOWN_OFFSET
        """Where its log ends: the offset that it fetched last."""
        self.log_start_offset: Offset = UNKNOWN_OFFSET
        """Where it begins."""
        self._caught_up_ms = caught_up_ms
        self.fetched_ms = LONG_AGO_MS
        self.leader_end_at_fetch: Offset = UNKNOWN_OFFSET
        self._session: SessionClock | None = None
        self._is_at_end = False

    @property
    def caught_up_ms(self) -> int:
        # Of a partition that has not moved only the session tells; what is appended to it is seen
        # by the session's next fetch.
        if self._is_at_end and self._session is not None:
            return max(self._caught_up_ms, self._session.ms)
        return self._caught_up_ms

    def left_session(self) -> None:
        """The session's fetches are not of this partition any more."""
        if self._is_at_end and self._session is not None:
            self.fetched_ms = max(self.fetched_ms, self._session.ms)
        self._caught_up_ms = self.caught_up_ms
        self._session, self._is_at_end = None, False

    def fetched(
        self, offset: Offset, leader_end: Offset, now_ms: int, session: SessionClock | None = None
    ) -> None:
        self.left_session()
        self._session, self._is_at_end = session, offset >= leader_end
        # A follower that reaches where the leader stood at its fetch before was caught up then: in
        # a steady stream of appends it never reaches the present end.
        if offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self._caught_up_ms = max(self._caught_up_ms, self.fetched_ms)
        self.end, self.fetched_ms, self.leader_end_at_fetch = offset, now_ms, leader_end


class Leader:
    """The followers of a partition in one leader epoch, which began at offset `epoch_start`."""

    __slots__ = (
        "broker_id",
        "epoch_start",
        "followers",
        "is_live",
        "isr",
        "lag_max_messages",
        "lag_max_ms",
        "partition_epoch",
        "proposed",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        replicas: Collection[BrokerId],
        isr: Collection[BrokerId],
        partition_epoch: int,
        *,
        epoch_start: Offset,
        lag_max_ms: int,
        now_ms: int,
        is_live: Callable[[BrokerId], bool],
        lag_max_messages: int | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.isr = frozenset(isr).intersection((broker_id, *replicas))
        """As the controller last accepted or decided it, without whoever is a replica no more: at
        the end of a reassignment Apache's controller names those still."""
        self.proposed: IsrProposal | None = None
        self.partition_epoch = partition_epoch
        self.epoch_start = epoch_start
        self.lag_max_ms = lag_max_ms
        self.lag_max_messages = lag_max_messages
        """None: any number."""
        self.is_live = is_live
        """Whether a broker is registered: nobody else may join."""
        # A follower in sync has its time from now on; one that is not has to show itself.
        self.followers = {
            replica: FollowerState(now_ms if replica in self.isr else LONG_AGO_MS)
            for replica in replicas
            if replica != broker_id
        }
        self.check()

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """Whoever may be in sync, as far as is known."""
        return self.isr if self.proposed is None else self.isr | self.proposed.isr

    def committable(self, end: Offset, now_ms: int) -> Offset:
        """What every replica has that may be in sync, where the leader's own log has `end`; the
        high watermark follows unless it is higher already."""
        maximal = self.maximal_isr
        for broker, follower in self.followers.items():
            if follower.end < end and (
                broker in maximal
                or (not self._lags(follower, end, now_ms) and self.is_live(broker))
            ):
                end = follower.end
        return end

    def fetched(
        self,
        broker: BrokerId,
        offset: Offset,
        end: Offset,
        high_watermark: Offset,
        now_ms: int,
        broker_epoch: int = UNKNOWN_EPOCH,
        session: SessionClock | None = None,
    ) -> IsrProposal | None:
        """The follower has everything below `offset`; what to propose, if it may join now, or must
        leave."""
        follower = self.followers[broker]
        if broker_epoch != follower.broker_epoch:
            if UNKNOWN_EPOCH < broker_epoch < follower.broker_epoch:
                return None  # of an earlier life
            caught_up_ms = LONG_AGO_MS if offset < high_watermark else follower.caught_up_ms
            follower = self.followers[broker] = FollowerState(caught_up_ms, broker_epoch)
        follower.fetched(offset, end, now_ms, session)
        if broker in self.isr:
            # In its present life it never was caught up, yet whoever is in sync has all of this.
            if offset < high_watermark and follower.caught_up_ms == LONG_AGO_MS:
                return self._propose(self.isr - {broker})
            return None
        if offset < max(high_watermark, self.epoch_start) or not self.is_live(broker):
            return None
        return self._propose(self.isr | {broker})

    def tick(self, end: Offset, now_ms: int) -> IsrProposal | None:
        """What to propose, if followers lag; due every half `replica.lag.time.max.ms`."""
        lagging = {
            broker
            for broker, follower in self.followers.items()
            if broker in self.isr and follower.end != end and self._lags(follower, end, now_ms)
        }
        return self._propose(self.isr - lagging) if lagging else None

    def _lags(self, follower: FollowerState, end: Offset, now_ms: int) -> bool:
        if now_ms - follower.caught_up_ms > self.lag_max_ms:
            return True
        most = self.lag_max_messages
        return most is not None and follower.end != UNKNOWN_OFFSET and end - follower.end > most

    def accepted(
        self, proposal: IsrProposal, isr: Collection[BrokerId], partition_epoch: int
    ) -> None:
        """The controller's answer.  To the proposal that is out it may be in the present epoch, for
        nothing had to be written; to one before it, it is what `told` makes of it."""
        if partition_epoch > self.partition_epoch or (
            self.proposed is proposal and partition_epoch == self.partition_epoch
        ):
            self._decided(isr, partition_epoch)

    def refused(self, proposal: IsrProposal) -> None:
        """The controller says that it wrote nothing and that the partition epoch is right
        (INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED).  After any other error the proposal stays
        out: it may have been written."""
        if self.proposed is proposal:
            self.proposed = None

    def told(self, isr: Collection[BrokerId], partition_epoch: int) -> None:
        """What the controller has written.  What is known already is no news: a proposal may have
        been written after it."""
        if partition_epoch > self.partition_epoch:
            self._decided(isr, partition_epoch)

    def _decided(self, isr: Collection[BrokerId], partition_epoch: int) -> None:
        self.isr = frozenset(isr).intersection((self.broker_id, *self.followers))
        self.proposed, self.partition_epoch = None, partition_epoch
        self.check()

    def _propose(self, isr: frozenset[BrokerId]) -> IsrProposal | None:
        if self.proposed is not None:
            return None
        epochs = {
            broker: follower.broker_epoch
            for broker, follower in self.followers.items()
            if broker in isr and follower.broker_epoch != UNKNOWN_EPOCH
        }
        self.proposed = IsrProposal(isr, self.partition_epoch, epochs)
        self.check()
        return self.proposed

    def check(self) -> None:
        """The invariants."""
        assert self.broker_id not in self.followers
        assert self.broker_id in self.isr
        assert self.isr <= {self.broker_id, *self.followers}
        if self.proposed is not None:
            assert self.broker_id in self.proposed.isr
            assert self.proposed.isr != self.isr
            assert self.proposed.isr <= {self.broker_id, *self.followers}
            assert self.proposed.partition_epoch == self.partition_epoch
