"""One hosted partition: its log, its role and its epochs.

A leader appends and serves; records below the high watermark are committed and visible.  The high
watermark is the offset up to which every in-sync replica has the records (`isr.Leader`), including
this broker's own log: up to its end, or, with `flush.before.ack`, up to what is on disk.  That is
the visibility rule of the first Kafka paper (Kreps, Narkhede, Rao, NetDB 2011), extended to
acknowledgements.  `ReplicaManager` flushes for all waiting requests, and calls `reconsider`.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.log.log import Appended, Log
from kserver.log.validator import Origin
from kserver.metadata import PartitionInfo
from kserver.metrics.meters import TopicMeters
from kserver.model import (
    ALL_IN_SYNC,
    NO_BROKER,
    NO_EPOCH,
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from kserver.replica.isr import UNKNOWN_OFFSET, IsrProposal, Leader, SessionClock
from kserver.replica.truncation import divergence


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """Dependencies that the partitions of one broker share."""

    broker_id: BrokerId
    now_ms: Callable[[], int]
    """Milliseconds of a monotonic clock."""
    is_live: Callable[[BrokerId], bool]
    """Whether a broker is registered."""
    lag_max_ms: int
    """Followers last caught up longer ago than this are not in sync (`replica.lag.time.max.ms`)."""
    lag_max_messages: int | None = None
    """Nor are followers more records behind than this, if set (`replica.lag.max.messages`)."""


class Partition:
    __slots__ = (
        "_context",
        "epoch",
        "is_hosted",
        "is_reassigning",
        "leader",
        "leader_id",
        "led_since",
        "log",
        "meters",
        "replica_count",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        context: PartitionContext,
        meters: TopicMeters,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.meters = meters
        """Meters of its topic."""
        self._context = context
        self.is_hosted = True
        """True until this broker drops it."""
        self.leader: Leader | None = None
        """Leader state for the current leader epoch; None on a follower."""
        self.leader_id: BrokerId = NO_BROKER
        self.led_since: LeaderEpoch = NO_EPOCH
        """Epoch since which this broker has led without following in between, so that its log has
        all that it appended since; NO_EPOCH if it does not lead."""
        self.replica_count = 0
        self.is_reassigning = False
        """Whether replicas are being added or removed."""
        self.epoch: LeaderEpoch = NO_EPOCH

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def isr_size(self) -> int:
        """Size of the ISR; 0 on a follower, which does not know it."""
        return 0 if self.leader is None else len(self.leader.isr)

    def take_role(self, info: PartitionInfo) -> None:
        """Take the role that the controller assigns; becoming leader starts a leader epoch."""
        context, log = self._context, self.log
        self.replica_count = len(info.replicas)
        begins = info.leader_epoch > self.epoch
        self.epoch = info.leader_epoch
        self.leader_id = info.leader
        if info.leader != context.broker_id:
            self.leader, self.led_since = None, NO_EPOCH
            return
        if self.leader is None:
            self.led_since = info.leader_epoch
        if self.leader is not None and not begins:
            self.leader.update(info.isr, info.partition_epoch)
        else:
            if begins:
                log.assign_epoch(info.leader_epoch, log.log_end_offset)
            self.leader = Leader(
                context.broker_id,
                info.replicas,
                info.isr,
                info.partition_epoch,
                epoch_start=log.log_end_offset,
                lag_max_ms=context.lag_max_ms,
                now_ms=context.now_ms(),
                is_live=context.is_live,
                lag_max_messages=context.lag_max_messages,
            )
        self._commit(self.leader)

    def fetched_by(
        self,
        replica: BrokerId,
        broker_epoch: int,
        epoch: LeaderEpoch,
        offset: Offset,
        last_epoch: LeaderEpoch,
        log_start_offset: Offset,
        session: SessionClock | None = None,
    ) -> IsrProposal | None:
        """Record that a follower's log ends at `offset`, and raise the high watermark accordingly.

        `last_epoch` is the leader epoch of the follower's last record, `epoch` the current one
        that it knows.  Returns an ISR to propose, if the follower is in sync now, or no longer is.
        A position that diverges from this log is ignored; the read that follows reports it.
        """
        self.check_leader(epoch)
        leader, log = self.leader, self.log
        assert leader is not None
        if replica not in leader.followers:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if offset > log.log_end_offset:
            return None
        if last_epoch >= 0 and offset >= log.log_start_offset:
            epoch_end = log.end_offset_for_epoch(last_epoch)
            if divergence(epoch_end, last_epoch, offset) is not None:
                return None
        proposal = leader.fetched(
            replica,
            offset,
            log.log_end_offset,
            log.high_watermark,
            self._context.now_ms(),
            broker_epoch,
            session,
        )
        leader.followers[replica].log_start_offset = log_start_offset
        self._commit(leader)
        return proposal

    def isr_change(self) -> IsrProposal | None:
        """Return an ISR to propose if this broker leads, and followers lag or have caught up."""
        leader, log = self.leader, self.log
        if leader is None or not leader.followers or log.failure is not None:
            return None
        return leader.tick(log.log_end_offset, log.high_watermark, self._context.now_ms())

    def resign(self) -> None:
        """Neither lead nor follow, until the controller assigns a role again."""
        self.leader, self.leader_id, self.led_since = None, NO_BROKER, NO_EPOCH

    @property
    def is_led_alone(self) -> bool:
        """Whether this broker leads and no other replica is in sync.

        Then appends are committed without another broker, and another can become leader only by an
        unclean election.
        """
        return self.leader is not None and self.leader.maximal_isr == {self._context.broker_id}

    def leave(self) -> None:
        """Mark the partition as no longer hosted by this broker."""
        self.is_hosted = False
        self.leader, self.led_since = None, NO_EPOCH

    def _commit(self, leader: Leader) -> None:
        """Raise the high watermark to what every in-sync replica has.

        While there are fewer than `min.insync.replicas`, nothing is committed (KIP-966).
        """
        if len(leader.isr) >= self.min_isr:
            log = self.log
            end = leader.in_sync_end(self.committable, self._context.now_ms())
            log.update_high_watermark(max(log.high_watermark, end))

    @property
    def committable(self) -> Offset:
        """Limit of the high watermark from this broker's own log: its end, or what is on disk."""
        log = self.log
        return log.recovery_point if log.config.flush_before_ack else log.log_end_offset

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, at most the number of replicas (Kafka:
        Partition.effectiveMinIsr)."""
        return min(self.log.config.min_insync_replicas, self.replica_count)

    def lacks_replicas(self, end: Offset) -> bool:
        """Whether the records below `end` are uncommitted only because fewer than `min_isr`
        replicas, which all have them, are in sync."""
        leader = self.leader
        if leader is None or len(leader.isr) >= self.min_isr or self.committable < end:
            return False
        return all(f.end >= end for id_, f in leader.followers.items() if id_ in leader.isr)

    def append_as_leader(
        self, records: memoryview, acks: int, now_ms: int, *, origin: Origin = Origin.client
    ) -> Appended:
        """Append, and raise the high watermark unless it waits for the disk.  Raises KafkaError."""
        leader = self.leader
        if leader is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        log = self.log
        if acks == ALL_IN_SYNC and len(leader.isr) < log.config.min_insync_replicas:
            min_isr = self.min_isr
            if len(leader.isr) < min_isr:
                raise KafkaError(
                    ErrorCode.not_enough_replicas,
                    f"{self.topic_partition} has {len(leader.isr)} in-sync replicas,"
                    f" and needs {min_isr}",
                )
        appended = log.append_as_leader(records, self.epoch, now_ms, origin=origin)
        if not log.config.flush_before_ack:
            if leader.followers:
                self._commit(leader)
            else:
                log.commit_all()
        return appended

    def check_first_sequence(self, producer_id: ProducerId, epoch: int, sequence: int) -> None:
        """Refuse a batch of transaction version 2 that has overtaken the producer's first one.

        Such a producer bumps its epoch if its state is lost, and starts at 0 (KAFKA-18202).  Raises
        KafkaError.
        """
        if sequence > 0 and self.leader and producer_id not in self.log.producers.producers:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"Out of order sequence number for producer {producer_id} of epoch {epoch}: "
                f"{sequence} (incoming seq. number), but {self.topic_partition} knows nothing of "
                "the producer, so the first must be 0",
            )

    def open_epoch(self, producer_id: ProducerId) -> int | None:
        """Return the epoch of the transaction that the producer has open here, or None."""
        entry = self.log.producers.producers.get(producer_id)
        return entry.epoch if entry is not None and entry.transaction_start >= 0 else None

    def delete_records(self, offset: Offset) -> Offset:
        """Delete the records below `offset` (-1: all committed ones); return the new log start.

        Raises KafkaError.
        """
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"Records of partition {self.topic_partition} can not be deleted due to the"
                " configured policy",
            )
        target = log.high_watermark if offset == -1 else offset
        if target < 0:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"The offset {offset} for partition {self.topic_partition} is not valid",
            )
        log.increment_log_start_offset(target)
        return log.log_start_offset

    def begins_at(self, replica: BrokerId) -> Offset:
        """Return a follower's log start offset, or UNKNOWN_OFFSET."""
        follower = None if self.leader is None else self.leader.followers.get(replica)
        return UNKNOWN_OFFSET if follower is None else follower.log_start_offset

    def low_watermark(self, live: Container[BrokerId]) -> Offset:
        """Return the lowest log start of the replicas on live brokers.

        Records below it exist on none of them, so they do not return whichever broker leads next.
        """
        followers = {} if self.leader is None else self.leader.followers
        starts = [follower.log_start_offset for id_, follower in followers.items() if id_ in live]
        return min(self.log.log_start_offset, *starts) if starts else self.log.log_start_offset

    def reconsider(self) -> None:
        """Update the high watermark, after a flush or an ISR decision."""
        if self.leader is not None:
            self._commit(self.leader)

    @property
    def knows_what_is_committed(self) -> bool:
        """Whether the high watermark includes all that earlier leaders committed.

        A new leader's does once it has reached the start of its epoch; before, it may be behind
        (KIP-207).
        """
        return self.leader is None or self.log.high_watermark >= self.leader.epoch_start

    def check_leader(self, current_leader_epoch: LeaderEpoch) -> None:
        """Raise KafkaError unless this broker leads in exactly that epoch (KIP-320; -1: any).

        Also raised if its disk failed, since its unflushed records may be lost at the next start.
        """
        if self.leader is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        self.check_replica(current_leader_epoch)

    def check_replica(self, current_leader_epoch: LeaderEpoch) -> None:
        """Check the epoch and the disk, in any role: a consumer may read from any replica
        (KIP-392)."""
        if self.log.failure is not None:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.epoch:
            raise KafkaError(
                ErrorCode.fenced_leader_epoch
                if current_leader_epoch < self.epoch
                else ErrorCode.unknown_leader_epoch
            )
