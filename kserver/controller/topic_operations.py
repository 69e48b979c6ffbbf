"""Requests of clients to create, delete and extend topics.

`topics.py` has the rules, `topic_znodes.py` the writes.  Each item of a request has its own
result. (Kafka: ZkAdminManager, KafkaController.processTopicChange.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, TypeVar
from uuid import UUID

from kserver.cluster_config.config_manager import ConfigManager
from kserver.cluster_config.znode_store import error_of, gather, not_controller
from kserver.config.broker import BrokerConfig
from kserver.controller import topics as rules
from kserver.controller.channel import ChannelManager
from kserver.controller.context import ControllerContext
from kserver.controller.reassignment import is_moving
from kserver.controller.topic_deletion import TopicDeletionManager
from kserver.controller.topic_znodes import TopicZnodes
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo
from kserver.model import BrokerId
from kserver.world import World

T = TypeVar("T")

NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})

Charge: TypeAlias = Callable[[int], None]
"""Called with the number of partitions that an item would change; raises KafkaError to reject
it."""


class TopicOperations:
    """`act_on` runs an action that may find that this is no longer the controller."""

    def __init__(
        self,
        world: World,
        context: ControllerContext,
        znodes: TopicZnodes,
        channels: ChannelManager,
        deletions: TopicDeletionManager,
        configs: ConfigManager,
        config: Callable[[], BrokerConfig],
        broker_id: BrokerId,
        new_topic_id: Callable[[], UUID],
        act_on: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self._random = world.random
        self._disk = world.disk
        self._context = context
        self._znodes = znodes
        self._channels = channels
        self._deletions = deletions
        self._configs = configs
        self._config = config
        self._id = broker_id
        self._new_topic_id = new_topic_id
        self._act_on = act_on

    async def create(
        self, requests: Sequence[CreatableTopic], validate_only: bool, charge: Charge
    ) -> list[TopicInfo | KafkaError]:
        partitions = sum(rules.requested_partitions(r, self._config()) for r in requests)
        refused = rules.refused([r.name for r in requests], partitions)
        racks = self._context.racks
        names = set(self._context.topics)
        files = rules.FileBudget(self._id, self._disk.files_left())

        def plan(request: CreatableTopic) -> TopicInfo:
            topic = rules.create(
                request,
                names,
                racks,
                self._config(),
                topic_id=self._new_topic_id(),
                start=self._random.randrange(max(len(racks), 1)),
                shift=self._random.randrange(max(len(racks), 1)),
            )
            files.take(topic.name, topic.partitions)
            charge(len(topic.partitions))
            names.add(topic.name)
            return topic

        plans = [self._plan(refused, r.name, partial(plan, r)) for r in requests]
        if validate_only:
            return plans
        results = await self._apply(plans, self._znodes.create)
        batch = self._channels.new_batch()
        for topic in results:
            if isinstance(topic, TopicInfo):
                self._context.set_topic(replace(topic, config=NO_OVERRIDES))
                self._configs.created(topic)
                batch.leads(topic, topic.partitions, is_new=True)
        await self._channels.send_topics(batch)
        return results

    async def delete(self, names: Sequence[str], charge: Charge) -> list[KafkaError | None]:
        """Note topics for deletion, which is enough for a response: clients no longer see them."""
        context = self._context
        refused = rules.refused(names)

        def plan(name: str) -> TopicInfo:
            is_known = name not in context.deletions
            topic = rules.delete(context.topics.get(name) if is_known else None, self._config())
            charge(len(topic.partitions))
            return topic

        plans = [self._plan(refused, name, partial(plan, name)) for name in names]
        noted = await self._apply(plans, lambda topic: self._znodes.note_deletion(topic.name))
        self._deletions.noted(topic for topic in noted if isinstance(topic, TopicInfo))
        await self._act_on(self._deletions.advance)
        return [t if isinstance(t, KafkaError) else None for t in noted]

    async def grow(
        self, requests: Sequence[CreatablePartitions], validate_only: bool, charge: Charge
    ) -> list[KafkaError | None]:
        topics, racks = self._context.topics, self._context.racks
        added = sum(rules.added_partitions(r, topics.get(r.name)) for r in requests)
        refused = rules.refused([r.name for r in requests], added)
        files = rules.FileBudget(self._id, self._disk.files_left())

        def plan(request: CreatablePartitions) -> TopicInfo:
            if request.name in self._context.deletions:
                text = "The topic is queued for deletion."
                raise KafkaError(ErrorCode.invalid_topic_exception, text)
            before = topics.get(request.name)
            if before is not None and any(map(is_moving, before.partitions)):
                text = f"Partitions of topic '{request.name}' are being reassigned."
                raise KafkaError(ErrorCode.reassignment_in_progress, text)
            topic = rules.grow(request, before, racks)
            added = rules.added_partitions(request, before)
            files.take(topic.name, topic.partitions[-added:])
            charge(added)
            return topic

        grown = [self._plan(refused, r.name, partial(plan, r)) for r in requests]
        if not validate_only:
            grown = await self._apply(grown, self._znodes.grow)
            batch = self._channels.new_batch()
            for topic in grown:
                if isinstance(topic, TopicInfo):
                    first = len(topics[topic.name].partitions)
                    self._context.set_topic(topic)
                    batch.leads(topic, topic.partitions[first:], is_new=True)
            await self._channels.send_topics(batch)
        return [t if isinstance(t, KafkaError) else None for t in grown]

    def _plan(
        self, refused: Mapping[str, KafkaError], name: str, plan: Callable[[], T]
    ) -> T | KafkaError:
        if not self._context.is_active:
            return not_controller()
        if name in refused:
            return refused[name]
        try:
            return plan()
        except KafkaError as error:
            return error

    async def _apply(
        self, plans: Sequence[T | KafkaError], write: Callable[[T], Awaitable[None]]
    ) -> list[T | KafkaError]:
        """Write the plans; return those that were written, and errors for the others."""

        async def apply(plan: T | KafkaError) -> T | KafkaError:
            return plan if isinstance(plan, KafkaError) else await error_of(write(plan)) or plan

        return await gather([partial(apply, plan) for plan in plans])
