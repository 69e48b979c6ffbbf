"""Groups: listed, described and changed through their coordinators; `admin.groups`.

    async with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        for group in await admin.groups.listings():
            print(group.group, group.state)

As with the rest of Admin, a call takes at most default.api.timeout.ms, and its result holds for
each item either its value or the KafkaError that refused it. With `Blocking`, use `run(lambda
admin: admin.groups.listings())`.

    listings         ListGroups (key 16), of every broker; listings_at, of one
    describe         ConsumerGroupDescribe (69), or DescribeGroups (15) for classic groups
    offsets, commit  OffsetFetch (9), OffsetCommit (8); offsets_at, of groups of one broker
    delete           DeleteGroups (42)
    delete_offsets   OffsetDelete (47)
    remove_members   LeaveGroup (13)
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from kcli.client import arguments
from kcli.client.admin.descriptions import CoordinatorType
from kcli.client.cluster import Cluster, Node
from kcli.client.config import AdminConfig
from kcli.client.coordinators import of_coordinators
from kcli.client.errors import refusal_of
from kcli.client.group.group_descriptions import (
    CLASSIC,
    CONSUMER,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    MemberToRemove,
)
from kcli.client.group.group_protocol import PROTOCOL_TYPE, read_assignment
from kcli.client.offsets import missing_from_response
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, Offset, TopicPartition
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

T = TypeVar("T")


# First versions of ListGroups with states (KIP-518) and types (KIP-848).
BY_STATE = 4
BY_TYPE = 5
# First versions of OffsetFetch with null for all partitions, and with several groups (KIP-709).
ALL_PARTITIONS = 2
MANY_GROUPS = 8
# Last version of OffsetCommit and OffsetFetch with topic names instead of ids.
BY_NAME = 9
# First version of LeaveGroup with several members (KIP-345).
MANY_MEMBERS = 3

_NOT_BY_KIP_848 = frozenset({ErrorCode.group_id_not_found, ErrorCode.unsupported_version})
_PASSING = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.unstable_offset_commit,
    }
)
_GROUPS_OF_CONSUMERS = frozenset({"", PROTOCOL_TYPE})
_MEMBER_TYPES = {0: False, 1: True}
_REASON = "member was removed by an admin"

Partitions = Collection[TopicPartition]


class Groups:
    def __init__(self, cluster: Cluster, config: AdminConfig) -> None:
        self._cluster = cluster
        self._config = config

    async def listings(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Return the groups of all brokers, in the order of their responses; of these states and
        types, or all.

        Raises KafkaError if a broker is too old to filter by them, or refuses.
        """

        async def attempt() -> list[GroupListing]:
            # Look up the brokers each time: one of them may have left since the last attempt.
            await self._cluster.refresh(())
            responses = await asyncio.gather(
                *(
                    listings_at(self._cluster, broker, states, types)
                    for broker in sorted(self._cluster.nodes)
                ),
                return_exceptions=True,
            )
            listings: dict[str, GroupListing] = {}
            for response in responses:
                if isinstance(response, BaseException):
                    raise response
                listings |= {group.group: group for group in response}
            return [*listings.values()]

        return await self._cluster.retry("listGroups", self._deadline(), attempt)

    async def describe(self, groups: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups. Assignments are omitted unless the members are consumers, because only
        the members can decode them. Brokers older than 4.0 describe a group that does not exist as
        Dead.
        """

        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, GroupDescription | KafkaError]:
            descriptions: dict[str, GroupDescription | KafkaError] = {}
            if ApiKey.CONSUMER_GROUP_DESCRIBE in peer.versions:
                new = versions.request(
                    ApiKey.CONSUMER_GROUP_DESCRIBE, peer.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
                )
                response = await peer.call(new(group_ids=tuple(names)))
                descriptions = {
                    group.group_id: refusal_of(group) or _description_of(group, coordinator)
                    for group in response.groups
                    if group.error_code not in _NOT_BY_KIP_848
                }
            if classic := tuple(name for name in names if name not in descriptions):
                new = versions.request(ApiKey.DESCRIBE_GROUPS, peer.version(ApiKey.DESCRIBE_GROUPS))
                response = await peer.call(new(groups=classic))
                for group in response.groups:
                    descriptions[group.group_id] = refusal_of(group) or _classic(group, coordinator)
            return descriptions

        return await self._ask_coordinators("describeConsumerGroups", groups, ask)

    async def offsets(
        self,
        groups: Iterable[str] | Mapping[str, Partitions | None],
        *,
        require_stable: bool = False,
    ) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
        """Return each group's committed offsets: of all partitions, or of those that a mapping
        names; partitions without one are left out. `require_stable` waits for open transactions
        (KIP-447).
        """
        if not isinstance(groups, Mapping):
            groups = dict.fromkeys(arguments.names("groups", groups))
        by_group = groups

        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
            return await _fetch_offsets(
                peer, {name: by_group[name] for name in names}, require_stable
            )

        return await self._ask_coordinators("listConsumerGroupOffsets", by_group, ask)

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, Offset | CommittedOffset]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets instead of the members; UNKNOWN_MEMBER_ID while the group has any."""
        to_commit = arguments.committed(offsets)

        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, dict[TopicPartition, KafkaError | None] | KafkaError]:
            new = versions.request(
                ApiKey.OFFSET_COMMIT, peer.version(ApiKey.OFFSET_COMMIT, BY_NAME)
            )
            topics: dict[str, list[Any]] = defaultdict(list)
            for (topic, partition), committed in to_commit.items():
                topics[topic].append(
                    new.topics.partitions(
                        partition_index=partition,
                        committed_offset=committed.offset,
                        committed_leader_epoch=(
                            -1 if committed.leader_epoch is None else committed.leader_epoch
                        ),
                        committed_metadata=committed.metadata,
                    )
                )
            topic_requests = [new.topics(name=name, partitions=of) for name, of in topics.items()]
            return {
                group: _of_partitions(await peer.call(new(group_id=group, topics=topic_requests)))
            }

        if not offsets:
            return {}
        result = (await self._ask_coordinators("alterConsumerGroupOffsets", [group], ask))[group]
        if isinstance(result, KafkaError):
            return dict.fromkeys(offsets, result)
        return {partition: result.get(partition, missing_from_response()) for partition in offsets}

    async def delete(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups; NON_EMPTY_GROUP for one that has members."""

        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, KafkaError | None]:
            new = versions.request(ApiKey.DELETE_GROUPS, peer.version(ApiKey.DELETE_GROUPS))
            response = await peer.call(new(groups_names=tuple(names)))
            return {result.group_id: refusal_of(result) for result in response.results}

        return await self._ask_coordinators("deleteConsumerGroups", groups, ask)

    async def delete_offsets(
        self, group: str, partitions: Partitions
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets. Raises errors of the whole group, such as GROUP_ID_NOT_FOUND;
        partitions of subscribed topics are refused with GROUP_SUBSCRIBED_TO_TOPIC (KIP-496).
        """

        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, dict[TopicPartition, KafkaError | None] | KafkaError]:
            new = versions.request(ApiKey.OFFSET_DELETE, peer.version(ApiKey.OFFSET_DELETE))
            topic_requests = [
                new.topics(
                    name=topic,
                    partitions=[new.topics.partitions(partition_index=number) for number in of],
                )
                for topic, of in _by_topic(partitions).items()
            ]
            response = await peer.call(new(group_id=group, topics=topic_requests))
            return {group: refusal_of(response) or _of_partitions(response)}

        arguments.partitions(partitions)
        result = (await self._ask_coordinators("deleteConsumerGroupOffsets", [group], ask))[group]
        if isinstance(result, KafkaError):
            raise result
        return {
            partition: result.get(partition, missing_from_response()) for partition in partitions
        }

    async def remove_members(
        self, group: str, members: Collection[MemberToRemove] | None = None
    ) -> dict[MemberToRemove, KafkaError | None]:
        """Remove these members of a classic group, or all of them. Raises errors of the whole
        group.
        """
        if members is None:
            description = (await self.describe([group]))[group]
            if isinstance(description, KafkaError):
                raise description
            members = [
                # A static member keeps its instance id, but not its member id, when it rejoins.
                MemberToRemove(instance_id=member.instance_id)
                if member.instance_id is not None
                else MemberToRemove(member.id)
                for member in description.members
            ]
        unique_members = tuple(dict.fromkeys(members))

        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, dict[MemberToRemove, KafkaError | None] | KafkaError]:
            version = peer.version(ApiKey.LEAVE_GROUP)
            new = versions.request(ApiKey.LEAVE_GROUP, version)
            if version < MANY_MEMBERS:
                return {group: await _remove_singly(peer, new, group, unique_members)}
            member_requests = [
                new.members(
                    member_id=member.id, group_instance_id=member.instance_id, reason=_REASON
                )
                for member in unique_members
            ]
            response = await peer.call(new(group_id=group, members=member_requests))
            if (refusal := refusal_of(response)) is not None:
                return {group: refusal}
            by_member = {
                (result.group_instance_id or result.member_id): result
                for result in response.members
            }
            return {
                group: {
                    member: refusal_of(by_member[key])
                    if key in by_member
                    else missing_from_response()
                    for member in unique_members
                    for key in [member.instance_id or member.id]
                }
            }

        if not unique_members:
            return {}
        removals = (await self._ask_coordinators("leaveGroup", [group], ask))[group]
        if isinstance(removals, KafkaError):
            raise removals
        return removals

    def _deadline(self) -> float:
        return self._cluster.deadline(self._config.default_api_timeout_ms)

    async def _ask_coordinators(
        self,
        call: str,
        groups: Iterable[str],
        ask: Callable[[Peer, Node, list[str]], Awaitable[dict[str, T | KafkaError]]],
    ) -> dict[str, T | KafkaError]:
        names = list(dict.fromkeys(arguments.names("groups", groups)))
        return await of_coordinators(
            self._cluster, call, names, CoordinatorType.GROUP, self._deadline(), ask
        )


