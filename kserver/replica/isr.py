"""A leader's state of its followers: their progress, the in-sync replicas, the committed offset.

    state       input                                  next        effect
    committed   fetched: a follower has caught up      pending     the ISR with it is proposed
    committed   fetched: a follower restarted, and     pending     the ISR without it is proposed
                lacks committed records
    committed   tick: followers lag, or have caught    pending     the ISR without or with them is
                up before it was committed                         proposed
    pending     accepted                               committed   as by a tick
    pending     refused: certainly not written         committed
    pending     any other error                        pending     the sender retries
    any         a newer ISR from the controller        committed

A follower joins once it has all committed records, and all records that this leader had when its
epoch began.  It leaves if it was last caught up longer than `replica.lag.time.max.ms` ago, or is
more records behind than `replica.lag.max.messages`, if that is set.  One proposal is in flight at a
time.  Until its outcome is known either ISR may be in force, so members of both count: no record is
committed that either of them could lose.  A follower that is about to join is waited for, else a
stream of appends would keep it out for ever.  One that catches up while a proposal is in flight
joins afterwards: where nothing is appended, no later fetch would name the partition.  One that the
controller removed has to fetch again first.

A broker that restarts is a different follower: the offsets that it fetched before, under another
broker epoch, no longer count (KIP-903).  A proposal has the broker epochs in which its members were
seen, so that the controller refuses an outdated one.

Pure: no I/O, no clock, no await; offsets and times are passed in.  (Kafka: cluster/Partition,
Replica; KIP-497, KIP-841, KIP-903.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kserver.model import BrokerId, Offset

UNKNOWN_OFFSET: Offset = -1
UNKNOWN_EPOCH = -1
"""Broker epoch of a follower that has not fetched, or does not send one."""
LONG_AGO_MS = -(1 << 62)
"""Caught-up time of a follower that has not been caught up yet."""


class IsrProposal(NamedTuple):
    """An ISR for the controller to write, unless it wrote another one since `partition_epoch`."""

    isr: frozenset[BrokerId]
    partition_epoch: int
    broker_epochs: Mapping[BrokerId, int]
    """Broker epoch in which each follower of the ISR was seen; without those that were not seen."""


class SessionClock:
    """Time of a follower's last fetch in one of its sessions (KIP-227).

    A fetch in a session covers all its partitions, and need not name those that have not moved.
    """

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms = LONG_AGO_MS


class FollowerState:
    """State of one follower, from its fetches; times in milliseconds."""

    __slots__ = (
        "_caught_up_ms",
        "_is_at_end",
        "_session",
        "broker_epoch",
        "end",
        "fetched_ms",
        "is_candidate",
        "leader_end_at_fetch",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: int, broker_epoch: int = UNKNOWN_EPOCH) -> None:
        self.broker_epoch = broker_epoch
        self.end: Offset = UNKNOWN_OFFSET
        """Log end offset of the follower: the offset of its last fetch."""
        self.log_start_offset: Offset = UNKNOWN_OFFSET
        """Log start offset of the follower."""
        self.is_candidate = False
        """Whether it was not in sync at its last fetch, and could join."""
        self._caught_up_ms = caught_up_ms
        self.fetched_ms = LONG_AGO_MS
        self.leader_end_at_fetch: Offset = UNKNOWN_OFFSET
        self._session: SessionClock | None = None
        self._is_at_end = False

    @property
    def caught_up_ms(self) -> int:
        # A fetch in the session does not name a partition that has not moved, so its clock counts.
        # The session's next fetch sees later appends.
        if self._is_at_end and self._session is not None:
            return max(self._caught_up_ms, self._session.ms)
        return self._caught_up_ms

    def left_session(self) -> None:
        """Stop using the session's clock: its fetches no longer cover this partition."""
        if self._is_at_end and self._session is not None:
            self.fetched_ms = max(self.fetched_ms, self._session.ms)
        self._caught_up_ms = self.caught_up_ms
        self._session, self._is_at_end, self.is_candidate = None, False, False

    def fetched(
        self, offset: Offset, leader_end: Offset, now_ms: int, session: SessionClock | None = None
    ) -> None:
        self.left_session()
        self._session, self._is_at_end = session, offset >= leader_end
        # A follower that reaches the leader's end of its previous fetch was caught up at that time:
        # in a steady stream of appends it never reaches the current end.
        if offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self._caught_up_ms = max(self._caught_up_ms, self.fetched_ms)
        self.end, self.fetched_ms, self.leader_end_at_fetch = offset, now_ms, leader_end


