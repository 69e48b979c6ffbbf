"""Calls of a group's members, in any version."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic
from tests.support.wire_client import WireClient, milliseconds

NEWEST_JOIN, NEWEST_SYNC, NEWEST_HEARTBEAT, NEWEST_LEAVE = 9, 5, 4, 5
NEWEST_COMMIT, NEWEST_FETCH = 9, 9
"""Newest versions that name topics by their names."""
FIRST_FETCH_OF_MANY = 8
FIRST_WITH_TOPIC_IDS = 10
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"


def subscription(*topics: str) -> bytes:
    """Return a consumer's subscription metadata, in version 0."""
    named = b"".join(len(t).to_bytes(2) + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4) + named + b"\xff\xff\xff\xff"


def join_fields(group: str, member_id: str = "", *topics: str, **fields: Any) -> dict[str, Any]:
    protocols = [{"name": PROTOCOL, "metadata": subscription(*topics)}]
    return {
        "group_id": group,
        "session_timeout": milliseconds(30_000),
        "rebalance_timeout": milliseconds(30_000),
        "member_id": member_id,
        "protocol_type": PROTOCOL_TYPE,
        "protocols": protocols,
    } | fields


def join(
    client: WireClient, group: str, member_id: str = "", version: int = NEWEST_JOIN, **fields: Any
) -> Any:
    """Join the group; join again with the assigned member id where that is required."""
    asked = join_fields(group, member_id, **fields)
    answer = client.call(ApiKey.JOIN_GROUP, version, **asked)
    if answer.error_code is ErrorCode.member_id_required:
        answer = client.call(ApiKey.JOIN_GROUP, version, **asked | {"member_id": answer.member_id})
    return answer


def join_both(
    one: WireClient, member_id: str, other: WireClient, group: str, **fields: Any
) -> tuple[Any, Any]:
    """Let a member of a stable group rejoin because another one joins; return both responses."""
    wanted = join_fields(group, **fields)
    asked = other.call(ApiKey.JOIN_GROUP, NEWEST_JOIN, **wanted)
    if asked.error_code is ErrorCode.member_id_required:
        wanted["member_id"] = asked.member_id
    ticket = other.send(ApiKey.JOIN_GROUP, NEWEST_JOIN, **wanted)
    first = one.call(ApiKey.JOIN_GROUP, NEWEST_JOIN, **join_fields(group, member_id))
    return first, other.receive(ApiKey.JOIN_GROUP, NEWEST_JOIN, ticket)


def sync(
    client: WireClient,
    group: str,
    joined: Any,
    assignments: Mapping[str, bytes],
    version: int = NEWEST_SYNC,
    **fields: Any,
) -> Any:
    default = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": getattr(joined, "protocol_type", None) or PROTOCOL_TYPE,
        "protocol_name": PROTOCOL,
        "assignments": [{"member_id": m, "assignment": a} for m, a in assignments.items()],
    }
    return client.call(ApiKey.SYNC_GROUP, version, **default | fields)


def stable(client: WireClient, group: str, *topics: str, **fields: Any) -> Any:
    """Make a stable group of one member; return its JoinGroup response."""
    protocols = [{"name": PROTOCOL, "metadata": subscription(*topics)}]
    joined = join(client, group, **{"protocols": protocols} | fields)
    assert joined.error_code is ErrorCode.none, joined.error_code
    synced = sync(client, group, joined, {joined.member_id: b"mine"})
    assert synced.error_code is ErrorCode.none, synced.error_code
    return joined


def heartbeat(
    client: WireClient, group: str, joined: Any, version: int = NEWEST_HEARTBEAT, **fields: Any
) -> ErrorCode:
    named = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    answer = client.call(ApiKey.HEARTBEAT, version, **{"group_id": group} | named | fields)
    code: ErrorCode = answer.error_code
    return code


def leave(client: WireClient, group: str, member_id: str) -> ErrorCode:
    members = [{"member_id": member_id}]
    answer = client.call(ApiKey.LEAVE_GROUP, NEWEST_LEAVE, group_id=group, members=members)
    code: ErrorCode = answer.members[0].error_code
    return code


def commit(
    client: WireClient,
    group: str,
    topic: Topic,
    offsets: Mapping[int, int],
    joined: Any = None,
    version: int = NEWEST_COMMIT,
    **fields: Any,
) -> dict[int, ErrorCode]:
    """Commit offsets; return the error code of each partition."""
    member = {
        "generation_id_or_member_epoch": -1 if joined is None else joined.generation_id,
        "member_id": "" if joined is None else joined.member_id,
        "retention_time": milliseconds(-1),
    }
    default = {"group_id": group, "topics": [commit_fields(version, topic, offsets)]}
    answer = client.call(ApiKey.OFFSET_COMMIT, version, **default | member | fields)
    return {p.partition_index: p.error_code for p in answer.topics[0].partitions}


def commit_fields(version: int, topic: Topic, offsets: Mapping[int, int]) -> dict[str, Any]:
    partitions = [
        {"partition_index": partition, "committed_offset": offset, "committed_metadata": "why"}
        for partition, offset in offsets.items()
    ]
    return named(version, topic) | {"partitions": partitions}


def named(version: int, topic: Topic) -> dict[str, Any]:
    return {"topic_id": topic.id} if version >= FIRST_WITH_TOPIC_IDS else {"name": topic.name}


def fetch(
    client: WireClient,
    group: str,
    topic: Topic | None,
    *partitions: int,
    version: int = NEWEST_FETCH,
    **fields: Any,
) -> Any:
    """Fetch offsets; return the response for the group."""
    asked = None
    if topic is not None:
        asked = [named(version, topic) | {"partition_indexes": partitions}]
    wanted = {"group_id": group, "topics": asked}
    if version < FIRST_FETCH_OF_MANY:
        return client.call(ApiKey.OFFSET_FETCH, version, **wanted | fields)
    (found,) = client.call(ApiKey.OFFSET_FETCH, version, groups=[wanted], **fields).groups
    return found


def offsets(
    client: WireClient, group: str, topic: Topic, *partitions: int, **fields: Any
) -> dict[int, int]:
    """Return the committed offset of each partition."""
    found = fetch(client, group, topic, *partitions, **fields)
    return {p.partition_index: p.committed_offset for p in found.topics[0].partitions}


@contextlib.contextmanager
def many(broker: Any, count: int) -> Any:
    """Yield `count` connections: one that waits to join cannot send other requests."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(WireClient(broker.address)) for _ in range(count)]
