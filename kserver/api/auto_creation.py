"""Automatic creation of topics that a client names.

The controller creates them, which may be another broker, or none for a moment:

    the topic exists, created for another client or by another broker    the topic
    it exists, and the controller ignores it: a znode cannot be read     LEADER_NOT_AVAILABLE
    there is no controller, or it cannot be reached                      retry
    that is so for PATIENCE_S, or it does not respond                    UNKNOWN_TOPIC_OR_PARTITION
    anything else                                                        that error

(Kafka: AutoTopicCreationManager.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kserver.api.context import Parts
from kserver.controller.topics import CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo

PATIENCE_S = 3.0
"""How long to wait for a controller: the client's connection waits too, and the client retries."""
RETRY_S = 0.1
AWAY = frozenset({ErrorCode.not_controller, ErrorCode.broker_not_available})


def _nothing(_partitions: int) -> None:
    pass


async def create(
    new: CreatableTopic, parts: Parts, charge: Callable[[int], None] = _nothing
) -> TopicInfo:
    """Create a topic; return it as this broker knows it then.

    `charge` as for Controller.create_topics.  Raises KafkaError, with a code that clients retry
    where the topic is not known yet, and StorageError.
    """
    deadline_s = parts.loop.time() + PATIENCE_S
    while True:
        try:
            async with asyncio.timeout_at(deadline_s):
                return await _create(new, parts, charge)
        except OSError as error:
            text = f"the controller is unreachable: {str(error) or 'no response'}"
            failure = KafkaError(ErrorCode.not_controller, text)
        except KafkaError as error:
            failure = error
        topic_info = parts.metadata.current.topics.get(new.name)
        if topic_info is not None:
            return topic_info
        if failure.code is ErrorCode.topic_already_exists:
            raise KafkaError(ErrorCode.leader_not_available, str(failure)) from failure
        if failure.code not in AWAY:
            raise failure
        if parts.loop.time() >= deadline_s:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, str(failure)) from failure
        charge = _nothing  # already charged
        await asyncio.sleep(RETRY_S)


async def _create(new: CreatableTopic, parts: Parts, charge: Callable[[int], None]) -> TopicInfo:
    if parts.controller.is_active or parts.config().zookeeper_connect is None:
        (result,) = await parts.controller.create_topics([new], validate_only=False, charge=charge)
        if isinstance(result, KafkaError):
            raise result
        return result
    charge(max(new.partitions, 1))
    overrides = {key: value for key, value in new.config.items() if value is not None}
    return await parts.to_controller.create_topic(
        new.name, new.partitions, new.replication_factor, overrides
    )
