"""Changes of the live brokers: watches registrations, elects leaders, and notifies all brokers.

A broker whose process is proven gone is removed at once, while its registration still exists.
(Kafka: KafkaController.processBrokerChange, onBrokerStartup, onBrokerFailure.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial

from kserver import znodes
from kserver.cluster_config.unreadable import UnreadableZnodes
from kserver.cluster_config.znode_store import gather
from kserver.config.broker import BrokerConfig
from kserver.controller.channel import ChannelManager
from kserver.controller.context import ControllerContext, LiveBroker, live_broker
from kserver.controller.event_queue import ControllerState, Put
from kserver.controller.failure_detector import BrokerFailureDetector
from kserver.controller.feature_operations import FeatureOperations
from kserver.controller.partition_states import PartitionStates
from kserver.controller.reassignments import Reassignments
from kserver.controller.request_batch import Changes, RequestBatch
from kserver.controller.topic_deletion import TopicDeletionManager
from kserver.errors import UnreadableZnode
from kserver.model import BrokerId
from kserver.world.session import until_connected
from kserver.world.zookeeper import NoAuth, NoNode, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)


class BrokerChanges:
    def __init__(
        self,
        zookeeper: ZooKeeper,
        context: ControllerContext,
        partitions: PartitionStates,
        channels: ChannelManager,
        deletions: TopicDeletionManager,
        reassignments: Reassignments,
        features: FeatureOperations,
        failures: BrokerFailureDetector,
        config: Callable[[], BrokerConfig],
        put: Put,
    ) -> None:
        self._zookeeper = zookeeper
        self._context = context
        self._partitions = partitions
        self._channels = channels
        self._deletions = deletions
        self._reassignments = reassignments
        self._features = features
        self._failures = failures
        self._config = config
        self._put = put
        self._unreadable = UnreadableZnodes(zookeeper, self.may_be_due)

    def may_be_due(self, _event: WatchEvent | None = None) -> None:
        """Queue an event that compares the registrations with the known brokers."""
        self._put(ControllerState.BROKER_CHANGE, self._take_note)

    async def _take_note(self) -> None:
        context = self._context
        before = context.brokers
        await until_connected(self.load)
        now = context.brokers
        if now == before:
            return
        new_ids = {
            id_ for id_, b in now.items() if id_ not in before or before[id_].epoch != b.epoch
        }
        removed_ids = before.keys() - now.keys()
        for broker in new_ids | removed_ids:
            context.offline.pop(broker, None)
            context.shutting_down.discard(broker)
        self._deletions.brokers_changed(removed_ids, new_ids)
        self._channels.close(removed_ids)
        log.info(
            "brokers registered: %s; unregistered: %s",
            sorted(new_ids) or "none",
            sorted(removed_ids) or "none",
        )
        # Replicas on these brokers can change: leaders of brokers that are gone, the ISR of new
        # ones.
        changed = await self._partitions.reconsider(new_ids | removed_ids, new_ids)
        if new_ids:
            await until_connected(self._features.agree)
            # The others must know the new brokers before they follow them as leaders.
            await self._channels.send(self._channels.new_batch(), now.keys() - new_ids)
        batch = self._channels.new_batch()
        batch.changes(changed)
        self._add_online_replicas(batch, new_ids | removed_ids, changed)
        await self._channels.send(batch, now.keys() - new_ids)
        if new_ids:
            await self._channels.send_full_state(new_ids)
            await self._reassignments.stop_again(new_ids)
        await self._deletions.advance()
        await self._reassignments.advance()

    def _add_online_replicas(
        self, batch: RequestBatch, brokers: AbstractSet[BrokerId], changed: Changes
    ) -> None:
        """Add the partitions that these brokers host and that are not in `changed`: their offline
        replicas have changed."""
        included = {(topic.name, p.partition) for topic, partitions in changed for p in partitions}
        for topic in self._context.topics.values():
            if topic.name not in self._context.deletions:
                hosted = [
                    p
                    for p in topic.partitions
                    if not brokers.isdisjoint(p.replicas)
                    and (topic.name, p.partition) not in included
                ]
                if hosted:
                    batch.add_metadata(topic, hosted)

    async def load(self) -> None:
        """Load the live brokers into the context, and watch them.  Raises ConnectionLost."""
        names = await self._zookeeper.children(znodes.BROKER_IDS, self.may_be_due)
        brokers = await gather([partial(self._read, name) for name in names])
        registered = {broker.info.id: broker for broker in brokers if broker is not None}
        self._failures.follow(registered, self._config().inter_broker_listener)
        self._context.brokers = registered
        self.forget_failed_brokers()

    async def _read(self, name: str) -> LiveBroker | None:
        """Read a child of /brokers/ids; None if it cannot be read or no longer exists (then the
        watch fires)."""
        path = f"{znodes.BROKER_IDS}/{name}"
        data, epoch = None, -1
        try:
            data, stat = await self._zookeeper.get(path, self.may_be_due)
            epoch = stat.czxid
            return live_broker(znodes.decode_broker(int(name), data), epoch)
        except NoNode:
            return None
        except (UnreadableZnode, NoAuth, ValueError) as error:
            current = next(
                (b for b in self._context.brokers.values() if str(b.info.id) == name), None
            )
            if current is not None and current.epoch != epoch:
                current = None
            await self._unreadable.leave_out(
                error if isinstance(error, UnreadableZnode) else UnreadableZnode(path, data, error),
                f"broker {name} is ignored"
                if current is None
                else f"broker {name} keeps its previous registration",
            )
            return current

    def forget_failed_brokers(self) -> None:
        """Remove brokers from the context whose process is proven gone although they are
        registered."""
        brokers = self._context.brokers
        gone = self._failures.is_gone
        self._context.brokers = {id_: b for id_, b in brokers.items() if not gone(id_)}
