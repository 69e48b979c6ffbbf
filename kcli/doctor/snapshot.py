"""The state of a cluster as it reports it, and as it appears from this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kcli.client.admin.descriptions import (
    ConfigEntry,
    LogDirDescription,
    Reassignment,
    ResourceType,
    TopicDescription,
)
from kcli.client.cluster import addresses_of
from kcli.client.errors import ClientError
from kcli.client.offsets import READ_COMMITTED
from kcli.command.command_runner import reason
from kcli.servers.reachability import BrokerUnreachable, unreachable, versions_at
from kserver.errors import KafkaError, ProtocolError
from kserver.model import BrokerId, Offset, TopicPartition
from kserver.wire.special_offsets import LATEST, MAX_TIMESTAMP

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.cluster import Node

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})

Configs = Mapping[str, ConfigEntry]


class TransactionSummary(NamedTuple):
    transactional_id: str
    state: str
    open_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass
class GroupProgress:
    """Committed offsets of a group that has members, at two times, and its states."""

    state: str
    members: int
    before: Mapping[TopicPartition, Offset]
    after: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    later_state: str = ""


@dataclass
class ClusterSnapshot:
    now_ms: int
    brokers: Mapping[BrokerId, Node]
    bootstrap: Mapping[str, str] = field(default_factory=dict)
    """Why an address of --bootstrap-server cannot be reached."""
    unreachable: Mapping[BrokerId, str] = field(default_factory=dict)
    """Why no broker responds at the address that a broker advertises."""
    api_versions: Mapping[BrokerId, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    broker_configs: Mapping[BrokerId, Configs] = field(default_factory=dict)
    topic_configs: Mapping[str, Configs] = field(default_factory=dict)
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    log_dirs: Mapping[BrokerId, list[LogDirDescription] | KafkaError] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, Reassignment] = field(default_factory=dict)
    ends: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    stable_ends: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    newest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The greatest timestamp of any record."""
    groups: Mapping[str, GroupProgress] = field(default_factory=dict)
    transactions: tuple[TransactionSummary, ...] = ()
    refusals: list[str] = field(default_factory=list)
    """Requests that the cluster refused, each with the reason."""


async def take(
    admin: Admin, bootstrap: Sequence[str], now_ms: int, watch_s: float
) -> ClusterSnapshot:
    """Take a snapshot; groups that lag are described again after `watch_s`. Raises ClientError and
    KafkaError if the cluster can be reached but reports nothing at all.
    """
    addresses = addresses_of(bootstrap)
    whys = await asyncio.gather(*(unreachable(host, port) for host, port in addresses))
    closed = {
        f"{host}:{port}": why for (host, port), why in zip(addresses, whys, strict=True) if why
    }
    if len(closed) == len(addresses):
        return ClusterSnapshot(now_ms, {}, closed)
    nodes = {node.id: node for node in await admin.nodes()}
    snapshot = ClusterSnapshot(now_ms, nodes, closed)
    await _look_at_addresses(admin, snapshot)
    reached = [broker for broker in nodes if broker not in snapshot.unreachable]
    await _attempt(snapshot, "topics", _ask_for_topics(admin, snapshot))
    # Concurrently: a broker that cannot be reached costs each of them its timeout.
    await asyncio.gather(
        _attempt(snapshot, "settings", _ask_for_settings(admin, snapshot, reached)),
        _attempt(snapshot, "log directories", _ask_for_log_dirs(admin, snapshot, reached)),
        _attempt(snapshot, "reassignments", _ask_for_reassignments(admin, snapshot)),
        _attempt(snapshot, "transactions", _ask_for_transactions(admin, snapshot)),
        _attempt(snapshot, "offsets", _ask_for_offsets(admin, snapshot)),
    )
    await _attempt(snapshot, "groups", _ask_for_groups(admin, snapshot, watch_s))
    snapshot.refusals.sort()
    return snapshot


async def _attempt(
    snapshot: ClusterSnapshot, what: str, asking: Coroutine[None, None, None]
) -> None:
    """Await a request; if it is refused, note that, so that the other requests go on."""
    try:
        await asking
    except (ClientError, KafkaError, ProtocolError, OSError) as error:
        snapshot.refusals.append(f"{what}: {reason(error)}")


async def _look_at_addresses(admin: Admin, snapshot: ClusterSnapshot) -> None:
    async def look(node: Node) -> None:
        try:
            versions[node.id] = await versions_at(admin, node)
        except BrokerUnreachable as error:
            silent[node.id] = str(error)

    silent: dict[BrokerId, str] = {}
    versions: dict[BrokerId, Mapping[int, tuple[int, int]]] = {}
    await asyncio.gather(*map(look, snapshot.brokers.values()))
    snapshot.unreachable, snapshot.api_versions = silent, versions


