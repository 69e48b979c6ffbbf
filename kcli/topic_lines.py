"""Topics as the lines that `k topics --describe` prints of them.

Pure: values in, lines out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kcli.topic_ids import id_text
from kserver.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin import ConfigEntry, PartitionDescription, Reassignment, TopicDescription

REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
"""What partitions may be filtered by."""


def lines(
    topic: TopicDescription,
    entries: Sequence[ConfigEntry],
    moves: Mapping[TopicPartition, Reassignment],
    live: Collection[BrokerId],
    reports: Collection[str] = (),
    overrides_only: bool = False,
) -> Iterator[str]:
    """A heading and a line for each partition.

    With `reports` only the lines of partitions for which one of them is true; with `overrides_only`
    only the heading, and only of a topic with settings of its own.
    """
    own = [f"{entry.name}={_text(entry.value)}" for entry in entries if not entry.is_default]
    if not reports and (own or not overrides_only):
        first = topic.partitions[0]
        move = moves.get(TopicPartition(topic.name, first.partition))
        id = f"\tTopicId: {id_text(topic.id)}" if topic.id else ""
        yield (
            f"Topic: {topic.name}{id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {_replication_factor(first, move)}"
            f"\tConfigs: {','.join(own)}"
        )
    if overrides_only:
        return
    least = next((int(e.value or 1) for e in entries if e.name == "min.insync.replicas"), 1)
    for partition in topic.partitions:
        move = moves.get(TopicPartition(topic.name, partition.partition))
        in_sync = len(partition.isr)
        shown = {
            "under-replicated-partitions": _replication_factor(partition, move) > in_sync,
            "under-min-isr-partitions": partition.leader is None or in_sync < least,
            "at-min-isr-partitions": in_sync == least,
            "unavailable-partitions": partition.leader not in live,
        }
        if not reports or any(shown[name] for name in reports):
            yield _partition_line(topic.name, partition, move)


def _partition_line(topic: str, partition: PartitionDescription, move: Reassignment | None) -> str:
    fields = [
        "",
        f"Topic: {topic}",
        f"Partition: {partition.partition}",
        f"Leader: {'none' if partition.leader is None else partition.leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
    ]
    if move is not None:
        fields.append(f"Adding Replicas: {_ids(move.adding)}")
        fields.append(f"Removing Replicas: {_ids(move.removing)}")
    fields.append(f"Elr: {_ids(partition.elr)}")
    fields.append(f"LastKnownElr: {_ids(partition.last_known_elr)}")
    return "\t".join(fields)


def _ids(ids: Sequence[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _replication_factor(partition: PartitionDescription, move: Reassignment | None) -> int:
    """Without the replicas that a reassignment under way is adding."""
    if move is None or not {*move.adding, *move.removing} & {*partition.replicas}:
        return len(partition.replicas)
    return len(move.replicas) - len(move.adding)
