"""Deletion of topics, from the note of a deletion until every replica is deleted.

    noted       /admin/delete_topics/T is written, by this controller or by an old tool: the topic
                no longer exists for clients, and each live replica is asked to delete its log
    answered    a replica is deleted, or could not be; after the last one the znodes are removed
    resumed     a broker has returned, or another controller was elected: the replicas that did not
                respond are asked again

A topic with replicas on brokers that are gone, or on failed disks, keeps its name until they
return.  `replicas` has the states of the replicas.  (Kafka: TopicDeletionManager.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.controller.channel import ChannelManager
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import ControllerContext
from kserver.controller.replicas import Replica, TopicDeletion
from kserver.controller.topic_znodes import TopicZnodes
from kserver.errors import ErrorCode
from kserver.metadata import TopicInfo
from kserver.model import BrokerId
from kserver.wire.control import StopReplicaRequest, StopReplicaResponse
from kserver.world.session import until_connected
from kserver.world.zookeeper import Delete

log = logging.getLogger(__name__)


class TopicDeletionManager:
    """Each call that writes may raise SessionExpired, or BadVersion if this is no longer the
    controller."""

    def __init__(
        self,
        context: ControllerContext,
        store: ClaimedStore,
        topic_znodes: TopicZnodes,
        channels: ChannelManager,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._context = context
        self._store = store
        self._znodes = topic_znodes
        self._channels = channels
        self._config = config

    def noted(self, topics: Iterable[TopicInfo]) -> None:
        """Register topics for deletion; `advance` performs the steps that are possible now."""
        for topic in topics:
            self._context.deletions[topic.name] = TopicDeletion(topic, self._context.brokers)

    async def advance(self) -> None:
        """Send the pending StopReplica requests, and remove the topics whose replicas are all
        deleted."""
        batch = self._channels.new_batch()
        for deletion in self._context.deletions.values():
            if started := deletion.start():
                batch.deletes(deletion.topic, started)
        # This broker deletes its own replicas, and responds, before this returns.
        await self._channels.send_topics(batch)
        for deletion in list(self._context.deletions.values()):
            if deletion.is_done:
                await until_connected(partial(self._znodes.remove, deletion.topic.name))
                deletion.removed()
                del self._context.deletions[deletion.topic.name]
                self._context.remove_topic(deletion.topic)

    async def read_notes(self, names: Iterable[str]) -> None:
        """Handle the children of /admin/delete_topics.  The rest of a topic that no longer exists
        is removed, and so is a note that `delete.topic.enable` forbids."""
        topics, deletions = self._context.topics, self._context.deletions
        for name in names:
            if name in deletions:
                continue
            if name not in topics:
                await until_connected(partial(self._znodes.remove, name))
            elif self._config().delete_topic_enable:
                self.noted([topics[name]])
            else:
                log.warning("topic %s: deletion ignored, delete.topic.enable is false", name)
                await self._store.write([Delete(znodes.delete_topic_path(name))])

    def on_response(
        self, broker: BrokerId, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> bool:
        """Handle a broker's response; return whether `advance` is to be called."""
        deletions = self._context.deletions
        errors = {
            (e.topic_name, e.partition_index): e.error_code for e in response.partition_errors
        }
        is_news = False
        for topic in request.topic_states:
            deletion = deletions.get(topic.topic_name)
            if deletion is None:
                continue
            for state in topic.partition_states:
                if state.delete_partition:
                    number = state.partition_index
                    error = errors.get((topic.topic_name, number), response.error_code)
                    is_deleted = error is response.error_code is ErrorCode.none
                    deletion.on_response(Replica(number, broker), is_deleted=is_deleted)
                    is_news |= is_deleted
            if broker in deletion.waiting_for:
                log.warning(
                    "topic %s: deletion is waiting, broker %d could not delete its replicas",
                    topic.topic_name,
                    broker,
                )
        return is_news

    def brokers_changed(self, removed: Collection[BrokerId], new: Collection[BrokerId]) -> None:
        """Update the replicas on these brokers; `advance` continues with the returned ones."""
        for deletion in self._context.deletions.values():
            for broker in removed:
                deletion.broker_gone(broker)
            for broker in new:
                deletion.broker_came(broker)
