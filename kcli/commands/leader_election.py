"""`k leader-election`: elects leaders of partitions."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import CLUSTER, EXPECTED, admin_config, confirm, run
from kcli.command.options import (
    INT,
    cluster,
    dry_run,
    exclude,
    is_set,
    older_config,
    option,
    option_group,
    refuse,
    yes,
)
from kcli.command.statuses import DONE
from kcli.partitions.leader_elections import (
    ElectionWords,
    expected_outcomes,
    outcomes,
    preview,
    print_outcomes,
    print_refusal,
)
from kcli.partitions.partition_files import PartitionFileWords, read_partitions
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape
from kserver.model import ElectionType, TopicPartition

API_TIMEOUT_MS, REQUEST_TIMEOUT_MS = "30000", "15000"
FILE = PartitionFileWords(
    "Replica election data", 'is missing "partitions" field', list_format="[{}]", separator=", "
)
WHICH = ("topic", "all-topic-partitions", "path-to-json-file")
ELECTED, NOT_NEEDED = "elected", "not needed"

MANUAL = Manual(
    kafka="kafka-leader-election.sh",
    examples=(
        (
            "k leader-election --election-type preferred --all-topic-partitions",
            "Move leadership back to the preferred replicas after a broker has returned.",
        ),
        (
            "k leader-election --election-type unclean --topic orders --partition 0 --dry-run",
            "Show the replica that would lead although it is out of sync, if no in-sync replica "
            "is left.",
        ),
    ),
    differences=(
        "Partitions are printed in the order of their names.",
        "If standard input and error are a terminal, the command asks before an unclean "
        "election, which may lose records, unless --yes is given.",
        "If the controller has just changed, the request is retried.",
        "--admin.config is accepted without a deprecation warning.",
        "For an invalid file, one line names the invalid entry.",
    ),
    see_also=("k-preferred-election", "k-topics"),
)

OUTCOMES = RowShape(
    "k.leader-election",
    1,
    "A partition, and the outcome of the election.",
    (
        RowField("topic", "string", "Its topic."),
        RowField("partition", "integer", "Its number."),
        RowField("outcome", "string", "elected, or not needed if a valid replica already leads."),
    ),
)


class _Type(click.ParamType):  # type: ignore[type-arg]
    """An election type, in any case."""

    name = "election"

    def convert(self, value: object, param: object, ctx: click.Context | None) -> ElectionType:
        if isinstance(value, ElectionType):
            return value
        try:
            return ElectionType[str(value).upper()]
        except KeyError:
            text = f"Cannot parse argument '{value}' of option election-type"
            raise click.UsageError(f"{text}: preferred, unclean", ctx) from None


@command(manual=MANUAL)
@option_group(
    option(
        "--election-type",
        "preferred: elect the first replica, if it is in sync; unclean: if a partition has no "
        "leader, elect a live replica; records that only other replicas have are lost.  Required.",
        "TYPE",
        type=_Type(),
    ),
    option("--topic", "The partition's topic.", "TOPIC"),
    option("--partition", "The partition number; with --topic.", "N", type=INT),
    option("--all-topic-partitions", "Every partition that needs such an election."),
    option(
        "--path-to-json-file",
        'The partitions of a file: {"partitions": [{"topic": "foo", "partition": 1}]}.',
        "FILE",
    ),
    dry_run,
    yes,
    formatted(OUTCOMES),
    cluster,
    older_config("--admin.config"),
)
def leader_election(options: Options) -> int:
    """Lets the controller elect leaders of partitions.

    Exactly one of --topic, --all-topic-partitions and --path-to-json-file selects the partitions.
    """
    _check(options)
    with rows_if_asked(options, OUTCOMES) as out:
        partitions = _partitions(options)
        try:
            status = run(_elect(options, partitions, out), options.timeout, CLUSTER)
        except EXPECTED as error:
            if out is None:
                print_refusal(error)
            raise
    return status if out is None else status or out.status


def _check(options: Options) -> None:
    """Check the rules between options, in Kafka's order and words."""
    if options.election_type is None:
        refuse("Missing required option(s): election-type")
    if sum(is_set(options, name) for name in WHICH) != 1:
        refuse(f"One and only one of the following options is required: {', '.join(WHICH)}")
    if is_set(options, "topic") and not is_set(options, "partition"):
        refuse("Missing required option(s): partition")
    if is_set(options, "partition") and not is_set(options, "topic"):
        refuse("Option partition is only allowed if topic is used")
    exclude(options, "dry-run", ("output",))


def _partitions(options: Options) -> list[TopicPartition] | None:
    """Return the requested partitions; None for all."""
    if options.path_to_json_file is not None:
        return read_partitions(options.path_to_json_file, FILE)
    return None if options.topic is None else [TopicPartition(options.topic, options.partition)]


async def _elect(
    options: Options, selection: Sequence[TopicPartition] | None, out: Rows | None
) -> int:
    from kcli.client.admin.admin import Admin

    election = options.election_type
    config = admin_config(
        options, default_api_timeout_ms=API_TIMEOUT_MS, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    async with Admin(config) as admin:
        if options.dry_run:
            return await preview(admin, election, selection)
        if election is ElectionType.UNCLEAN and not options.yes and sys.stdin.isatty():
            steps, _ = await expected_outcomes(admin, election, selection)
            if steps:
                await confirm(options, *steps.values())
        results = await admin.elect_leaders(election, selection)
    if out is None:
        name = f"leader election ({election.name})"
        return print_outcomes(
            results, ElectionWords(name, "Valid replica already elected", "replica(s)")
        )
    elected, not_needed, failed = outcomes(results)
    for outcome, partitions in ((ELECTED, elected), (NOT_NEEDED, not_needed)):
        for topic, number in partitions:
            out.row(topic=topic, partition=number, outcome=outcome)
    for partition, error in failed.items():
        out.refused(str(partition), error)
    return DONE
