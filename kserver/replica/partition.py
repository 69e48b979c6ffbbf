"""One hosted partition: its role and epochs beside its log.

A leader appends and serves; what is below the high watermark is committed and visible.  With one
replica that is everything appended, or, with `flush.before.ack`, everything on disk: the
visibility rule of the first Kafka paper (Kreps, Narkhede, Rao, NetDB 2011), extended to
acknowledgements.  `ReplicaManager` flushes for all who wait and calls `flushed`.
"""

from __future__ import annotations

from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.log.log import Appended, Log
from kserver.log.validator import Origin
from kserver.metadata import PartitionInfo
from kserver.metrics.meters import TopicMeters
from kserver.model import (
    NO_EPOCH,
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)


class Partition:
    __slots__ = (
        "_broker_id",
        "epoch",
        "is_hosted",
        "is_leader",
        "isr_size",
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
        broker_id: BrokerId,
        meters: TopicMeters,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.meters = meters
        """Its topic's meters."""
        self._broker_id = broker_id
        self.is_hosted = True
        """Until this broker drops it."""
        self.is_leader = False
        self.isr_size = 0
        self.replica_count = 0
        self.epoch: LeaderEpoch = NO_EPOCH

    def lead(self, info: PartitionInfo) -> None:
        """Take the role that the controller gives; becoming leader begins a leader epoch."""
        self.is_leader = info.leader == self._broker_id
        self.isr_size = len(info.isr)
        self.replica_count = len(info.replicas)
        if self.is_leader and info.leader_epoch > self.epoch:
            self.log.assign_epoch(info.leader_epoch, self.log.log_end_offset)
            self.log.update_high_watermark(self.committable)
        self.epoch = info.leader_epoch

    def leave(self) -> None:
        """It is not this broker's any more."""
        self.is_hosted = self.is_leader = False

    @property
    def committable(self) -> Offset:
        """How far the high watermark may go: to the log end, or to what is on disk."""
        log = self.log
        return log.recovery_point if log.config.flush_before_ack else log.log_end_offset

    @property
    def min_isr(self) -> int:
        """No more can be wanted than the topic has (Kafka: Partition.effectiveMinIsr)."""
        return min(self.log.config.min_insync_replicas, self.replica_count)

    def append_as_leader(
        self, records: memoryview, acks: int, now_ms: int, *, origin: Origin = Origin.client
    ) -> Appended:
        """Append; raises KafkaError.  The high watermark follows unless it waits for the disk."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        log = self.log
        if acks == -1 and self.isr_size < log.config.min_insync_replicas:
            wanted = self.min_isr
            if self.isr_size < wanted:
                raise KafkaError(
                    ErrorCode.not_enough_replicas,
                    f"{self.topic_partition} has {self.isr_size} in-sync replicas,"
                    f" and needs {wanted}",
                )
        appended = log.append_as_leader(records, self.epoch, now_ms, origin=origin)
        if not log.config.flush_before_ack:
            log.commit_all()
        return appended

    def open_epoch(self, producer_id: ProducerId) -> int | None:
        """The epoch of the transaction that the producer has open here; None where it has none."""
        known = self.log.producers.producers.get(producer_id)
        return known.epoch if known is not None and known.transaction_start >= 0 else None

    def delete_records(self, offset: Offset) -> Offset:
        """Those below `offset` (-1: all that is committed); where the log starts now.

        Raises KafkaError.
        """
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"Records of partition {self.topic_partition} can not be deleted due to the"
                " configured policy",
            )
        wanted = log.high_watermark if offset == -1 else offset
        if wanted < 0:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"The offset {offset} for partition {self.topic_partition} is not valid",
            )
        log.increment_log_start_offset(wanted)
        return log.log_start_offset

    def flushed(self) -> None:
        self.log.update_high_watermark(max(self.log.high_watermark, self.committable))

    def check_leader(self, current_leader_epoch: LeaderEpoch) -> None:
        """Raises KafkaError unless this broker leads in just that epoch (KIP-320; -1: any), from a
        disk that works: what a failed one shows may be gone at the next start."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if self.log.failure is not None:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.epoch:
            raise KafkaError(
                ErrorCode.fenced_leader_epoch
                if current_leader_epoch < self.epoch
                else ErrorCode.unknown_leader_epoch
            )
