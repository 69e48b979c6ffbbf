"""Requests of brokers to the controller: AlterPartition, AllocateProducerIds, ControlledShutdown.

Each is accepted only from the broker's current registration. (Kafka:
KafkaController.processAlterPartition, processAllocateProducerIds, doControlledShutdown.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from kserver.cluster_config.znode_store import not_controller
from kserver.controller import producer_ids
from kserver.controller.channel import ChannelManager
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import ControllerContext
from kserver.controller.partition_states import PartitionStates
from kserver.controller.partitions import IsrChange
from kserver.controller.reassignments import Reassignments
from kserver.controller.request_batch import followed_by
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, LeaderAndIsr, TopicPartition
from kserver.wire.control import NO_BROKER_EPOCH
from kserver.znodes import ProducerIdBlock

log = logging.getLogger(__name__)

FOR_ALL = frozenset({ErrorCode.not_controller, ErrorCode.stale_broker_epoch})


class BrokerOperations:
    """Each method raises NOT_CONTROLLER, or SessionExpired or BadVersion with the same meaning.
    `act_on` runs an action that may find that this is no longer the controller."""

    def __init__(
        self,
        context: ControllerContext,
        store: ClaimedStore,
        partitions: PartitionStates,
        channels: ChannelManager,
        reassignments: Reassignments,
        act_on: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self._context = context
        self._store = store
        self._partitions = partitions
        self._channels = channels
        self._reassignments = reassignments
        self._act_on = act_on

    async def alter_partitions(
        self, broker: BrokerId, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[LeaderAndIsr | KafkaError]:
        """Change ISRs as the leader `broker` proposes.  Return the new state of each partition, or
        the error.  Raises STALE_BROKER_EPOCH."""
        self._check(broker, broker_epoch, ErrorCode.stale_broker_epoch)
        batch = self._channels.new_batch()
        decided = await self._partitions.alter(broker, changes, batch)
        await self._channels.send_topics(batch)
        await self._act_on(self._reassignments.advance)
        if decided and isinstance(decided[0], KafkaError) and decided[0].code in FOR_ALL:
            raise decided[0]
        return decided

    async def allocate_producer_ids(self, broker: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        """Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, or UNKNOWN_SERVER_ERROR if no ids
        are left."""
        self._check(broker, broker_epoch, ErrorCode.broker_id_not_registered)
        return await producer_ids.allocate(self._store, broker)

    async def shut_down(self, broker: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker that is about to stop.  Return the partitions that it
        still leads, as no other replica is in sync.  Raises STALE_BROKER_EPOCH or
        BROKER_NOT_AVAILABLE."""
        if broker_epoch == NO_BROKER_EPOCH and broker in self._context.brokers:
            broker_epoch = self._context.brokers[broker].epoch
        self._check(broker, broker_epoch, ErrorCode.broker_not_available)
        log.info("broker %d requested a controlled shutdown", broker)
        self._context.shutting_down.add(broker)
        changed, remaining = await self._partitions.hand_over(broker)
        batch = self._channels.new_batch()
        batch.changes(changed)
        batch.stops(broker, followed_by(broker, changed))
        await self._channels.send_topics(batch)
        return remaining

    def _check(self, broker: BrokerId, broker_epoch: int, unknown: ErrorCode) -> None:
        """Raises NOT_CONTROLLER or STALE_BROKER_EPOCH, or `unknown` if the broker is not live."""
        if not self._context.is_active:
            raise not_controller()
        live = self._context.brokers.get(broker)
        if live is None:
            raise KafkaError(unknown)
        if live.epoch != broker_epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch)
