"""Groups as the brokers report them: listings, descriptions, and positions in partitions."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kcli.command import error_texts
from kcli.command.command_runner import unwrap
from kcli.command.options import Refused
from kcli.groups.group_text import GroupPosition
from kserver.errors import ErrorCode, KafkaError
from kserver.model import Offset, TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.group.group_descriptions import CommittedOffset, GroupDescription, GroupListing

EMPTY, DEAD = "Empty", "Dead"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
OF_CONSUMERS = ("", "consumer")
"""Protocol types; without members a group has none."""

Committed = Mapping[TopicPartition, "CommittedOffset"]


def failure(error: Exception) -> str:
    """Return the text that Java shows for an exception that caused another one: with its class."""
    if isinstance(error, KafkaError):
        return f"{error_texts.exception(error)}: {error_texts.text(error)}"
    return str(error)


async def list_groups(
    admin: Admin, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """Return the groups of consumers."""
    listings = await admin.groups.listings(states, types)
    return [group for group in listings if group.protocol_type in OF_CONSUMERS]


async def describe_groups(
    admin: Admin, groups: Iterable[str]
) -> dict[str, GroupDescription | KafkaError | Refused]:
    """Return the groups by name; Refused stands for one that is not a group of consumers."""
    descriptions = await admin.groups.describe(groups)
    return {name: _of_consumers(group) for name, group in sorted(descriptions.items())}


def _of_consumers(group: GroupDescription | KafkaError) -> GroupDescription | KafkaError | Refused:
    if isinstance(group, KafkaError) or group.protocol_type in OF_CONSUMERS:
        return group
    return Refused(
        f"java.lang.IllegalArgumentException: GroupId {group.group} is not a consumer group "
        f"({group.protocol_type})."
    )


async def committed(admin: Admin, groups: Iterable[str]) -> dict[str, Committed]:
    """Return committed offsets by group. Raises KafkaError for the first that may not be read."""
    results = await admin.groups.offsets(groups)
    return {
        name: {partition: unwrap(offset) for partition, offset in unwrap(offsets).items()}
        for name, offsets in results.items()
    }


async def ends(
    admin: Admin, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Return the end offsets of partitions, without those that are deleted or have no leader
    now.
    """
    topics = await admin.describe_topics({partition.topic for partition in partitions})
    led = {
        TopicPartition(name, p.partition)
        for name, topic in topics.items()
        if not isinstance(topic, KafkaError)
        for p in topic.partitions
        if p.leader is not None
    }
    results = await admin.list_offsets({p: -1 for p in partitions if p in led})
    return {
        partition: unwrap(offset).offset
        for partition, offset in results.items()
        if not is_unknown_partition(offset)
    }


def is_unknown_partition(result: object) -> bool:
    return isinstance(result, KafkaError) and result.code == ErrorCode.unknown_topic_or_partition


async def readings(
    admin: Admin, groups: Collection[GroupDescription]
) -> dict[str, list[GroupPosition]]:
    """Return each group's positions. End offsets are requested after the committed ones, so that a
    lag is never too small: it is below zero only if the committed offset is past the end.
    """
    offsets = await committed(admin, [group.group for group in groups])
    concerned = {p for group in groups for p in _partitions(group, offsets[group.group])}
    ends_by_partition = await ends(admin, concerned)
    return {
        group.group: list(_readings(group, offsets[group.group], ends_by_partition))
        for group in groups
    }


def _partitions(group: GroupDescription, offsets: Committed) -> Iterator[TopicPartition]:
    yield from offsets
    for member in group.members:
        yield from member.assignment


def _readings(
    group: GroupDescription, offsets: Committed, ends: Mapping[TopicPartition, Offset]
) -> Iterator[GroupPosition]:
    """Yield the positions: members with the most partitions first, partitions without a member
    last.
    """
    nobodys = set(offsets)
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        nobodys.difference_update(member.assignment)
        for partition in sorted(member.assignment):
            yield _reading(partition, offsets, ends)._replace(member=member)
    for partition in sorted(nobodys):
        yield _reading(partition, offsets, ends)


def _reading(
    partition: TopicPartition, offsets: Committed, ends: Mapping[TopicPartition, Offset]
) -> GroupPosition:
    at = offsets.get(partition)
    return GroupPosition(
        partition, at and at.offset, at and at.leader_epoch, ends.get(partition), None
    )


class Ages:
    """The ages of the next records that a group has to read.

    A record's time is looked up once, so a group whose offsets do not change costs nothing.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[TopicPartition, Offset], int | None] = {}

    async def seconds(self, admin: Admin, readings: Sequence[GroupPosition]) -> list[float | None]:
        """Return the lag of each position in seconds; 0 if nothing is left to read, None if
        unknown.
        """
        behind = {
            reading.partition: reading.committed
            for reading in readings
            if reading.committed is not None and reading.lag is not None and reading.lag > 0
        }
        times = {at: self._times[at] for at in behind.items() if at in self._times}
        if missing := dict(at for at in behind.items() if at not in times):
            for partition, time_or_error in (await admin.record_times(missing)).items():
                time_ms = None if isinstance(time_or_error, KafkaError) else time_or_error
                times[partition, missing[partition]] = time_ms
        self._times = times
        now_ms = time.time() * 1000
        return [_age(reading, times, now_ms) for reading in readings]


def _age(
    reading: GroupPosition, times: Mapping[tuple[TopicPartition, Offset], int | None], now_ms: float
) -> float | None:
    """Return seconds, rounded to milliseconds."""
    if reading.lag is None or reading.committed is None:
        return None
    if reading.lag <= 0:
        return 0.0
    time_ms = times.get((reading.partition, reading.committed))
    return None if time_ms is None else max(0, round(now_ms - time_ms)) / 1000
