"""Partitions that move from some replicas to others: begun, given up, done.

    asked      AlterPartitionReassignments, or /admin/reassign_partitions written by an old tool
    begun      the topic's znode and the partition's state are written at once; those that are added
               follow the leader
    done       all of the target are in sync: the rest leave the ISR, and delete their logs

What is under way stands in the topic's znode, so the next controller goes on with it, whichever
began.  The rules are those of `reassignment`.
(Kafka: KafkaController.processPartitionReassignment, onPartitionReassignment; KIP-455.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kserver import znodes
from kserver.cluster_config.znode_store import not_controller
from kserver.controller import reassignment
from kserver.controller.channel import ChannelManager
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import ControllerContext
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.model import BrokerId, LeaderAndIsr, TopicPartition
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

    def list(self, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, PartitionInfo]:
        """Those of these, or of all partitions, that move."""
        moving = self._context.moving
        found = sorted(moving if wanted is None else moving & set(wanted))
        return {key: self._context.topics[key.topic].partitions[key.partition] for key in found}

    async def alter(
        self,
        wanted: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move each to these replicas, or with None back to those of before.  NOT_CONTROLLER; by
        partition UNKNOWN_TOPIC_OR_PARTITION and what `reassignment.checked` raises."""
        if not self._context.is_active:
            raise not_controller()
        results: dict[TopicPartition, KafkaError | None] = {}
        moved: dict[str, list[Moved]] = {}
        for key, replicas in wanted.items():
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
                one = reassignment.begun(info, checked, online, self._context.epoch)
            except KafkaError as error:
                results[key] = error
            else:
                moved.setdefault(key.topic, []).append(one)
                log.info("%s: reassigning from %s to %s", key, list(info.replicas), list(checked))
        await self._write(moved)
        await self.advance()
        return results

    async def advance(self) -> None:
        """What can be done now is done."""
        moved: dict[str, list[Moved]] = {}
        for key, info in self.list(None).items():
            if key.topic in self._context.deletions:
                continue
            online = self._context.online(key.topic, info)
            one = reassignment.done(info, online, self._context.epoch)
            if one is not None:
                moved.setdefault(key.topic, []).append(one)
                log.info("%s: reassignment to %s completed", key, list(one[0].replicas))
        await self._write(moved)
        if self._noted and not self._noted & self.list(self._noted).keys():
            self._noted.clear()
            await self._store.write([Delete(znodes.REASSIGN_PARTITIONS)])

    async def noted(self, data: bytes) -> None:
        """/admin/reassign_partitions holds this."""
        try:
            wanted = znodes.decode_reassignments(data)
        except StorageError as error:
            log.error("%s; removing the znode", error)
            await self._store.write([Delete(znodes.REASSIGN_PARTITIONS)])
            return
        self._noted = set(wanted)
        for key, refused in (await self.alter(wanted)).items():
            if refused is not None:
                log.warning("%s: reassignment refused: %s", key, refused)

    def _find(self, key: TopicPartition) -> PartitionInfo | None:
        topic = self._context.topics.get(key.topic)
        if topic is None or key.topic in self._context.deletions:
            return None
        if not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition]

    async def _write(self, moved: Mapping[str, Sequence[Moved]]) -> None:
        """The znodes of each topic at once; then all brokers are told."""
        batch = self._channels.new_batch()
        for name, partitions in moved.items():
            topic = self._context.topics[name]
            before = [topic.partitions[info.partition] for info, _ in partitions]
            await self._write_topic(topic, partitions)
            self._context.set_partitions(name, [info for info, _ in partitions])
            for was, (info, _) in zip(before, partitions, strict=True):
                added = [b for b in info.replicas if b not in was.replicas]
                batch.leads(topic, [info], new_on=added)
                for broker in was.replicas:
                    if broker not in info.replicas:
                        batch.stops(broker, [(topic, [info])], delete=True)
        await self._channels.tell_of_topics(batch)

    async def _write_topic(self, topic: TopicInfo, moved: Sequence[Moved]) -> None:
        path = znodes.topic_path(topic.name)
        data, stat = await until_connected(partial(self._zookeeper.get, path))
        old = znodes.decode_topic(topic.name, data)
        placed = {info.partition: info for info, _ in moved}
        replicas = {p: i.replicas for p, i in placed.items()}
        adding = {**old.adding, **{p: i.adding for p, i in placed.items()}}
        removing = {**old.removing, **{p: i.removing for p, i in placed.items()}}
        assignment = replace(
            old,
            replicas={**old.replicas, **replicas},
            adding={p: brokers for p, brokers in adding.items() if brokers},
            removing={p: brokers for p, brokers in removing.items() if brokers},
        )
        ops: list[Op] = [SetData(path, znodes.encode_topic(assignment), stat.version)]
        for info, state in moved:
            state_path = znodes.state_path(topic.name, info.partition)
            version = state.partition_epoch - 1
            ops.append(SetData(state_path, znodes.encode_state(state), version))
        await self._store.write(ops)
