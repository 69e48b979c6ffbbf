"""Offline replicas: those on failed disks of live brokers, known from LeaderAndIsr responses.

    response               known as     result
    KAFKA_STORAGE_ERROR    online       offline: it leads no longer, and leaves the ISR
    no error               offline      online: it may become the leader of a leaderless partition
    none, or other error   online       nothing
    no response yet                     online, until the first response of a registration

UpdateMetadata reports the offline replicas to all brokers. (Kafka:
KafkaController.processLeaderAndIsrResponseReceived, KIP-112.)
"""

from __future__ import annotations

import logging
from functools import partial

from kserver.controller.channel import ChannelManager
from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.event_queue import ControllerState, Put
from kserver.controller.partition_states import PartitionStates
from kserver.errors import ErrorCode
from kserver.model import BrokerId, TopicPartition
from kserver.wire.control import LeaderAndIsrRequest, LeaderAndIsrResponse

log = logging.getLogger(__name__)


class OfflineReplicas:
    def __init__(
        self,
        context: ControllerContext,
        partitions: PartitionStates,
        channels: ChannelManager,
        put: Put,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._channels = channels
        self._put = put

    def on_response(
        self, broker: LiveBroker, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
    ) -> None:
        offline = self._context.offline.get(broker.info.id, set())
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        failed, works = set(), set()
        for topic in response.topics:
            # Up to version 4, topics are identified by name, later by id.
            name = topic.topic_name or names.get(topic.topic_id)
            if name is None:
                continue
            for partition in topic.partition_errors:
                key = TopicPartition(name, partition.partition_index)
                if partition.error_code is ErrorCode.kafka_storage_error:
                    failed.add(key)
                elif partition.error_code is ErrorCode.none:
                    works.add(key)
        failed, works = failed - offline, works & offline
        if failed or works:
            self._put(
                ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED,
                partial(self._changed, broker, failed, works),
            )

    async def request_states(self, broker: BrokerId) -> None:
        """Send LeaderAndIsr for all replicas of a live broker, which reported a failed disk."""
        batch = self._channels.new_batch()
        for topic in self._context.topics.values():
            hosted = [p for p in topic.partitions if broker in p.replicas]
            if hosted and topic.name not in self._context.deletions:
                batch.query_states(broker, topic, hosted)
        await self._channels.send(batch, [broker])

    async def _changed(
        self, broker: LiveBroker, failed: set[TopicPartition], works: set[TopicPartition]
    ) -> None:
        context, id_ = self._context, broker.info.id
        now = context.brokers.get(id_)
        if now is None or now.epoch != broker.epoch:
            return
        offline = context.offline.setdefault(id_, set())
        offline |= failed
        offline -= works
        log.info(
            "broker %d: %d replica(s) went offline, %d came back online",
            id_,
            len(failed),
            len(works),
        )
        touched = failed | works
        changed = await self._partitions.reconsider_some(touched)
        batch = self._channels.new_batch()
        batch.changes(changed)
        included = {(topic.name, p.partition) for topic, partitions in changed for p in partitions}
        for name, number in sorted(touched - included):
            topic = context.topics.get(name)
            if topic is not None and name not in context.deletions:
                batch.add_metadata(topic, [topic.partitions[number]])
        await self._channels.send_topics(batch)