async def listings_at(
    cluster: Cluster,
    broker: BrokerId,
    states: Collection[str] = (),
    types: Collection[str] = (),
) -> list[GroupListing]:
    """Return the groups that one broker coordinates, without retries. Raises KafkaError if it
    refuses or is too old to filter, OSError if it does not respond.
    """
    peer = await cluster.peer(broker)
    version = peer.version(ApiKey.LIST_GROUPS)
    if (states and version < BY_STATE) or (types and version < BY_TYPE):
        choice = "state" if version < BY_STATE else "type"
        raise KafkaError(ErrorCode.unsupported_version, f"{peer} cannot choose groups by {choice}")
    new = versions.request(ApiKey.LIST_GROUPS, version)
    response = await peer.call(new(states_filter=tuple(states), types_filter=tuple(types)))
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code)
    return [
        GroupListing(
            group.group_id,
            group.protocol_type,
            getattr(group, "group_state", None) or None,
            (getattr(group, "group_type", None) or "").capitalize() or None,
        )
        for group in response.groups
    ]


async def offsets_at(
    cluster: Cluster, broker: BrokerId, groups: Iterable[str]
) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
    """Return the committed offsets, of all partitions, of groups that this broker coordinates,
    without retries. Raises OSError if it does not respond.
    """
    return await _fetch_offsets(await cluster.peer(broker), dict.fromkeys(groups), False)


