"""Leaders and ISRs of partitions: decided, written, and stored in the context.

    brokers changed         the partitions on them are reconsidered, in as few writes as possible
    a leader proposes an    it is validated, and written unless the state has changed meanwhile
    ISR
    a controller starts     the stored states are read, and missing leaders are elected
    a topic was found       the same, for this topic
    a state was written     it is read again: the leader is older than AlterPartition
    by a leader

Changes are returned, or put into the batch, to be sent to the brokers. (Kafka:
PartitionStateMachine, KafkaController.processAlterPartition.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from kserver import znodes
from kserver.cluster_config.config_manager import ConfigManager
from kserver.cluster_config.unreadable import UnreadableZnodes
from kserver.cluster_config.znode_store import gather, refusal
from kserver.config.broker import BrokerConfig
from kserver.config.topic import TopicConfig
from kserver.controller import topics as rules
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import (
    ControllerContext,
    Returned,
    next_state,
    returned_since,
)
from kserver.controller.election import is_unclean
from kserver.controller.partitions import IsrChange, state_of, validate_change, with_state, without
from kserver.controller.request_batch import Changes, RequestBatch
from kserver.errors import ErrorCode, KafkaError, UnreadableZnode
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.metrics.meters import ControllerMeters
from kserver.model import NO_BROKER, BrokerId, LeaderAndIsr, TopicPartition
from kserver.world.session import until_connected
from kserver.world.zookeeper import Create, NoNode, Op, SetData, ZooKeeper

log = logging.getLogger(__name__)


class PartitionStates:
    """Each write may raise SessionExpired, or BadVersion if this is no longer the controller."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        store: ClaimedStore,
        context: ControllerContext,
        configs: ConfigManager,
        config: Callable[[], BrokerConfig],
        new_topic_id: Callable[[], UUID],
        meters: ControllerMeters,
        unreadable: UnreadableZnodes,
    ) -> None:
        self._meters = meters
        self._unreadable = unreadable
        self._left_out: set[str] = set()
        """Topics that are unreadable."""
        self._zookeeper = zookeeper
        self._store = store
        self._context = context
        self._configs = configs
        self._config = config
        self._new_topic_id = new_topic_id

    async def restore(self, deleted: Collection[str]) -> None:
        """Load all topics from their znodes, and elect missing leaders.  Topics in `deleted`,
        whose deletion was noted, get no leaders."""
        names = await self._zookeeper.children(znodes.TOPICS)
        self._left_out.clear()
        self._context.set_topics([topic for topic, _ in await self._with_leaders(names, deleted)])

    async def adopt(self, names: Iterable[str], batch: RequestBatch) -> None:
        """Elect leaders for topics that another client created below /brokers/topics, and add them
        to the batch.  Apache Kafka's brokers create internal topics and auto-created ones
        themselves."""
        unknown = [name for name in names if name not in self._context.topics]
        for topic, new in await self._with_leaders(unknown):
            self._context.set_topic(topic)
            self._left_out.discard(topic.name)
            for is_new in (True, False):
                partitions = [p for p in topic.partitions if (p.partition in new) == is_new]
                batch.leads(topic, partitions, is_new=is_new)
            log.info("found topic %s with %d partition(s)", topic.name, len(topic.partitions))

    async def _with_leaders(
        self, names: Sequence[str], deleted: Collection[str] = ()
    ) -> list[tuple[TopicInfo, Collection[int]]]:
        """Read topics and elect missing leaders.  Return each readable topic, with those of its
        partitions that had no state before."""
        restored = await gather(
            [partial(self._restore_or_leave_out, name, name in deleted) for name in names]
        )
        changes: list[Op] = []
        readable: list[tuple[TopicInfo, Collection[int]]] = []
        for result in restored:
            if result is not None:
                topic, ops = result
                changes += await self._with_parents(topic.name, ops)
                created = {op.path for op in ops if isinstance(op, Create)}
                new = {
                    p.partition
                    for p in topic.partitions
                    if znodes.state_path(topic.name, p.partition) in created
                }
                readable.append((topic, new))
        await self._store.write(changes)
        return readable

    async def _restore_or_leave_out(
        self, name: str, is_deleted: bool
    ) -> tuple[TopicInfo, list[Op]] | None:
        try:
            return await self._restore(name, is_deleted=is_deleted)
        except NoNode:
            return None  # deleted meanwhile
        except UnreadableZnode as error:
            self._left_out.add(name)
            consequence = f"topic {name} is ignored and has no leaders"
            await self._unreadable.leave_out(error, consequence)
            return None

    async def _with_parents(self, topic: str, ops: Sequence[Op]) -> list[Op]:
        """Add the znodes above a new `state` that are missing, as for a partition that never had a
        leader."""
        if not any(isinstance(op, Create) for op in ops):
            return list(ops)
        partitions = znodes.partitions_path(topic)
        names = await self._store.children(partitions)
        there = set() if names is None else {partitions, *(f"{partitions}/{n}" for n in names)}
        complete: list[Op] = []
        for op in ops:
            if isinstance(op, Create):
                missing = [path for path in znodes.parents_of(op.path)[-2:] if path not in there]
                complete += map(Create, missing)
                there.update(missing)
            complete.append(op)
        return complete

    async def _restore(self, name: str, *, is_deleted: bool) -> tuple[TopicInfo, list[Op]]:
        found_topic = await self._store.find(znodes.topic_path(name))
        if found_topic is None:
            raise NoNode(znodes.topic_path(name))
        data, stat = found_topic
        assignment = znodes.decode_topic(name, data)
        ops: list[Op] = []
        topic_id = assignment.topic_id
        if topic_id is None:
            topic_id = self._new_topic_id()
            assignment = replace(assignment, topic_id=topic_id)
            data = znodes.encode_topic(assignment)
            ops.append(SetData(znodes.topic_path(name), data, stat.version))
        if is_deleted:
            topic, _ = rules.restore(name, assignment, {}, lambda _replicas, _partition: None)
            return topic, []
        paths = [partial(self._store.find, znodes.state_path(name, p)) for p in assignment.replicas]
        found = dict(zip(assignment.replicas, await gather(paths), strict=True))
        states = {
            p: znodes.decode_state(name, p, state[0], state[1].version)
            for p, state in found.items()
            if state is not None
        }
        config = await self._config_of(name, topic_id)
        brokers = self._context.brokers

        def state(replicas: Sequence[BrokerId], partition: int) -> LeaderAndIsr | None:
            znode = found[partition]
            if name in self._left_out:
                # The topic was unreadable until now.  Its states were changed by hand, so their
                # times do not show which brokers have restarted since.
                returned = Returned(frozenset(brokers), whole=frozenset(brokers))
            else:
                returned = returned_since(brokers, znode[1].mzxid) if znode else Returned()
            last = states.get(partition)
            decided = next_state(
                replicas,
                last,
                brokers,
                returned,
                self._context.epoch,
                unclean=config.unclean_leader_election_enable,
            )
            if last is not None and decided is not None:
                self._meters.unclean_elections += is_unclean(last.isr, decided)
            return decided

        topic, writes = rules.restore(name, assignment, states, state)
        return topic, ops + writes

    async def reconsider(
        self, touched: Collection[BrokerId], returned: Collection[BrokerId]
    ) -> Changes:
        """Reconsider the leaders of partitions on these brokers; return the changes."""

        def matters(partition: PartitionInfo) -> bool:
            return any(replica in touched for replica in partition.replicas)

        return await self._reconsider(
            [
                (topic, partitions)
                for topic in self._context.topics.values()
                if (partitions := [p for p in topic.partitions if matters(p)])
            ],
            returned,
        )

    async def reconsider_some(self, partitions: Iterable[TopicPartition]) -> Changes:
        """Reconsider the leaders of these partitions; return the changes."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        topics = self._context.topics
        return await self._reconsider(
            [
                (topics[name], [topics[name].partitions[n] for n in sorted(numbers)])
                for name, numbers in by_topic.items()
                if name in topics
            ],
            (),
        )

    async def _reconsider(
        self,
        found: Iterable[tuple[TopicInfo, Sequence[PartitionInfo]]],
        returned: Collection[BrokerId],
    ) -> Changes:
        context = self._context
        new_states: list[tuple[TopicInfo, PartitionInfo, LeaderAndIsr]] = []
        has_returned = Returned.of(context.brokers, returned)
        for topic, partitions in found:
            if topic.name in context.deletions:
                continue
            config: TopicConfig | None = None
            for p in partitions:
                last, online = state_of(p, context.epoch), context.online(topic.name, p)
                is_led = p.leader in online and p.leader not in returned
                if config is None and not is_led:
                    config = await self._config_of(topic.name, topic.id)
                if not online and len(p.replicas) == 1 and p.leader in context.brokers:
                    # Its disk failed or is full.  No other replica could lead, and this one may
                    # recover.
                    continue
                state = next_state(
                    p.replicas,
                    last,
                    online,
                    has_returned,
                    context.epoch,
                    unclean=not is_led
                    and config is not None
                    and config.unclean_leader_election_enable,
                )
                if state is not None:
                    new_states.append((topic, p, state))
        return await self.write(new_states)

    async def write(
        self, new_states: Iterable[tuple[TopicInfo, PartitionInfo, LeaderAndIsr]]
    ) -> Changes:
        """Write these states, and store them in the context; return the changes."""
        ops: list[Op] = []
        changed: dict[str, tuple[TopicInfo, list[PartitionInfo]]] = {}
        began_s = asyncio.get_running_loop().time()
        is_election = False
        for topic, before, state in new_states:
            is_election |= state.leader not in (before.leader, NO_BROKER)
            self._meters.unclean_elections += is_unclean(before.isr, state)
            path = znodes.state_path(topic.name, before.partition)
            ops.append(SetData(path, znodes.encode_state(state), before.partition_epoch))
            changed.setdefault(topic.name, (topic, []))[1].append(with_state(before, state))
        await self._store.write(ops)
        if is_election:
            took_s = asyncio.get_running_loop().time() - began_s
            self._meters.election_times_ms.add(1000 * took_s)
        for topic, partitions in changed.values():
            self._context.set_partitions(topic.name, partitions)
        return list(changed.values())

    async def hand_over(self, broker: BrokerId) -> tuple[Changes, list[TopicPartition]]:
        """Move leadership away from `broker`, which is about to stop, and remove it from every
        ISR. Return the changes, and the partitions that it still leads although a live replica
        could catch up."""
        context = self._context
        new_states: list[tuple[TopicInfo, PartitionInfo, LeaderAndIsr]] = []
        remaining: list[TopicPartition] = []
        for topic in context.topics.values():
            for p in topic.partitions:
                if broker not in p.isr or len(p.replicas) == 1 or topic.name in context.deletions:
                    continue
                staying = [
                    b for b in context.online(topic.name, p) if b not in context.shutting_down
                ]
                state = without(broker, p, staying, context.shutting_down, context.epoch)
                if state is not None:
                    new_states.append((topic, p, state))
                elif p.leader == broker and staying:
                    remaining.append(TopicPartition(topic.name, p.partition))
        return await self.write(new_states), remaining

    async def alter(
        self, broker: BrokerId, changes: Sequence[IsrChange], batch: RequestBatch
    ) -> list[LeaderAndIsr | KafkaError]:
        """Apply the changes that the leader `broker` proposes; return new states or errors."""
        return await gather([partial(self._alter, broker, change, batch) for change in changes])

    async def _alter(
        self, broker: BrokerId, change: IsrChange, batch: RequestBatch
    ) -> LeaderAndIsr | KafkaError:
        topic = self._context.topic_by_id(change.topic_id)
        if topic is None or topic.name in self._context.deletions:
            return KafkaError(ErrorCode.unknown_topic_id)
        try:
            state = validate_change(change, broker, topic, self._context)
        except KafkaError as error:
            return error
        now = topic.partitions[change.partition]
        if state.partition_epoch == now.partition_epoch:
            return state
        path = znodes.state_path(topic.name, change.partition)
        write = SetData(path, znodes.encode_state(state), now.partition_epoch)
        refused = await refusal(self._store.write([write]))
        if refused is not None:
            return refused
        info = with_state(now, state)
        self._context.set_partitions(topic.name, [info])
        batch.add_metadata(topic, [info])
        return state

    async def reread(self, partitions: Collection[TopicPartition], batch: RequestBatch) -> None:
        """Read states that their leaders have written.  Raises UnreadableZnode."""
        topics = self._context.topics
        known = [
            key
            for key in sorted(partitions)
            if key.topic in topics and key.partition < len(topics[key.topic].partitions)
        ]
        paths = [partial(self._store.find, znodes.state_path(*key)) for key in known]
        found = await until_connected(partial(gather, paths))
        for (name, number), znode in zip(known, found, strict=True):
            if znode is not None:
                state = znodes.decode_state(name, number, znode[0], znode[1].version)
                info = with_state(topics[name].partitions[number], state)
                self._context.set_partitions(name, [info])
                batch.add_metadata(topics[name], [info])

    async def _config_of(self, topic: str, topic_id: UUID) -> TopicConfig:
        """Return the config of a topic.  Raises UnreadableZnode."""
        await self._configs.learn({topic: topic_id})
        return TopicConfig.stored(self._configs.overrides_of(topic), self._config())
