"""Topics as the lines and rows of `k topics --describe`.

Pure: values in, lines or rows out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kcli.rows.shapes import RowField, RowShape
from kcli.rows.topic_ids import id_text
from kserver.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import ConfigEntry, Reassignment, TopicDescription
    from kcli.client.admin.descriptions import PartitionDescription

REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
"""Filters of partitions."""

TOPIC = RowField("topic", "string", "Its topic.")
TOPIC_ID = RowField("topic_id", "string or null", "The topic's id; null where the broker has none.")

DESCRIBE = RowShape(
    "k.topics.describe",
    1,
    "A partition.",
    (
        TOPIC,
        TOPIC_ID,
        RowField("partition", "integer", "Its number."),
        RowField("leader", "integer or null", "The broker that leads it; null while none does."),
        RowField(
            "leader_epoch",
            "integer or null",
            "How often leadership changed; null where the broker does not tell.",
        ),
        RowField(
            "replicas", "list of integer", "The brokers that hold it, the preferred one first."
        ),
        RowField("isr", "list of integer", "Those in sync."),
        RowField("adding_replicas", "list of integer", "Those that a reassignment is adding."),
        RowField("removing_replicas", "list of integer", "Those that a reassignment is removing."),
        RowField(
            "elr",
            "list of integer or null",
            "Replicas that may lead though out of sync (KIP-966); null where the broker does not "
            "tell.",
        ),
        RowField(
            "last_known_elr",
            "list of integer or null",
            "The last of these that are known; null where the broker does not tell.",
        ),
        RowField("under_replicated", "boolean", "Whether a replica is out of sync."),
        RowField(
            "under_min_isr",
            "boolean",
            "Whether fewer replicas are in sync than min.insync.replicas, or no broker leads.",
        ),
        RowField(
            "at_min_isr", "boolean", "Whether exactly min.insync.replicas replicas are in sync."
        ),
        RowField("unavailable", "boolean", "Whether no live broker leads."),
    ),
)
OVERRIDES = RowShape(
    "k.topics.overrides",
    1,
    "A topic with settings of its own.",
    (
        RowField("topic", "string", "Its name."),
        TOPIC_ID,
        RowField("partition_count", "integer", "How many partitions it has."),
        RowField("replication_factor", "integer", "On how many brokers its first partition is."),
        RowField("configs", "map of string", "Its settings that are not Kafka's defaults."),
    ),
)


class PartitionView(NamedTuple):
    """A partition, its ongoing reassignment, and which of REPORTS apply to it."""

    partition: PartitionDescription
    move: Reassignment | None
    reports: dict[str, bool]


@dataclass(frozen=True, slots=True)
class View:
    """A topic's state: its configuration, its reassignments, the live brokers.

    With `reports`, only the partitions to which one of them applies.
    """

    topic: TopicDescription
    entries: Sequence[ConfigEntry]
    moves: Mapping[TopicPartition, Reassignment]
    live: Collection[BrokerId]
    reports: Collection[str] = ()

    @property
    def overrides(self) -> dict[str, str | None]:
        """Configs that are not Kafka's defaults."""
        return {entry.name: entry.value for entry in self.entries if not entry.is_default}

    @property
    def replication_factor(self) -> int:
        """The replication factor of its first partition."""
        first = self.topic.partitions[0]
        return _replication_factor(first, self._move(first))

    def partitions(self) -> Iterator[PartitionView]:
        values = {entry.name: entry.value for entry in self.entries}
        least = int(values.get("min.insync.replicas") or 1)
        for partition in self.topic.partitions:
            move = self._move(partition)
            in_sync = len(partition.isr)
            true = {
                "under-replicated-partitions": _replication_factor(partition, move) > in_sync,
                "under-min-isr-partitions": partition.leader is None or in_sync < least,
                "at-min-isr-partitions": in_sync == least,
                "unavailable-partitions": partition.leader not in self.live,
            }
            if not self.reports or any(true[name] for name in self.reports):
                yield PartitionView(partition, move, true)

    def _move(self, partition: PartitionDescription) -> Reassignment | None:
        return self.moves.get(TopicPartition(self.topic.name, partition.partition))


def lines(view: View, overrides_only: bool = False) -> Iterator[str]:
    """Yield a heading and a line for each partition; with reports only the latter.

    With `overrides_only` only the heading, and only of a topic with configs of its own.
    """
    if not view.reports and (view.overrides or not overrides_only):
        own = (f"{name}={_text(value)}" for name, value in view.overrides.items())
        id = f"\tTopicId: {id_text(view.topic.id)}" if view.topic.id else ""
        yield (
            f"Topic: {view.topic.name}{id}\tPartitionCount: {len(view.topic.partitions)}"
            f"\tReplicationFactor: {view.replication_factor}"
            f"\tConfigs: {','.join(own)}"
        )
    if not overrides_only:
        for partition_view in view.partitions():
            yield _partition_line(view.topic.name, partition_view.partition, partition_view.move)


def rows(view: View) -> Iterator[dict[str, Any]]:
    """Yield a row of DESCRIBE for each partition."""
    for partition, move, reports in view.partitions():
        yield {
            "topic": view.topic.name,
            "topic_id": id_text(view.topic.id) if view.topic.id else None,
            "partition": partition.partition,
            "leader": partition.leader,
            "leader_epoch": None if partition.leader_epoch < 0 else partition.leader_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "adding_replicas": move.adding if move else (),
            "removing_replicas": move.removing if move else (),
            "elr": partition.elr,
            "last_known_elr": partition.last_known_elr,
            "under_replicated": reports["under-replicated-partitions"],
            "under_min_isr": reports["under-min-isr-partitions"],
            "at_min_isr": reports["at-min-isr-partitions"],
            "unavailable": reports["unavailable-partitions"],
        }


def override_row(view: View) -> dict[str, Any]:
    """Return the row of OVERRIDES."""
    return {
        "topic": view.topic.name,
        "topic_id": id_text(view.topic.id) if view.topic.id else None,
        "partition_count": len(view.topic.partitions),
        "replication_factor": view.replication_factor,
        "configs": view.overrides,
    }


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
    """Return the replication factor without the replicas that an ongoing reassignment adds."""
    if move is None or not {*move.adding, *move.removing} & {*partition.replicas}:
        return len(partition.replicas)
    return len(move.replicas) - len(move.adding)
