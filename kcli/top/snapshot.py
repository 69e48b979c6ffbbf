"""One snapshot of a cluster: every broker is asked once, all at the same time.

    Metadata                   brokers, leaders, in-sync replicas: from any broker
    DescribeQuorum             the controller, which KRaft omits from Metadata
    ListOffsets                end offsets of the partitions that a broker leads
    DescribeLogDirs            sizes of its replicas
    ListGroups, OffsetFetch    the groups that it coordinates, and their committed offsets

A broker that does not respond in time delays the snapshot by that time; its values are unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kcli.client import offsets
from kcli.client.admin import groups, log_dirs, quorum
from kcli.client.errors import ClientError
from kcli.command.command_runner import reason
from kcli.groups.group_queries import OF_CONSUMERS
from kcli.servers.reachability import ANSWER_S
from kserver.config.setting import INT_MAX
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import BrokerId, Offset, TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import LATEST

if TYPE_CHECKING:
    from kcli.client.cluster import Cluster, Node
    from kcli.client.group.group_descriptions import CommittedOffset
    from kcli.client.topic_metadata import PartitionMetadata, TopicMetadata

T = TypeVar("T")

PATIENCE_MS = 15_000
"""How long the first snapshot waits for a cluster that does not respond."""
RETRIES = 2
"""Retries of the metadata request before a later snapshot is given up."""
ENDS, SIZES, GROUPS = "ends of partitions", "sizes of replicas", "groups"
FAILURES = (ClientError, KafkaError, ProtocolError, OSError)
"""Errors of a request to a cluster."""


class TimedResponse(NamedTuple, Generic[T]):
    """A response, and its time in seconds of a monotonic clock."""

    at_s: float
    values: T


class GroupSnapshot(NamedTuple):
    """`state` is None if the broker does not report it, `committed` if it refuses."""

    state: str | None
    committed: Mapping[TopicPartition, Offset] | None


@dataclass
class BrokerResponses:
    """One broker's responses; None if it refused, did not respond, or was not asked."""

    ends: TimedResponse[Mapping[TopicPartition, Offset]] | None = None
    sizes: TimedResponse[Mapping[TopicPartition, int]] | None = None
    """Bytes of its replicas."""
    groups: TimedResponse[Mapping[str, GroupSnapshot]] | None = None
    is_silent: bool = False
    """Whether it does not respond at all."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reasons by request."""


@dataclass
class DashboardSnapshot:
    time_ms: int
    at_s: float
    controller: BrokerId | None
    nodes: Mapping[BrokerId, Node]
    """The present brokers of the cluster."""
    topics: Mapping[str, TopicMetadata]
    responses: Mapping[BrokerId, BrokerResponses]
    """The responses of all `nodes`."""

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
        for topic in self.topics.values():
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.partition), partition

    @cached_property
    def groups(self) -> Mapping[str, TimedResponse[GroupSnapshot]]:
        return {
            name: TimedResponse(responses.groups.at_s, group)
            for responses in self.responses.values()
            if responses.groups is not None
            for name, group in responses.groups.values.items()
        }

    @cached_property
    def has_all_groups(self) -> bool:
        return all(responses.groups is not None for responses in self.responses.values())

    def end(
        self, partition: TopicPartition, leader: BrokerId | None
    ) -> TimedResponse[Offset] | None:
        responses = None if leader is None else self.responses.get(leader)
        return None if responses is None else _one(responses.ends, partition)

    def size(self, partition: TopicPartition, broker: BrokerId | None) -> TimedResponse[int] | None:
        """Return the bytes of the replica on this broker."""
        responses = None if broker is None else self.responses.get(broker)
        return None if responses is None else _one(responses.sizes, partition)

    @property
    def refused(self) -> dict[str, str]:
        """Requests that brokers refused, and the reasons."""
        return {
            f"{what} of broker {broker}": why
            for broker, responses in sorted(self.responses.items())
            for what, why in responses.refused.items()
        }


def _one(
    response: TimedResponse[Mapping[TopicPartition, int]] | None, key: TopicPartition
) -> TimedResponse[int] | None:
    if response is None or (value := response.values.get(key)) is None:
        return None
    return TimedResponse(response.at_s, value)


class Selection(NamedTuple):
    """The selected topics and groups; of groups, only committed offsets of these topics."""

    topic: Callable[[str], bool]
    group: Callable[[str], bool]
    readers_only: bool
    """Leave out groups without committed offsets of these topics."""


