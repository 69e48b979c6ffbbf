"""Reassignments of partitions to other replicas, from the request until the old logs are deleted.

    state       event                                   action
    requested   AlterPartitionReassignments, or         write the topic's znode and the partition's
                /admin/reassign_partitions              state at once; the added replicas follow
    begun       all target replicas are in sync         write the state, with the others out of the
                                                        ISR; send them StopReplica with delete
    stopping    each of them that is live has           write the topic's znode without adding and
                responded                               removing replicas
    ended

The topic's znode has the removed replicas until their logs are deleted, so a controller that takes
over in between sends StopReplica again.  To clients a reassignment that is `stopping` has ended.
A removed replica whose broker is away is not waited for: its log stays until somebody removes it.
The rules are those of `reassignment`.
(Kafka: KafkaController.processPartitionReassignment, onPartitionReassignment; KIP-455.)
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kserver import znodes
from kserver.cluster_config.znode_store import not_controller
from kserver.controller import reassignment
from kserver.controller.channel import ChannelManager
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import ControllerContext
from kserver.controller.request_batch import RequestBatch
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.model import BrokerId, LeaderAndIsr, TopicPartition
from kserver.wire.control import StopReplicaRequest
from kserver.world.session import until_connected
from kserver.world.zookeeper import Delete, Op, SetData, ZooKeeper

log = logging.getLogger(__name__)

Moved = tuple[PartitionInfo, LeaderAndIsr]
"""A partition as it is from now on, and its state."""


class Reassignments:
    """Each call that writes may raise SessionExpired, and BadVersion where this is no longer the
    controller."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        context: ControllerContext,
        store: ClaimedStore,
        channels: ChannelManager,
    ) -> None:
        self._zookeeper = zookeeper
        self._context = context
        self._store = store
        self._channels = channels
        self._noted: set[TopicPartition] = set()
        """Those of /admin/reassign_partitions, which stands until they are done."""
        self._stopping: dict[TopicPartition, set[BrokerId]] = {}
        """Brokers that have not responded to StopReplica, by partition whose reassignment ends."""

    def reload(self) -> None:
        """Forget what is in progress: the znodes that are read next have it."""
        self._stopping.clear()

    def list(self, keys: Iterable[TopicPartition] | None) -> dict[TopicPartition, PartitionInfo]:
        """Those of these, or of all partitions, that move."""
        moving = self._context.moving
        ongoing = sorted(moving if keys is None else moving & set(keys))
        return {key: self._context.topics[key.topic].partitions[key.partition] for key in ongoing}

    async def alter(
        self,
        targets: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move each to these replicas, or with None back to those of before.  NOT_CONTROLLER; by
        partition UNKNOWN_TOPIC_OR_PARTITION and what `reassignment.checked` raises."""
        if not self._context.is_active:
            raise not_controller()
        results: dict[TopicPartition, KafkaError | None] = {}
        moved: dict[str, list[Moved]] = {}
        for key, replicas in targets.items():
            results[key] = None
            info = self._find(key)
            try:
                if info is None:
                    text = "The partition does not exist."
                    raise KafkaError(ErrorCode.unknown_topic_or_partition, text)
                checked = reassignment.checked(
                    info,
                    replicas,
                    self._context.brokers,
                    allow_replication_factor_change=allow_replication_factor_change,
                )
                if reassignment.target(info) == checked:
                    continue
                online = self._context.brokers
                change = reassignment.begun(info, checked, online, self._context.epoch)
            except KafkaError as error:
                results[key] = error
            else:
                moved.setdefault(key.topic, []).append(change)
                log.info("%s: reassigning from %s to %s", key, list(info.replicas), list(checked))
        await self._begin(moved)
        await self.advance()
        return results

    async def resume(self) -> None:
        """Continue what an earlier controller began.

        Each partition gets a new leader epoch: the earlier controller may have written the topic's
        znode and not the state, and a leader takes new replicas only in a new epoch.
        (Kafka: KafkaController.initializePartitionReassignments.)
        """
        begun: dict[str, list[Moved]] = {}
        for key, info in self.list(None).items():
            if key.topic in self._context.deletions:
                continue
            online, epoch = self._context.online(key.topic, info), self._context.epoch
            if reassignment.done(info, online, epoch) is None:
                change = reassignment.begun(info, reassignment.target(info), online, epoch)
                begun.setdefault(key.topic, []).append(change)
        await self._begin(begun)
        await self.advance()

    async def advance(self) -> None:
        """Take every reassignment as far as it can go now."""
        moved: dict[str, list[Moved]] = {}
        for key, info in self.list(None).items():
            if key.topic in self._context.deletions:
                continue
            online = self._context.online(key.topic, info)
            change = reassignment.done(info, online, self._context.epoch)
            if change is not None:
                moved.setdefault(key.topic, []).append(change)
                log.info("%s: reassignment to %s completed", key, list(change[0].replicas))
        await self._stop(moved)
        await self._end()
        # Old tools compare the topics' znodes with their plan once this znode is gone.
        in_progress = self.list(self._noted).keys() | self._stopping.keys()
        if self._noted and not self._noted & in_progress:
            self._noted.clear()
            await self._store.write([Delete(znodes.REASSIGN_PARTITIONS)])

    async def stop_again(self, started: Collection[BrokerId]) -> None:
        """Send StopReplica again to brokers that have started since: the first one was lost."""
        batch, again = self._channels.new_batch(), set()
        for key, waits_for in self._stopping.items():
            if (info := self._find(key)) is not None:
                topic = self._context.topics[key.topic]
                for broker in waits_for.intersection(started):
                    batch.stops(broker, [(topic, [info])], delete=True)
                    again.add(broker)
        await self._channels.send(batch, again)

    async def noted(self, data: bytes) -> None:
        """/admin/reassign_partitions holds this."""
        try:
            targets = znodes.decode_reassignments(data)
        except StorageError as error:
            log.error("%s; removing the znode", error)
            await self._store.write([Delete(znodes.REASSIGN_PARTITIONS)])
            return
        self._noted = set(targets)
        for key, refused in (await self.alter(targets)).items():
            if refused is not None:
                log.warning("%s: reassignment refused: %s", key, refused)

    def on_response(self, broker: BrokerId, request: StopReplicaRequest) -> bool:
        """Note that a broker has responded to StopReplica; whether `advance` can go on.

        Errors count as a response: a log on a failed disk cannot be deleted.
        """
        is_last = False
        for topic in request.topic_states:
            for state in topic.partition_states:
                waits_for = self._stopping.get(
                    TopicPartition(topic.topic_name, state.partition_index)
                )
                if state.delete_partition and waits_for and broker in waits_for:
                    waits_for.remove(broker)
                    is_last |= not waits_for
        return is_last

    def _find(self, key: TopicPartition) -> PartitionInfo | None:
        topic = self._context.topics.get(key.topic)
        if topic is None or key.topic in self._context.deletions:
            return None
        if not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition]

    async def _begin(self, moved: Mapping[str, Sequence[Moved]]) -> None:
        """Write the znodes of each topic at once, then send all brokers what has changed."""
        batch = self._channels.new_batch()
        for name, partitions in moved.items():
            topic = self._context.topics[name]
            await self._write_topic(
                topic, [info for info, _ in partitions], _states(name, partitions)
            )
            for info, _ in partitions:
                self._stopping.pop(TopicPartition(name, info.partition), None)
            self._changed(batch, topic, partitions)
        await self._channels.send_topics(batch)

    async def _stop(self, moved: Mapping[str, Sequence[Moved]]) -> None:
        """Write the states, then send StopReplica to the replicas that are removed."""
        batch = self._channels.new_batch()
        for name, partitions in moved.items():
            topic = self._context.topics[name]
            await self._store.write(_states(name, partitions))
            for info, _ in partitions:
                before = topic.partitions[info.partition].replicas
                removed = {broker for broker in before if broker not in info.replicas}
                live = removed & self._context.brokers.keys()
                self._stopping[TopicPartition(name, info.partition)] = live
            self._changed(batch, topic, partitions)
        # This broker's own response is there when this returns.
        await self._channels.send_topics(batch)

    async def _end(self) -> None:
        """Write the topics' znodes of the reassignments whose last response is there."""
        ended: dict[str, list[PartitionInfo]] = {}
        for key, waits_for in list(self._stopping.items()):
            waits_for &= self._context.brokers.keys()
            if not waits_for:
                del self._stopping[key]
                if (info := self._find(key)) is not None:
                    ended.setdefault(key.topic, []).append(info)
        for name, partitions in ended.items():
            await self._write_topic(self._context.topics[name], partitions, [])

    def _changed(self, batch: RequestBatch, topic: TopicInfo, partitions: Sequence[Moved]) -> None:
        """Take what was written into the context, and into `batch` what the brokers must know."""
        self._context.set_partitions(topic.name, [info for info, _ in partitions])
        for info, _ in partitions:
            before = topic.partitions[info.partition].replicas
            added = [broker for broker in info.replicas if broker not in before]
            batch.leads(topic, [info], new_on=added)
            for broker in before:
                if broker not in info.replicas:
                    batch.stops(broker, [(topic, [info])], delete=True)

    async def _write_topic(
        self, topic: TopicInfo, partitions: Sequence[PartitionInfo], states: Sequence[Op]
    ) -> None:
        """Write where these partitions of a topic are, and in the same transaction `states`."""
        path = znodes.topic_path(topic.name)
        data, stat = await until_connected(partial(self._zookeeper.get, path))
        old = znodes.decode_topic(topic.name, data)
        adding = {**old.adding, **{p.partition: p.adding for p in partitions}}
        removing = {**old.removing, **{p.partition: p.removing for p in partitions}}
        assignment = replace(
            old,
            replicas={**old.replicas, **{p.partition: p.replicas for p in partitions}},
            adding={p: brokers for p, brokers in adding.items() if brokers},
            removing={p: brokers for p, brokers in removing.items() if brokers},
        )
        await self._store.write(
            [SetData(path, znodes.encode_topic(assignment), stat.version), *states]
        )


def _states(topic: str, moved: Sequence[Moved]) -> list[Op]:
    return [
        SetData(
            znodes.state_path(topic, info.partition),
            znodes.encode_state(state),
            state.partition_epoch - 1,
        )
        for info, state in moved
    ]
