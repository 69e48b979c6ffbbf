"""`k get-offsets`: the first and last offsets of partitions, or the offset for a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kcli.command.command import OLDER, Manual, Options, command
from kcli.command.command_runner import (
    CLUSTER,
    EXPECTED,
    admin_config,
    reason,
    run,
    status_of,
    unwrap,
)
from kcli.command.options import Refused, broker_list, cluster, name_filter, option, option_group
from kcli.command.output import complain, print_output
from kcli.rows.listing import Rows, formatted, rows
from kcli.rows.shapes import RowField, RowShape
from kserver.errors import KafkaError
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.offsets import ListedOffset

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
ANY_NUMBER = range(0x80000000)
CLIENT_ID = "GetOffsetShell"

MANUAL = Manual(
    kafka="kafka-get-offsets.sh",
    examples=(
        ("k get-offsets --topic orders", "The end offset of each partition."),
        ("k get-offsets --topic orders --time earliest", "The start offset of each partition."),
        (
            "k get-offsets --topic orders --time 1700000000000",
            "The first record of each partition at or after a time.",
        ),
        (
            "k get-offsets --topic-partitions 'orders:0-3,pay.*:5-'",
            "Partitions 0 to 2 of one topic, 5 and up of others.",
        ),
    ),
    differences=(
        "If a partition is skipped because of an error, the exit status is 1.",
        "For an invalid rule of --topic-partitions, one line is printed to standard error.",
    ),
    see_also=("k-topics", "k-console-consumer"),
)

OFFSETS = RowShape(
    "k.get-offsets",
    1,
    "A partition and the requested offset.",
    (
        RowField("topic", "string", "Its topic."),
        RowField("partition", "integer", "Its number."),
        RowField(
            "offset", "integer or null", "The offset; null if the partition has no such offset."
        ),
        RowField(
            "timestamp_ms",
            "integer or null",
            "The record's timestamp in ms since 1970, if a time or max-timestamp was requested.",
        ),
        RowField(
            "leader_epoch",
            "integer or null",
            "The leader epoch of that record; null if the broker does not send it.",
        ),
    ),
)


class Rule(NamedTuple):
    """Partitions of these numbers in topics of these names."""

    topic: Callable[[str], bool]
    numbers: Container[int]


@command(manual=MANUAL)
@option_group(
    option("--topic", "Only topics whose whole name matches this pattern.", "PATTERN"),
    option("--partitions", "Only partitions with these numbers.", "N,..."),
    option(
        "--topic-partitions",
        "Only partitions that a rule matches: PATTERN, PATTERN:N, PATTERN:FROM-TO, PATTERN:FROM- "
        "or PATTERN:-TO, where TO is exclusive; an empty pattern matches any topic.",
        "RULE,...",
    ),
    option(
        "--time",
        "Which offset: latest (-1, the default), earliest (-2), max-timestamp (-3), "
        "earliest-local (-4), latest-tiered (-5), earliest-pending-upload (-6), or that of the "
        "first record at or after a time in ms since 1970.",
        "TIME",
    ),
    option("--exclude-internal-topics", "Exclude internal topics."),
    formatted(OFFSETS),
    cluster,
    broker_list,
    option("--offsets", "Ignored.", "N", section=OLDER),
    option("--max-wait-ms", "Ignored.", "MS", section=OLDER),
)
def get_offsets(options: Options) -> int:
    """Prints an offset for each partition, as TOPIC:PARTITION:OFFSET.

    Without --topic, --partitions and --topic-partitions, all partitions are shown.  Lines are
    sorted by topic and partition as text, so 10 comes before 2.  A partition without such an
    offset, for example if all its records are older than the given time, is left out; with --output
    it is a row whose offset is null.
    """
    if options.output is not None:
        with rows(options, OFFSETS) as out:
            run(_list_offsets(options, out), options.timeout, CLUSTER)
        return out.status
    try:
        return run(_print_offsets(options), options.timeout, CLUSTER)
    except EXPECTED as error:
        complain(f"Error occurred: {reason(error)}")
        return status_of(error)


async def _print_offsets(options: Options) -> int:
    status = 0
    for partition, listed in await _offsets(options):
        if isinstance(listed, KafkaError):
            complain(
                f"Skip getting offsets for topic-partition {partition} due to error: "
                f"{reason(listed)}"
            )
            status = 1
        elif listed.offset >= 0:
            print_output(f"{partition.topic}:{partition.partition}:{listed.offset}")
    return status


async def _list_offsets(options: Options, out: Rows) -> None:
    for partition, listed in await _offsets(options):
        if isinstance(listed, KafkaError):
            out.refused(str(partition), listed)
            continue
        out.row(
            topic=partition.topic,
            partition=partition.partition,
            offset=None if listed.offset < 0 else listed.offset,
            timestamp_ms=None if listed.timestamp < 0 else listed.timestamp,
            leader_epoch=None if listed.leader_epoch < 0 else listed.leader_epoch,
        )


async def _offsets(
    options: Options,
) -> list[tuple[TopicPartition, ListedOffset | KafkaError]]:
    from kcli.client.admin.admin import Admin

    rules = _rules(options)
    spec = _spec(options.time or "latest")
    async with Admin(admin_config(options, client_id=CLIENT_ID)) as admin:
        partitions = await _partitions(admin, options, rules)
        if not partitions:
            raise Refused("Could not match any topic-partitions with the specified filters")
        results = await admin.list_offsets(dict.fromkeys(partitions, spec))
    return [(partition, results[partition]) for partition in sorted(partitions, key=str)]


async def _partitions(
    admin: Admin, options: Options, rules: Sequence[Rule]
) -> list[TopicPartition]:
    listed = await admin.list_topics(include_internal=not options.exclude_internal_topics)
    names = [topic.name for topic in listed if any(rule.topic(topic.name) for rule in rules)]
    return [
        TopicPartition(name, partition.partition)
        for name, topic in (await admin.describe_topics(names)).items()
        for partition in unwrap(topic).partitions
        if any(rule.topic(name) and partition.partition in rule.numbers for rule in rules)
    ]


def _rules(options: Options) -> list[Rule]:
    if options.topic_partitions is None:
        return [Rule(name_filter(options.topic or ".*"), _numbers(options.partitions))]
    if options.topic is not None or options.partitions is not None:
        raise Refused("--topic-partitions cannot be used with --topic or --partitions")
    return [_rule(text) for text in options.topic_partitions.split(",")]


def _numbers(text: str | None) -> Container[int]:
    if not text:
        return ANY_NUMBER
    words = text.split(",")
    if not all(re.fullmatch(r"[+-]?[0-9]+", word) for word in words):
        raise Refused(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{text}"
        )
    return set(map(int, words))


def _rule(text: str) -> Rule:
    """Parse one rule of --topic-partitions."""
    match = RULE.fullmatch(text)
    if match is None:
        raise Refused(f"Invalid rule specification: {text}")
    topic, exactly, first, end = match.groups()
    if exactly:
        numbers = range(int(exactly), int(exactly) + 1)
    else:
        numbers = range(int(first or 0), int(end) if end else ANY_NUMBER.stop)
    return Rule(name_filter(topic or ".*"), numbers)


def _spec(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    if re.fullmatch(r"[+-]?[0-9]+", text) and abs(int(text)) < 1 << 63:
        return int(text)
    raise Refused(
        f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or "
        "max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or "
        "earliest-pending-upload, or a specified long format timestamp"
    )
