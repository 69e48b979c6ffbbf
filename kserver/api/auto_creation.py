"""Topics that are made because a client asked for them (Kafka: AutoTopicCreationManager)."""

from __future__ import annotations

from collections.abc import Callable

from kserver.api.context import Parts
from kserver.controller.topics import CreatableTopic
from kserver.errors import KafkaError
from kserver.metadata import TopicInfo


def _nothing(_partitions: int) -> None:
    pass


async def create(
    new: CreatableTopic, parts: Parts, charge: Callable[[int], None] = _nothing
) -> TopicInfo:
    """By the controller, which may be another broker; `charge` as for Controller.create_topics.
    KafkaError."""
    if parts.controller.is_active or parts.config().zookeeper_connect is None:
        (made,) = await parts.controller.create_topics([new], validate_only=False, charge=charge)
        if isinstance(made, KafkaError):
            raise made
        return made
    charge(max(new.partitions, 1))
    overrides = {key: value for key, value in new.config.items() if value is not None}
    return await parts.to_controller.create_topic(
        new.name, new.partitions, new.replication_factor, overrides
    )