async def _fetch_offsets(
    peer: Peer, by_group: Mapping[str, Partitions | None], require_stable: bool
) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
    """Fetch each group's committed offsets from its coordinator."""
    version = peer.version(ApiKey.OFFSET_FETCH, BY_NAME)
    new = versions.request(ApiKey.OFFSET_FETCH, version)
    if version < ALL_PARTITIONS and None in by_group.values():
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"{peer} fetches committed offsets of named partitions only",
        )
    if version < MANY_GROUPS:
        return {
            name: _committed(
                await peer.call(
                    new(
                        group_id=name,
                        topics=_partition_indexes(new.topics, by_group[name]),
                        require_stable=require_stable,
                    )
                )
            )
            for name in by_group
        }
    group_requests = [
        new.groups(group_id=name, topics=_partition_indexes(new.groups.topics, by_group[name]))
        for name in by_group
    ]
    response = await peer.call(new(groups=group_requests, require_stable=require_stable))
    return {group.group_id: _committed(group) for group in response.groups}


def _description_of(group: Any, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        CONSUMER,
        PROTOCOL_TYPE,
        group.group_state,
        group.assignor_name,
        coordinator,
        tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions_of(member.assignment),
                member.member_epoch,
                _partitions_of(member.target_assignment),
                _MEMBER_TYPES.get(getattr(member, "member_type", -1)),
            )
            for member in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic(group: Any, coordinator: Node) -> GroupDescription:
    """Return the description of a classic group. Raises ProtocolError if a member of a consumer
    group has an invalid assignment.
    """
    is_ours = group.protocol_type in _GROUPS_OF_CONSUMERS
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.protocol_type,
        group.group_state,
        group.protocol_data,
        coordinator,
        tuple(
            GroupMember(
                member.member_id,
                getattr(member, "group_instance_id", None),
                member.client_id,
                member.client_host,
                read_assignment(assignment)
                if is_ours and (assignment := member.member_assignment)
                else (),
            )
            for member in group.members
        ),
    )


