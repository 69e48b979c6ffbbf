"""FindCoordinator (key 10): v0-v6.

Behaviour:
- Returns the leader of the partition that a group or transactional id belongs to, in
  __consumer_offsets or __transaction_state.  The topic is created at the first request, if there
  are as many brokers as it is to have replicas.

Errors: COORDINATOR_NOT_AVAILABLE (no leader, or the topic cannot be created), INVALID_REQUEST (an
unknown key type, a key that no record can hold).

Versions:
- v1 key types (0 group, 1 transaction); v3 flexible; v4 many keys (KIP-699); v6 share groups (2)
"""

from __future__ import annotations

import logging
from typing import Any

from kserver.api import auto_creation
from kserver.api.context import Context
from kserver.controller.topics import CreatableTopic
from kserver.coordinator.topics import coordinator_topic, partition_of
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.metadata import TopicInfo
from kserver.model import CONSUMER_OFFSETS, NO_BROKER, TRANSACTION_STATE
from kserver.wire.versions import reply_to

log = logging.getLogger(__name__)

KEY, VERSIONS = 10, range(0, 7)

TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
"""Internal topic by key type."""
FIRST_WITH_MANY_KEYS = 4


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    await context.cluster_metadata()
    has_many = context.version >= FIRST_WITH_MANY_KEYS
    keys = request.coordinator_keys if has_many else [request.key]
    topic = TOPICS.get(getattr(request, "key_type", 0))
    coordinators = [await _find(key, topic, context) for key in keys]
    if has_many:
        return reply(
            coordinators=[
                reply.coordinators(key=key, **coordinator)
                for key, coordinator in zip(keys, coordinators, strict=True)
            ]
        )
    (coordinator,) = coordinators
    return reply(**{"error_message": "NONE"} | coordinator)


async def _find(key: str, topic: str | None, context: Context) -> dict[str, Any]:
    """Return the response fields of a key."""
    try:
        if topic is None:
            raise KafkaError(ErrorCode.invalid_request, "unknown coordinator type")
        info = await find_or_create_topic(topic, context)
        leader = info.partitions[partition_of(key, len(info.partitions))].leader
        broker = context.parts.metadata.current.brokers.get(leader)
        listener = context.session.endpoint.listener
        endpoint = None if broker is None else broker.endpoints.get(listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.coordinator_not_available)
    except KafkaError as error:
        return {
            "error_code": error.code,
            "error_message": error.message or None,
            "node_id": NO_BROKER,
            "host": "",
            "port": -1,
        }
    return {
        "error_code": ErrorCode.none,
        "node_id": leader,
        "host": endpoint.host,
        "port": endpoint.port,
    }


async def find_or_create_topic(name: str, context: Context) -> TopicInfo:
    parts = context.parts
    topic = parts.metadata.current.topics.get(name)
    if topic is not None:
        return topic
    internal = coordinator_topic(name, parts.config())
    new = CreatableTopic(
        name, internal.partitions, internal.replication_factor, config=internal.config
    )
    try:
        return await auto_creation.create(new, parts)
    except (KafkaError, StorageError) as error:
        log.error("creating topic %s failed: %s", name, error)
        text = f"{name} does not exist yet"
        raise KafkaError(ErrorCode.coordinator_not_available, text) from error