async def _ask_for_topics(admin: Admin, snapshot: ClusterSnapshot) -> None:
    described = await admin.describe_topics([topic.name for topic in await admin.list_topics()])
    snapshot.topics = {n: d for n, d in described.items() if not isinstance(d, KafkaError)}


async def _ask_for_settings(
    admin: Admin, snapshot: ClusterSnapshot, reached: Iterable[BrokerId]
) -> None:
    resources = [(ResourceType.BROKER, str(broker)) for broker in reached]
    resources += [(ResourceType.TOPIC, topic) for topic in snapshot.topics]
    answers = await admin.describe_configs(resources)
    configs = {
        (type, name): {entry.name: entry for entry in entries}
        for (type, name), entries in answers.items()
        if not isinstance(entries, KafkaError)
    }
    snapshot.broker_configs = {
        int(n): c for (t, n), c in configs.items() if t is ResourceType.BROKER
    }
    snapshot.topic_configs = {n: c for (t, n), c in configs.items() if t is ResourceType.TOPIC}


async def _ask_for_log_dirs(
    admin: Admin, snapshot: ClusterSnapshot, reached: Iterable[BrokerId]
) -> None:
    snapshot.log_dirs = await admin.describe_log_dirs(reached)


async def _ask_for_reassignments(admin: Admin, snapshot: ClusterSnapshot) -> None:
    snapshot.reassignments = await admin.list_reassignments()


async def _ask_for_offsets(admin: Admin, snapshot: ClusterSnapshot) -> None:
    led = [
        TopicPartition(topic.name, partition.partition)
        for topic in snapshot.topics.values()
        for partition in topic.partitions
        if partition.leader is not None and partition.leader not in snapshot.unreachable
    ]
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST))
    stable = await admin.list_offsets(dict.fromkeys(led, LATEST), isolation=READ_COMMITTED)
    newest = await admin.list_offsets(dict.fromkeys(led, MAX_TIMESTAMP))
    snapshot.ends = {p: o.offset for p, o in ends.items() if not isinstance(o, KafkaError)}
    snapshot.stable_ends = {p: o.offset for p, o in stable.items() if not isinstance(o, KafkaError)}
    snapshot.newest_ms = {
        p: o.timestamp
        for p, o in newest.items()
        if not isinstance(o, KafkaError) and o.timestamp >= 0
    }


async def _ask_for_groups(admin: Admin, snapshot: ClusterSnapshot, watch_s: float) -> None:
    """Collect the groups with members; twice if one of them lags, or is between two generations."""
    names = [listing.group for listing in await admin.groups.listings()]
    described = await admin.groups.describe(names)
    snapshot.groups = groups = {
        name: GroupProgress(group.state, len(group.members), {})
        for name, group in described.items()
        if not isinstance(group, KafkaError) and (group.members or group.state in REBALANCING)
    }
    if not groups:
        return
    for name, committed in (await _committed(admin, groups)).items():
        groups[name].before = groups[name].after = committed
    if not any(lags(snapshot, group) or group.state in REBALANCING for group in groups.values()):
        return
    await asyncio.sleep(watch_s)
    for name, committed in (await _committed(admin, groups)).items():
        groups[name].after = committed
    for name, group in (await admin.groups.describe(groups)).items():
        if not isinstance(group, KafkaError):
            groups[name].later_state = group.state


async def _committed(
    admin: Admin, groups: Iterable[str]
) -> dict[str, dict[TopicPartition, Offset]]:
    offsets = await admin.groups.offsets(dict.fromkeys(groups))
    return {
        name: {p: c.offset for p, c in offsets_or_error.items() if not isinstance(c, KafkaError)}
        for name, offsets_or_error in offsets.items()
        if not isinstance(offsets_or_error, KafkaError)
    }


def lags(snapshot: ClusterSnapshot, group: GroupProgress) -> dict[TopicPartition, int]:
    """Return the partitions that had more records than the group had committed at first, and how
    many more.
    """
    return {
        partition: snapshot.ends[partition] - offset
        for partition, offset in sorted(group.before.items())
        if snapshot.ends.get(partition, 0) > offset
    }


async def _ask_for_transactions(admin: Admin, snapshot: ClusterSnapshot) -> None:
    listed = await admin.transactions.listings()
    unfinished = [listing.transactional_id for listing in listed if listing.state not in ENDED]
    snapshot.transactions = tuple(
        TransactionSummary(
            name,
            description.state,
            snapshot.now_ms - description.started_at,
            description.timeout_ms,
            description.partitions,
        )
        for name, description in (await admin.transactions.describe(unfinished)).items()
        if not isinstance(description, KafkaError) and description.started_at is not None
    )
