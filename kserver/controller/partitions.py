"""Validation of ISR changes that leaders propose.

Pure: a proposal and the controller's context go in, the partition's next state comes out. (Kafka:
KafkaController.processAlterPartition; KIP-497, KIP-841, KIP-903.)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from kserver.controller.context import ControllerContext
from kserver.controller.election import elect_for_shutdown
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.model import BrokerId, LeaderAndIsr, LeaderEpoch

UNKNOWN_BROKER_EPOCH = -1


class IsrChange(NamedTuple):
    """ISR of one partition, as its leader proposes it."""

    topic_id: UUID
    partition: int
    leader_epoch: LeaderEpoch
    isr: tuple[tuple[BrokerId, int], ...]
    """Brokers with their registered epoch as the leader knows it, or UNKNOWN_BROKER_EPOCH."""
    partition_epoch: int
    is_recovering: bool = False
    """Whether the leader, elected uncleanly, has not recovered yet (KIP-704)."""

    @property
    def brokers(self) -> tuple[BrokerId, ...]:
        return tuple(broker for broker, _ in self.isr)


def validate_change(
    change: IsrChange, leader: BrokerId, topic: TopicInfo | None, context: ControllerContext
) -> LeaderAndIsr:
    """Return the new state, or the present one if the change is already applied.  Raises
    KafkaError if the change is invalid."""
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    if not 0 <= change.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    now = topic.partitions[change.partition]
    if change.leader_epoch < now.leader_epoch:
        raise KafkaError(ErrorCode.fenced_leader_epoch)
    if change.leader_epoch > now.leader_epoch:
        raise KafkaError(ErrorCode.not_controller)
    if now.leader != leader or leader not in change.brokers:
        raise KafkaError(ErrorCode.invalid_request)
    isr = change.brokers
    is_so = set(isr) == set(now.isr) and change.is_recovering == now.is_recovering
    if is_so and change.partition_epoch <= now.partition_epoch:
        return state_of(now, context.epoch)
    if change.partition_epoch != now.partition_epoch:
        raise KafkaError(ErrorCode.invalid_update_version)
    if not set(isr) <= set(now.replicas):
        raise KafkaError(ErrorCode.invalid_request)
    if change.is_recovering and (not now.is_recovering or len(isr) > 1):
        text = "Only a leader elected uncleanly can be recovering, as the only in-sync replica."
        raise KafkaError(ErrorCode.invalid_request, text)
    for broker, epoch in change.isr:
        live = context.brokers.get(broker)
        joins_to_leave = broker in context.shutting_down and broker not in now.isr
        if live is None or joins_to_leave or epoch not in (UNKNOWN_BROKER_EPOCH, live.epoch):
            raise KafkaError(ErrorCode.ineligible_replica)
    return LeaderAndIsr(
        now.leader,
        now.leader_epoch,
        isr,
        context.epoch,
        now.partition_epoch + 1,
        change.is_recovering,
    )


def state_of(partition: PartitionInfo, controller_epoch: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        controller_epoch,
        partition.partition_epoch,
        partition.is_recovering,
    )


def without(
    broker: BrokerId,
    partition: PartitionInfo,
    staying: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """Return the state after `broker`, which is in sync, has left; None if no other replica can
    lead. The last in-sync replica stays in the ISR, as no other has all records.  `staying` are
    the live replicas that do not shut down."""
    last = state_of(partition, controller_epoch)
    if partition.leader == broker:
        return elect_for_shutdown(
            partition.replicas, last, staying, shutting_down, controller_epoch
        )
    if last.isr == (broker,):
        return None
    return replace(
        last,
        leader_epoch=last.leader_epoch + 1,
        isr=tuple(b for b in last.isr if b != broker),
        partition_epoch=last.partition_epoch + 1,
    )


def with_state(partition: PartitionInfo, state: LeaderAndIsr) -> PartitionInfo:
    """Return the partition with this state, and with its replicas unchanged."""
    return replace(
        partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        is_recovering=state.is_recovering,
    )