def _by_topic(partitions: Partitions) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics


def _partition_indexes(topic: Any, partitions: Partitions | None) -> list[Any] | None:
    """Return the topics for OffsetFetch; None stands for all."""
    if partitions is None:
        return None
    of_topics = _by_topic(partitions).items()
    return [topic(name=name, partition_indexes=tuple(of)) for name, of in of_topics]


def _committed(
    group: Any,
) -> dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError:
    """Return one group's part of an OffsetFetch response; a transient error is that of the whole
    group.
    """
    if getattr(group, "error_code", ErrorCode.none) != ErrorCode.none:
        return KafkaError(group.error_code)
    offsets: dict[TopicPartition, CommittedOffset | KafkaError] = {}
    for topic in group.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            epoch = getattr(p, "committed_leader_epoch", -1)
            if p.error_code != ErrorCode.none:
                offsets[partition] = KafkaError(p.error_code)
            elif p.committed_offset >= 0:
                offsets[partition] = CommittedOffset(
                    p.committed_offset, None if epoch < 0 else epoch, p.metadata or ""
                )
    return _first_transient(offsets.values()) or offsets


def _of_partitions(response: Any) -> dict[TopicPartition, KafkaError | None] | KafkaError:
    """Return errors by partition; a transient one is that of all partitions."""
    errors = {
        TopicPartition(topic.name, p.partition_index): refusal_of(p)
        for topic in response.topics
        for p in topic.partitions
    }
    return _first_transient(errors.values()) or errors


def _first_transient(results: Iterable[object]) -> KafkaError | None:
    """Return the first transient error, after which the request is to be retried."""
    errors = (result for result in results if isinstance(result, KafkaError))
    return next((error for error in errors if error.code in _PASSING), None)


async def _remove_singly(
    peer: Peer, new: versions.MessageShape, group: str, members: Iterable[MemberToRemove]
) -> dict[MemberToRemove, KafkaError | None]:
    """Remove members one by one, for brokers before 2.4, which have no static members."""
    return {
        member: refusal_of(await peer.call(new(group_id=group, member_id=member.id)))
        for member in members
    }