async def take(cluster: Cluster, selection: Selection, *, patient: bool) -> DashboardSnapshot:
    """Take a snapshot. Raises ClientError, KafkaError, ProtocolError or OSError if no broker
    responds: after a few retries, or if `patient` only after PATIENCE_MS.
    """
    await _learn(cluster, INT_MAX if patient else RETRIES)
    now = DashboardSnapshot(
        round(time.time() * 1000),
        asyncio.get_running_loop().time(),
        cluster.controller,
        dict(cluster.nodes),
        {name: topic for name, topic in cluster.topics.items() if selection.topic(name)},
        {broker: BrokerResponses() for broker in cluster.nodes},
    )
    led: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for partition, metadata in now.partitions():
        if metadata.leader is not None:
            led[metadata.leader].append(partition)
    now.controller, *_ = await asyncio.gather(
        _controller(cluster),
        *(
            _ask(cluster, broker, now.responses[broker], led[broker], selection)
            for broker in now.nodes
        ),
    )
    return now


async def _learn(cluster: Cluster, retries: int) -> None:
    """Refresh metadata from the first broker that responds: after the connection timeout of one,
    the next one is tried.
    """
    deadline = cluster.deadline(PATIENCE_MS)
    await cluster.retry("listTopics", deadline, lambda: cluster.refresh(None), retries=retries)


async def _controller(cluster: Cluster) -> BrokerId | None:
    """Return the controller; None if unknown or unauthorized."""
    try:
        async with asyncio.timeout(ANSWER_S):
            peer = await cluster.peer()
            if ApiKey.DESCRIBE_QUORUM not in peer.versions:
                return cluster.controller
            return await quorum.leader(peer)
    except FAILURES:
        return None


async def _ask(
    cluster: Cluster,
    broker: BrokerId,
    responses: BrokerResponses,
    led: list[TopicPartition],
    selection: Selection,
) -> None:
    """Send all requests to one broker; each may fail independently of the others."""

    async def ask(what: str, asking: Awaitable[T]) -> TimedResponse[T] | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                values = await asking
        except OSError:
            unresponsive.append(what)
        except KafkaError as error:
            if not error.code.retriable:
                responses.refused[what] = reason(error)
        except (ClientError, ProtocolError) as error:
            responses.refused[what] = reason(error)
        else:
            return TimedResponse(asyncio.get_running_loop().time(), values)
        return None

    unresponsive: list[str] = []
    responses.ends, responses.sizes, responses.groups = await asyncio.gather(
        ask(ENDS, _ends(cluster, broker, led)),
        ask(SIZES, _sizes(cluster, broker, selection)),
        ask(GROUPS, _groups(cluster, broker, selection)),
    )
    # A broker that leads no partition is not asked for end offsets.
    requests = {ENDS, SIZES, GROUPS} if led else {SIZES, GROUPS}
    responses.is_silent = requests <= set(unresponsive)


async def _ends(
    cluster: Cluster, broker: BrokerId, led: list[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Return end offsets, without partitions that the broker does not lead."""
    results = await offsets.list_at(cluster, broker, dict.fromkeys(led, LATEST))
    return {
        p: listed_offset.offset
        for p, listed_offset in results.items()
        if not isinstance(listed_offset, KafkaError)
    }


async def _sizes(
    cluster: Cluster, broker: BrokerId, selection: Selection
) -> dict[TopicPartition, int]:
    directories = await log_dirs.describe_at(cluster, broker)
    if not directories:
        # The response of brokers before Kafka 3.0 without authorization.
        raise KafkaError(ErrorCode.cluster_authorization_failed)
    return {
        replica.partition: replica.size
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future and selection.topic(replica.partition.topic)
    }


async def _groups(
    cluster: Cluster, broker: BrokerId, selection: Selection
) -> dict[str, GroupSnapshot]:
    listed = {
        listing.group: listing
        for listing in await groups.listings_at(cluster, broker)
        if listing.protocol_type in OF_CONSUMERS and selection.group(listing.group)
    }
    committed = await groups.offsets_at(cluster, broker, listed) if listed else {}
    by_name = {
        name: GroupSnapshot(listing.state, _committed(committed.get(name), selection))
        for name, listing in listed.items()
    }
    return {
        n: group for n, group in by_name.items() if group.committed or not selection.readers_only
    }


def _committed(
    offsets: Mapping[TopicPartition, CommittedOffset | KafkaError] | KafkaError | None,
    selection: Selection,
) -> dict[TopicPartition, Offset] | None:
    if offsets is None or isinstance(offsets, KafkaError):
        return None
    return {
        partition: offset.offset
        for partition, offset in offsets.items()
        if not isinstance(offset, KafkaError) and selection.topic(partition.topic)
    }
