"""Leader elections of two commands: a preview, and the outcome in Kafka's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kcli.command.command_runner import reason, unwrap
from kcli.command.error_texts import exception
from kcli.command.options import Refused
from kcli.command.output import print_output, would
from kcli.command.statuses import DONE, FAILED
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, ElectionType, TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.admin.descriptions import PartitionDescription

LATE = "Timeout waiting for election results"
FORBIDDEN = "Not authorized to perform leader election"


class ElectionWords(NamedTuple):
    """A tool's words for an election, for one that was not needed, and for replicas it could not
    elect.
    """

    election: str
    not_needed: str
    replicas: str


def print_outcomes(
    results: Mapping[TopicPartition, KafkaError | None], words: ElectionWords
) -> int:
    """Print the outcomes. Raises Refused if any election failed."""
    elected, not_needed, failed = outcomes(results)
    if elected:
        print_output(f"Successfully completed {words.election} for partitions {_names(elected)}")
    if not_needed:
        print_output(f"{words.not_needed} for partitions {_names(not_needed)}")
    for partition, error in failed.items():
        why = f"{exception(error)}: {reason(error)}"
        print_output(f"Error completing {words.election} for partition: {partition}: {why}")
    if failed:
        raise Refused(f"{len(failed)} {words.replicas} could not be elected")
    return DONE


def outcomes(
    results: Mapping[TopicPartition, KafkaError | None],
) -> tuple[list[TopicPartition], list[TopicPartition], dict[TopicPartition, KafkaError]]:
    """Return the partitions where a leader was elected, where none was needed, and where it failed;
    sorted by name.
    """
    elected, not_needed, failed = [], [], {}
    for partition, error in sorted(results.items(), key=lambda pair: pair[0]):
        if error is None:
            elected.append(partition)
        elif error.code is ErrorCode.election_not_needed:
            not_needed.append(partition)
        else:
            failed[partition] = error
    return elected, not_needed, failed


def print_refusal(error: Exception) -> None:
    """Print the text of Kafka's tools if no election was held at all, if they print any."""
    from kcli.client.errors import ClusterUnreachable, TimedOut

    if isinstance(error, ClusterUnreachable | TimedOut):
        print_output(LATE)
    elif isinstance(error, KafkaError) and error.code is ErrorCode.cluster_authorization_failed:
        print_output(FORBIDDEN)


async def preview(
    admin: Admin, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> int:
    """Print which leaders would be elected now, and which elections would fail."""
    steps, refusals = await expected_outcomes(admin, election, partitions)
    would(*steps.values())
    for partition, error in refusals.items():
        print_output(f"{partition}: {exception(error)}: {reason(error)}")
    return FAILED if refusals else DONE


async def expected_outcomes(
    admin: Admin, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> tuple[dict[TopicPartition, str], dict[TopicPartition, KafkaError]]:
    """Return the outcome of an election for partitions that need one, and the errors of others."""
    live = {node.id for node in (await admin.describe_cluster()).brokers}
    selection = None if partitions is None else sorted(partitions)
    topics = (
        [topic.name for topic in await admin.list_topics()]
        if selection is None
        else list(dict.fromkeys(partition.topic for partition in selection))
    )
    descriptions: dict[TopicPartition, PartitionDescription] = {}
    for name, topic in (await admin.describe_topics(topics)).items():
        if isinstance(topic, KafkaError) and topic.code is ErrorCode.unknown_topic_or_partition:
            continue
        for p in unwrap(topic).partitions:
            descriptions[TopicPartition(name, p.partition)] = p
    steps: dict[TopicPartition, str] = {}
    refusals: dict[TopicPartition, KafkaError] = {}
    for partition in sorted(descriptions) if selection is None else selection:
        if partition not in descriptions:
            refusals[partition] = KafkaError(ErrorCode.unknown_topic_or_partition)
            continue
        step = _step(partition, descriptions[partition], election, live)
        if isinstance(step, KafkaError):
            refusals[partition] = step
        elif step is not None:
            steps[partition] = step
    return steps, refusals


def _step(
    partition: TopicPartition,
    now: PartitionDescription,
    election: ElectionType,
    live: set[BrokerId],
) -> str | KafkaError | None:
    """Return None if no election is needed."""
    if election is ElectionType.PREFERRED:
        preferred = now.replicas[0]
        if now.leader == preferred:
            return None
        if preferred not in now.isr or preferred not in live:
            return KafkaError(ErrorCode.preferred_leader_not_available)
        return f"make {preferred} the leader of {partition}{_in_place_of(now.leader)}"
    if now.leader is not None:
        return None
    there = [id for id in now.replicas if id in live]
    if not there:
        return KafkaError(ErrorCode.eligible_leaders_not_available)
    in_sync = [id for id in there if id in now.isr]
    if in_sync:
        return f"make {in_sync[0]} the leader of {partition}"
    return f"make {there[0]} the leader of {partition} and lose what only others have"


def _in_place_of(leader: BrokerId | None) -> str:
    return "" if leader is None else f" in place of {leader}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
