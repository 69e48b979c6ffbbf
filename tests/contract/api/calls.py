"""Calls that many of these tests make, in any version."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

FIRST_WITH_TOPIC_IDS = 13
"""First versions of Produce and of Fetch that name topics by id."""

UNKNOWN_TAGS = b"\x02\x70\x03abc\x71\x00"
"""Tagged fields 112, of three bytes, and 113, empty."""


def compact(data: bytes) -> bytes:
    """Encode a string or bytes of fewer than 127 bytes as flexible versions do."""
    return bytes((len(data) + 1,)) + data


def array(*entries: bytes) -> bytes:
    """Encode an array as flexible versions do."""
    return bytes((len(entries) + 1,)) + b"".join(entries)


class Topic(NamedTuple):
    name: str
    id: uuid.UUID


def topic_id(client: WireClient, name: str) -> uuid.UUID:
    answer = client.call(
        ApiKey.METADATA, 10, topics=[{"name": name}], allow_auto_topic_creation=False
    )
    found: uuid.UUID = answer.topics[0].topic_id
    return found


def node_id(client: WireClient) -> str:
    """Return the id of the only broker."""
    return str(client.call(ApiKey.METADATA, 1, topics=[]).brokers[0].node_id)


def told(client: WireClient, kind: int, name: str, key: str) -> Any:
    """Return one config from DescribeConfigs, with its synonyms, or None if it is missing."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    answer = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True)
    (result,) = answer.results
    assert result.error_code is ErrorCode.none, (result.error_code, result.error_message)
    return next(iter(result.configs), None)


def partition_count(client: WireClient, name: str) -> int | None:
    """Return the number of partitions, or None if the topic does not exist."""
    topics = [{"name": name}]
    answer = client.call(ApiKey.METADATA, 4, topics=topics, allow_auto_topic_creation=False)
    (found,) = answer.topics
    return None if found.error_code is not ErrorCode.none else len(found.partitions)


def batch(*values: bytes | None, timestamp: int = 1_000, **fields: Any) -> bytes:
    """Return a batch with one record per value, a millisecond apart; `fields` are those of
    encode_batch."""
    return encode_batch([(timestamp + n, None, v, ()) for n, v in enumerate(values)], **fields)


def produce_fields(
    version: int, topic: Topic, partitions: dict[int, bytes], *, acks: int = -1
) -> dict[str, Any]:
    named = {"topic_id": topic.id} if version >= FIRST_WITH_TOPIC_IDS else {"name": topic.name}
    data = [{"index": index, "records": records} for index, records in partitions.items()]
    return {
        "acks": acks,
        "timeout": milliseconds(10_000),
        "topic_data": [named | {"partition_data": data}],
    }


def produce_to(
    client: WireClient, version: int, topic: Topic, partitions: dict[int, bytes], *, acks: int = -1
) -> Any:
    """Produce to several partitions; return the partitions' responses by index."""
    answer = client.call(
        ApiKey.PRODUCE, version, **produce_fields(version, topic, partitions, acks=acks)
    )
    return {p.index: p for p in answer.responses[0].partition_responses}


def produce(
    client: WireClient, version: int, topic: Topic, records: bytes, *, acks: int = -1
) -> Any:
    """Produce to partition 0; return its response."""
    return produce_to(client, version, topic, {0: records}, acks=acks)[0]


def fetch_fields(
    version: int,
    topic: Topic,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields: Any,
) -> dict[str, Any]:
    named = {"topic_id": topic.id} if version >= FIRST_WITH_TOPIC_IDS else {"topic": topic.name}
    partitions = [
        {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": partition_max_bytes,
            "current_leader_epoch": current_leader_epoch,
            "last_fetched_epoch": last_fetched_epoch,
            "log_start_offset": -1,
        }
        for partition, offset in offsets.items()
    ]
    return {
        "replica_id": -1,
        "max_wait": milliseconds(max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "session_epoch": -1,
        "topics": [named | {"partitions": partitions}] if partitions else [],
    } | fields


def fetch_from(
    client: WireClient, version: int, topic: Topic, offsets: dict[int, int], **fields: Any
) -> Any:
    """Fetch from several partitions; return the partitions' responses by index."""
    answer = client.call(ApiKey.FETCH, version, **fetch_fields(version, topic, offsets, **fields))
    return {p.partition_index: p for p in answer.responses[0].partitions}


def fetch(client: WireClient, version: int, topic: Topic, offset: int, **fields: Any) -> Any:
    """Fetch from partition 0; return its response."""
    return fetch_from(client, version, topic, {0: offset}, **fields)[0]


Entity: TypeAlias = Sequence[tuple[str, str | None]]
"""Entity of a quota: types and names."""


def alter_quotas(
    client: WireClient,
    entity: Entity,
    version: int = 1,
    *,
    validate_only: bool = False,
    **bounds: float | None,
) -> Any:
    """Alter quotas; return the response for the entity. A bound of None removes the quota."""
    ops = [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
        for key, value in bounds.items()
    ]
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    entries = [{"entity": named, "ops": ops}]
    answer = client.call(
        ApiKey.ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=validate_only
    )
    (one,) = answer.entries
    return one


def described_quotas(client: WireClient, entity: Entity) -> dict[str, float] | None:
    """Return the entity's quotas, or None if it has none."""
    answer = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[])
    for entry in answer.entries:
        if sorted((e.entity_type, e.entity_name) for e in entry.entity) == sorted(entity):
            return {value.key: value.value for value in entry.values}
    return None


def coordinated(client: WireClient, group: str) -> str:
    """Wait until the group's coordinator is ready; return the group."""

    def found() -> bool:
        (one,) = client.call(
            ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[group], key_type=0
        ).coordinators
        asked = {"group_ids": [group], "include_authorized_operations": False}
        (told,) = client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, **asked).groups
        not_yet = (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)
        return one.error_code is ErrorCode.none and told.error_code not in not_yet

    until(found)
    return group


def consumer_heartbeat(
    client: WireClient,
    version: int,
    group: str,
    member_id: str,
    epoch: int,
    *,
    full: bool = False,
    **fields: Any,
) -> Any:
    """Send a heartbeat and return the response.

    A member that joins, or sends all fields (`full`), also sends its rebalance timeout.
    """
    says_all = full or epoch == 0
    given: dict[str, Any] = {"topic_partitions": ()} if says_all else {}
    return client.call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        version,
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout=milliseconds(30_000 if says_all else -1),
        **given | fields,
    )
