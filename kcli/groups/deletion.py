"""--delete and --delete-offsets: delete groups, or their committed offsets of some topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcli.command import error_texts
from kcli.command.command_runner import confirm, unwrap
from kcli.command.output import print_output, would
from kcli.command.statuses import DONE, FAILED
from kcli.groups import group_text
from kcli.groups.group_queries import DEAD, failure
from kcli.groups.offset_reset import in_words
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.command.command import Options

UNKNOWN_PARTITION = -1
_OF_GROUP = frozenset(
    {
        ErrorCode.invalid_group_id,
        ErrorCode.group_id_not_found,
        ErrorCode.group_authorization_failed,
        ErrorCode.non_empty_group,
    }
)
_OF_PARTITIONS = frozenset(
    {
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.topic_authorization_failed,
        ErrorCode.unknown_topic_or_partition,
    }
)


async def delete(admin: Admin, options: Options, groups: Sequence[str]) -> int:
    """Delete groups; return the exit status."""
    steps = [f"delete group {name} and all its committed offsets" for name in groups]
    if options.dry_run:
        await _check(admin, groups, may_have_members=False)
        would(*steps)
        return DONE
    if groups:
        await confirm(options, *steps)
    outcomes = await admin.groups.delete(groups)
    deleted = ", ".join(f"'{name}'" for name, refusal in outcomes.items() if refusal is None)
    failed = {name: refusal for name, refusal in outcomes.items() if refusal is not None}
    if not failed:
        print_output(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return DONE
    print_output("\nError: Deletion of some consumer groups failed:")
    for name, refusal in failed.items():
        print_output(f"* Group '{name}' could not be deleted due to: {failure(refusal)}")
    if deleted:
        print_output(f"\nThese consumer groups were deleted successfully: {deleted}")
    return FAILED


async def delete_offsets(admin: Admin, options: Options, group: str) -> int:
    """Delete offsets of the partitions that --topic names; return the exit status."""
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    partitions = {p for word in options.topic if ":" in word for p in in_words(word)}
    topics = await admin.describe_topics([word for word in options.topic if ":" not in word])
    for name, topic in topics.items():
        if isinstance(topic, KafkaError):
            outcomes[TopicPartition(name, UNKNOWN_PARTITION)] = topic
        else:
            partitions |= {TopicPartition(name, p.partition) for p in topic.partitions}
    steps = [f"delete what group {group} committed for {p}" for p in sorted(partitions)]
    if options.dry_run:
        await _check(admin, [group], may_have_members=True)
        would(*steps)
        return FAILED if outcomes else DONE
    await confirm(options, *steps)
    try:
        deleted = await admin.groups.delete_offsets(group, partitions)
        first = next((refusal for refusal in deleted.values() if refusal is not None), None)
    except KafkaError as error:
        deleted = dict.fromkeys(partitions, error)
        first = error
    outcomes |= deleted
    _print_outcome(group, first)
    lines = group_text.deleted_lines(
        (partition, "Successful" if refusal is None else f"Error: {failure(refusal)}")
        for partition, refusal in sorted(outcomes.items(), key=_as_texts)
    )
    for line in lines:
        print_output(line)
    return FAILED if any(outcomes.values()) else DONE


async def _check(admin: Admin, groups: Sequence[str], *, may_have_members: bool) -> None:
    """Raises KafkaError for what the broker would refuse."""
    for described in (await admin.groups.describe(groups)).values():
        group = unwrap(described)
        if group.state == DEAD:
            raise KafkaError(ErrorCode.group_id_not_found)
        if group.members and not may_have_members:
            raise KafkaError(ErrorCode.non_empty_group)


def _as_texts(outcome: tuple[TopicPartition, object]) -> str:
    (topic, partition), _ = outcome
    return f"{topic}{partition}"


def _print_outcome(group: str, refusal: KafkaError | None) -> None:
    if refusal is None:
        print_output(f"Request succeeded for deleting offsets from group {group}.")
    elif refusal.code in _OF_GROUP:
        print_output(f"\nError: {error_texts.text(refusal)}")
    elif refusal.code in _OF_PARTITIONS:
        print_output("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print_output(f"\nError: Encountered some unknown error: {refusal.code.name.upper()}")