class Leader:
    """Followers of a partition in one leader epoch, which began at offset `epoch_start`."""

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
        """ISR that the controller last accepted or decided, without brokers that are no longer
        replicas: at the end of a reassignment, Apache's controller still includes those."""
        self.proposed: IsrProposal | None = None
        self.partition_epoch = partition_epoch
        self.epoch_start = epoch_start
        self.lag_max_ms = lag_max_ms
        self.lag_max_messages = lag_max_messages
        """None means no limit."""
        self.is_live = is_live
        """Whether a broker is registered; only such brokers may join."""
        # A follower in the ISR counts as caught up from now on; any other must catch up first.
        self.followers = {
            replica: FollowerState(now_ms if replica in self.isr else LONG_AGO_MS)
            for replica in replicas
            if replica != broker_id
        }
        self.check()

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """The ISR and the proposed ISR together: every replica that may be in sync."""
        return self.isr if self.proposed is None else self.isr | self.proposed.isr

    def in_sync_end(self, end: Offset, now_ms: int) -> Offset:
        """Return the offset below which every replica that may be in sync has all records.

        `end` is the end of the leader's own log, or of its flushed part.  The high watermark is
        raised to the result, unless it is already higher.
        """
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
        """Record that the follower has everything below `offset`.

        Returns an ISR to propose, if the follower may join now, or must leave.
        """
        follower = self.followers[broker]
        if broker_epoch != follower.broker_epoch:
            if UNKNOWN_EPOCH < broker_epoch < follower.broker_epoch:
                return None  # of an earlier start of that broker
            caught_up_ms = LONG_AGO_MS if offset < high_watermark else follower.caught_up_ms
            follower = self.followers[broker] = FollowerState(caught_up_ms, broker_epoch)
        follower.fetched(offset, end, now_ms, session)
        if broker in self.isr:
            # It was never caught up since its restart, but each in-sync replica must have all of
            # this.
            if offset < high_watermark and follower.caught_up_ms == LONG_AGO_MS:
                return self._propose(self.isr - {broker})
            return None
        follower.is_candidate = offset >= max(high_watermark, self.epoch_start)
        if not follower.is_candidate or not self.is_live(broker):
            return None
        return self._propose(self.isr | {broker})

    def tick(self, end: Offset, high_watermark: Offset, now_ms: int) -> IsrProposal | None:
        """Return an ISR without the followers that lag and with those that have caught up, if it
        differs; call every half `replica.lag.time.max.ms`, and when a proposal was accepted."""
        lagging = {
            broker
            for broker, follower in self.followers.items()
            if broker in self.isr and follower.end != end and self._lags(follower, end, now_ms)
        }
        joining = {
            broker
            for broker, follower in self.followers.items()
            if follower.is_candidate
            and follower.end >= max(high_watermark, self.epoch_start)
            and self.is_live(broker)
            and not self._lags(follower, end, now_ms)
        }
        return self._propose((self.isr - lagging) | joining) if lagging or joining else None

    def _lags(self, follower: FollowerState, end: Offset, now_ms: int) -> bool:
        if now_ms - follower.caught_up_ms > self.lag_max_ms:
            return True
        most = self.lag_max_messages
        return most is not None and follower.end != UNKNOWN_OFFSET and end - follower.end > most

    def accepted(
        self, proposal: IsrProposal, isr: Collection[BrokerId], partition_epoch: int
    ) -> None:
        """Process the controller's response to `proposal`.

        For the proposal in flight it may have the current partition epoch, if nothing had to be
        written.  For an earlier proposal it counts only if it is newer.
        """
        if partition_epoch > self.partition_epoch or (
            self.proposed is proposal and partition_epoch == self.partition_epoch
        ):
            self._decided(isr, partition_epoch)

    def refused(self, proposal: IsrProposal) -> None:
        """Drop the proposal: the controller wrote nothing, and the partition epoch is right
        (INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED).  After any other error the proposal stays in
        flight, since it may have been written."""
        if self.proposed is proposal:
            self.proposed = None

    def update(self, isr: Collection[BrokerId], partition_epoch: int) -> None:
        """Apply an ISR that the controller has written, if it is newer than the known one.

        An older one is ignored: a proposal may have been written after it.
        """
        if partition_epoch > self.partition_epoch:
            self._decided(isr, partition_epoch)

    def _decided(self, isr: Collection[BrokerId], partition_epoch: int) -> None:
        self.isr = frozenset(isr).intersection((self.broker_id, *self.followers))
        self.proposed, self.partition_epoch = None, partition_epoch
        for broker in self.isr.intersection(self.followers):
            self.followers[broker].is_candidate = False
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
        """Check the invariants."""
        assert self.broker_id not in self.followers
        assert self.broker_id in self.isr
        assert self.isr <= {self.broker_id, *self.followers}
        assert not any(self.followers[b].is_candidate for b in self.isr if b in self.followers)
        if self.proposed is not None:
            assert self.broker_id in self.proposed.isr
            assert self.proposed.isr != self.isr
            assert self.proposed.isr <= {self.broker_id, *self.followers}
            assert self.proposed.partition_epoch == self.partition_epoch
