"""Metadata (key 3): v0-v13.

Behaviour:
- Brokers are always included, with their addresses on the listener of the connection: librdkafka
  takes a response with topics but no brokers for an empty cluster.  A broker that does not know the
  others yet ends the connection after a second.
- No topics means all of them (v0: an empty list, v1+: null; v1+ empty list: none).
- A missing topic is created if `auto.create.topics.enable` is on and the client allows it (v4); the
  response has its leader, where Apache's brokers return LEADER_NOT_AVAILABLE first.  A client above
  its controller_mutation_rate is throttled (KIP-599).
- A broker whose connection just broke is not returned as a leader for a moment: clients may retry a
  dead leader only after a second.
- An invalid name is refused with INVALID_TOPIC_EXCEPTION and never created.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE,
INVALID_REQUEST, and the errors of creating a topic.

Versions:
- v1 rack, controller, is_internal; v2 cluster id; v4 allow_auto_topic_creation; v5 offline
  replicas; v7 leader epoch; v8-v10 cluster's, v8+ topics' authorized operations; v9 flexible
- v10 topic ids returned; v12 topics requested by id; v13 an error for the whole response
"""

from __future__ import annotations

from typing import Any

from kserver.api import auto_creation
from kserver.api.context import Context
from kserver.api.response_fields import (
    CLUSTER_OPERATIONS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
    state_of,
)
from kserver.api.throttling import Mutations
from kserver.controller.topics import CreatableTopic
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.metadata import ClusterMetadata, TopicInfo, check_topic_name
from kserver.model import INTERNAL_TOPICS
from kserver.wire.versions import reply_to

KEY, VERSIONS = 3, range(0, 14)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    await context.cluster_metadata()
    mutations = Mutations(context, strict=False)
    topics = request.topics
    if topics is None or (context.version == 0 and not topics):
        results: list[TopicInfo | tuple[Any, KafkaError]] = list(
            context.parts.metadata.current.topics.values()
        )
    else:
        # A topic named twice gets one result: else a short request could get a huge response.
        queries = {(topic.name, getattr(topic, "topic_id", None)): topic for topic in topics}
        results = await _find(queries.values(), request, context, mutations)
    image = context.parts.metadata.current
    wants_topic_operations = getattr(request, "include_topic_authorized_operations", False)
    wants_cluster_operations = getattr(request, "include_cluster_authorized_operations", False)
    listener = context.session.endpoint.listener
    response = reply(
        brokers=[
            reply.brokers(node_id=b.id, host=e.host, port=e.port, rack=b.rack)
            for b in image.brokers.values()
            if (e := b.endpoints.get(listener)) is not None
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if wants_cluster_operations
        else NOT_REQUESTED,
        topics=[
            _topic(reply.topics, result, image, wants_topic_operations, context)
            if isinstance(result, TopicInfo)
            else reply.topics(
                error_code=result[1].code,
                name=_name(result[0], context.version),
                topic_id=getattr(result[0], "topic_id", None),
                topic_authorized_operations=NOT_REQUESTED,
            )
            for result in results
        ],
    )
    return mutations.throttled(response)


def _name(topic: Any, version: int) -> str | None:
    # The name became nullable in v12, with topics requested by id.
    return topic.name if version >= 12 else topic.name or ""


async def _find(
    topics: Any, request: Any, context: Context, mutations: Mutations
) -> list[TopicInfo | tuple[Any, KafkaError]]:
    image = context.parts.metadata.current
    may_create = context.parts.config().auto_create_topics_enable and getattr(
        request, "allow_auto_topic_creation", True
    )
    results: list[TopicInfo | tuple[Any, KafkaError]] = []
    for topic in topics:
        try:
            results.append(await _find_one(topic, image, may_create, context, mutations))
        except KafkaError as error:
            results.append((topic, error))
        except StorageError as error:
            results.append((topic, KafkaError(ErrorCode.kafka_storage_error, str(error))))
    return results


async def _find_one(
    query: Any,
    image: ClusterMetadata,
    may_create: bool,
    context: Context,
    mutations: Mutations,
) -> TopicInfo:
    if query.name is None:
        topic = image.topic_by_id(query.topic_id) if query.topic_id else None
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        return topic
    topic = image.topics.get(query.name)
    if topic is not None:
        return topic
    check_topic_name(query.name)
    if not may_create or query.name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    return await auto_creation.create(CreatableTopic(query.name), context.parts, mutations.charge)


def _topic(
    shape: Any, topic: TopicInfo, image: ClusterMetadata, wants_operations: bool, context: Context
) -> Any:
    lost = context.parts.replicas.lost_leaders
    return shape(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS if wants_operations else NOT_REQUESTED,
        partitions=[
            shape.partitions(**state_of(topic.name, p, image, context, lost))
            for p in topic.partitions
        ],
    )
