"""Plans of assignments, as JSON.

    {"version": 1, "partitions": [
        {"topic": "foo", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d1"]}]}
    {"version": 1, "topics": [{"topic": "foo"}]}                topics to make a plan for

Pure: documents in, values out, and back as text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kcli.command.json_file import VERSION, check_version
from kcli.command.options import Refused
from kcli.partitions.partition_files import INT_MAX
from kserver.controller.placement import place
from kserver.model import BrokerId, TopicPartition

ANY = "any"
"""The log directory of a replica that may be in any."""

H = TypeVar("H", bound=Hashable)
Assignment = Mapping[TopicPartition, Sequence[BrokerId]]


class TopicPartitionReplica(NamedTuple):
    """A replica as Kafka's tools name it, `foo-0-1`; sorted by broker."""

    broker: BrokerId
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


class ReassignmentPlan(NamedTuple):
    targets: tuple[tuple[TopicPartition, tuple[BrokerId, ...]], ...]
    """In the order of the file, which may name a partition twice."""
    log_dirs: dict[TopicPartitionReplica, str]
    """Directories of the replicas that have one in the plan."""

    @property
    def assignment(self) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        return dict(self.targets)

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition, _ in self.targets})


def plan_of(document: Any, path: str) -> ReassignmentPlan:
    """Return the plan. Raises Refused if it is invalid; `path` is the file's name."""
    targets = []
    log_dirs = {}
    for number, entry in enumerate(_entries(document, "partitions", path)):
        match entry:
            case {"topic": str(topic), "partition": int(index), "replicas": list(replicas)} if (
                not isinstance(index, bool)
                and 0 <= index <= INT_MAX
                and all(_is_broker(replica) for replica in replicas)
            ):
                pass
            case _:
                raise Refused(
                    f'{path}: Entry {number} of "partitions" is invalid: {json.dumps(entry)}; '
                    'it needs "topic", a string, "partition", an integer, and "replicas", a list '
                    "of integers"
                )
        directories = entry.get("log_dirs", [ANY] * len(replicas))
        if not isinstance(directories, list) or not all(isinstance(d, str) for d in directories):
            raise Refused(
                f'{path}: Entry {number} of "partitions" is invalid: "log_dirs" is not a list of '
                f"strings: {json.dumps(directories)}"
            )
        partition = TopicPartition(topic, index)
        if len(replicas) != len(directories):
            raise Refused(
                f"Size of replicas list {_java_list(replicas)} is different from size of log dirs "
                f"list {_java_list(directories)} for partition {partition}"
            )
        targets.append((partition, tuple(replicas)))
        for broker, directory in zip(replicas, directories, strict=True):
            if directory != ANY:
                log_dirs[TopicPartitionReplica(broker, partition)] = directory
    return ReassignmentPlan(tuple(targets), log_dirs)


def executable(plan: ReassignmentPlan) -> ReassignmentPlan:
    """Return the plan. Raises Refused if it cannot be executed on any cluster."""
    if not plan.targets:
        raise Refused("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in plan.targets):
        raise Refused("Partition replica list cannot be empty")
    if twice := repeated(partition for partition, _ in plan.targets):
        raise Refused(
            f"Partition reassignment contains duplicate topic partitions: {_joined(twice)}"
        )
    doubled = [
        f"{partition} contains multiple entries for {_joined(repeated(replicas))}"
        for partition, replicas in plan.targets
        if repeated(replicas)
    ]
    if doubled:
        raise Refused(
            f"Partition replica lists may not contain duplicate entries: {'. '.join(doubled)}"
        )
    return plan


def topics_of(document: Any, path: str) -> list[str]:
    """Return the topics to make a plan for. Raises Refused; `path` is the file's name."""
    topics = []
    for number, entry in enumerate(_entries(document, "topics", path)):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str):
            raise Refused(
                f'{path}: Entry {number} of "topics" is invalid: {json.dumps(entry)}; it needs '
                '"topic", a string'
            )
        topics.append(entry["topic"])
    if twice := repeated(topics):
        raise Refused(f"List of topics to reassign contains duplicate entries: {_java_list(twice)}")
    return topics


def brokers_of(text: str) -> list[BrokerId]:
    """Parse `0,1,2`. Raises Refused."""
    words = text.rstrip(",").split(",")
    for word in words:
        if not re.fullmatch(r"[+-]?[0-9]+", word):
            raise Refused(f'For input string: "{word}"')
    brokers = [int(word) for word in words]
    if twice := repeated(brokers):
        raise Refused(f"Broker list contains duplicate entries: {_java_list(twice)}")
    return brokers


def plan_text(
    assignment: Assignment, log_dirs: Mapping[TopicPartitionReplica, str] | None = None
) -> str:
    """Return one line of JSON, by topic and partition."""
    directories = log_dirs or {}
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [
                directories.get(TopicPartitionReplica(broker, partition), ANY)
                for broker in replicas
            ],
        }
        for partition, replicas in sorted(assignment.items())
    ]
    return json.dumps(
        {"version": VERSION, "partitions": partitions}, separators=(",", ":"), ensure_ascii=False
    )


def proposed(
    current: Assignment, racks: Mapping[BrokerId, str | None], starts: Mapping[str, tuple[int, int]]
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Assign each topic of `current` to the brokers of `racks`, with as many replicas as its first
    partition has; `starts` has the start and shift of each, for `place`. Raises Refused if there
    are too few brokers.
    """
    placed: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for topic in sorted({partition.topic for partition in current}):
        of_topic = [
            replicas for partition, replicas in sorted(current.items()) if partition[0] == topic
        ]
        if len(of_topic[0]) > len(racks):
            raise Refused(
                f"The target replication factor of {len(of_topic[0])} cannot be reached because "
                f"only {len(racks)} broker(s) are registered or some brokers have all their log "
                "directories cordoned."
            )
        start, shift = starts[topic]
        replicas = place(racks, len(of_topic), len(of_topic[0]), start=start, shift=shift)
        placed |= {
            TopicPartition(topic, n): new_replicas for n, new_replicas in enumerate(replicas)
        }
    return placed


def repeated(items: Iterable[H]) -> list[H]:
    """Return the items that occur more than once, each once."""
    return [item for item, times in Counter(items).items() if times > 1]


def _entries(document: Any, field: str, path: str) -> list[Any]:
    if not isinstance(document, dict):
        raise Refused(f"{path}: The JSON must be an object, but is {json.dumps(document)[:80]}")
    check_version(document, path)
    entries = document.get(field, [])
    if not isinstance(entries, list):
        raise Refused(f'{path}: "{field}" must be a list, but is {json.dumps(entries)[:80]}')
    return entries


def _is_broker(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT_MAX


def _java_list(items: Iterable[object]) -> str:
    """Return a list as Java prints it."""
    return f"[{', '.join(map(str, items))}]"


def _joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))
