"""`k topics`: creates, lists, describes, alters and deletes topics."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from kcli.command.command import OLDER, Manual, Options, command
from kcli.command.command_runner import (
    CLUSTER,
    EXPECTED,
    admin_config,
    confirm,
    raise_first,
    reason,
    run,
    status_of,
    unwrap,
)
from kcli.command.options import (
    INT,
    SERVER_VARIABLE,
    Declined,
    Refused,
    cluster,
    dry_run,
    exclude,
    is_set,
    name_filter,
    option,
    option_group,
    refuse,
    require,
    yes,
)
from kcli.command.output import complain, print_output, would
from kcli.command.statuses import DONE, FOUND
from kcli.rows import topic_lines
from kcli.rows.listing import Rows, formatted, rows
from kcli.rows.shapes import RowField, RowShape
from kcli.rows.topic_ids import id_text, topic_id
from kcli.rows.topic_lines import DESCRIBE, OVERRIDES, REPORTS

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin, CreatedTopic, TopicDescription, TopicListing

ACTIONS = ("list", "describe", "create", "alter", "delete")
UNHEALTHY = ("under-replicated-partitions", "under-min-isr-partitions", "unavailable-partitions")
"""Default filters of --check."""
MAX_REPLICATION_FACTOR = 0x7FFF
PAGE_PARTITIONS = 2000
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)
SEE_CONFIGS = " (To alter topic configurations, the kafka-configs tool can be used.)"

ACTION = "Action (one of)"
FILTERS = "What --describe shows"

MANUAL = Manual(
    kafka="kafka-topics.sh",
    examples=(
        ("k topics --create --topic orders --partitions 6", "A topic of six partitions."),
        ("k topics --list", "The names of all topics."),
        ("k topics --describe --topic 'orders|payments'", "Two topics; names are patterns."),
        (
            "k topics --describe --topic orders -o template='{topic} {partition} {leader}'",
            "A line per partition, with three fields.",
        ),
        (
            "k topics --describe --check || echo 'the cluster is not well'",
            "For a monitor: print unhealthy partitions.",
        ),
        ("k topics --alter --topic orders --partitions 12", "Grow a topic to twelve partitions."),
        (
            "k topics --delete --topic 'test-.*' --dry-run",
            "Show which topics a pattern would delete.",
        ),
        ("k topics --delete --topic orders --if-exists", "Delete a topic if it exists."),
    ),
    statuses=((FOUND, "With --check: a partition is unhealthy."),),
    differences=(
        "--describe shows topics in the order of their names, and their configs in the order in "
        "which the broker sends them.",
        "A topic's configuration is checked by the broker alone, so keys that only the broker "
        "knows can be set.",
        "An invalid option value, such as --partitions x, is a usage error.",
        "--delete asks first if standard input and error are a terminal; --yes, or --force as in "
        "kafka-topics.sh until 2.8, deletes without asking.",
        "--zookeeper and --disable-rack-aware of kafka-topics.sh until 2.8 and 3.4 are ignored "
        "with a notice; --zookeeper only together with --bootstrap-server or "
        "$K_BOOTSTRAP_SERVER, so that no command runs against an unintended cluster.",
    ),
    see_also=("k-console-producer", "k-console-consumer", "k-get-offsets"),
)


LIST = RowShape(
    "k.topics.list",
    1,
    "A topic.",
    (
        RowField("topic", "string", "Its name."),
        RowField("topic_id", "string or null", "Its id; null if the broker has none."),
        RowField("internal", "boolean", "Whether it holds the cluster's own records."),
    ),
)


@command(manual=MANUAL)
@option_group(
    option("--list", "Print the names of topics.", section=ACTION),
    option("--describe", "Print each partition's leader and replicas.", section=ACTION),
    option("--create", "Create a topic.", section=ACTION),
    option("--alter", "Give a topic more partitions.", section=ACTION),
    option("--delete", "Delete topics.", section=ACTION),
    option(
        "--topic",
        "The topic to create; else a pattern that whole names must match.",
        "NAME",
    ),
    option("--topic-id", "The topic to describe, by id; wins over --topic.", "ID"),
    option(
        "--partitions",
        "Partitions of the new topic, or with --alter the new total.  Default: the broker's.",
        "N",
        type=INT,
    ),
    option(
        "--replication-factor",
        "Brokers that keep each partition.  Default: the broker's.",
        "N",
        type=INT,
    ),
    option(
        "--replica-assignment",
        "The brokers of each partition, the preferred leader first.",
        "ID:ID,...",
    ),
    option(
        "--config",
        "A config of the new topic.  Repeatable.",
        "KEY=VALUE",
        multiple=True,
    ),
    option("--if-exists", "Let --alter, --delete and --describe ignore a missing topic."),
    option("--if-not-exists", "Let --create ignore a topic that already exists."),
    option("--exclude-internal", "Exclude internal topics from --list and --describe."),
    option(
        "--under-replicated-partitions", "Only those with a replica out of sync.", section=FILTERS
    ),
    option("--unavailable-partitions", "Only those without a live leader.", section=FILTERS),
    option(
        "--under-min-isr-partitions",
        "Only those with fewer replicas in sync than min.insync.replicas.",
        section=FILTERS,
    ),
    option(
        "--at-min-isr-partitions",
        "Only those with exactly min.insync.replicas in sync.",
        section=FILTERS,
    ),
    option(
        "--topics-with-overrides",
        "Only the headings of topics with configs of their own.",
        section=FILTERS,
    ),
    option(
        "--check",
        "End with status 3 if any partition is shown: one that the filters for partitions find, "
        "or without any, one out of sync, under its minimum or without a live leader.",
        section=FILTERS,
    ),
    option(
        "--partition-size-limit-per-response",
        f"Number of partitions per request.  Default: {PAGE_PARTITIONS}.",
        "N",
        type=INT,
    ),
    dry_run,
    yes,
    formatted(LIST, DESCRIBE, OVERRIDES),
    cluster,
    option("--delete-config", "Ignored, with a notice.", "KEY", section=OLDER),
    option("--zookeeper", "Ignored, with a notice.", "HOST:PORT,...", section=OLDER),
    option("--force", "The same as --yes.", instead="--yes", yields=True, section=OLDER),
    option("--disable-rack-aware", "Ignored.", section=OLDER),
)
def topics(options: Options) -> int:
    """Creates, lists, describes, grows and deletes topics.

    Exactly one action is required.  --list and --describe show all topics, or those whose whole
    name matches the pattern given with --topic; --alter and --delete act on every match, so quote
    names that hold a period: 'a\\.b'.

    --describe prints a heading for each topic and a line for each partition, with fields divided
    by tabs.  With one of the filters for partitions the headings are left out.
    """
    _check(options)
    if options.output is not None:
        with rows(options, _shape(options)) as out:
            return run(_act(options, out), options.timeout, CLUSTER)
    try:
        return run(_act(options), options.timeout, CLUSTER)
    except Declined:
        raise
    except EXPECTED as error:
        print_output(f"Error while executing topic command : {reason(error)}")
        return status_of(error)


def _shape(options: Options) -> RowShape:
    if options.list:
        return LIST
    return OVERRIDES if options.topics_with_overrides else DESCRIBE


async def _act(options: Options, out: Rows | None = None) -> int:
    from kcli.client.admin.admin import Admin

    async with Admin(admin_config(options)) as admin:
        if options.describe:
            has_unhealthy = await _describe(admin, options, out)
            return FOUND if has_unhealthy and options.check else DONE
        if options.list:
            await _list(admin, options, out)
        elif options.create:
            await _create(admin, options)
        elif options.alter:
            await _alter(admin, options)
        else:
            await _delete(admin, options)
    return DONE


async def _list(admin: Admin, options: Options, out: Rows | None) -> None:
    topics = await _matching(admin, options)
    if out is None:
        print_output("\n".join(topic.name for topic in topics))
        return
    for topic in topics:
        id = id_text(topic.id) if topic.id else None
        out.row(topic=topic.name, topic_id=id, internal=topic.is_internal)


async def _create(admin: Admin, options: Options) -> None:
    from kcli.client.admin.admin import NewTopic
    from kserver.errors import ErrorCode, KafkaError

    config = _topic_config(options.config)
    assignments = _assignments(options.replica_assignment)
    if "." in options.topic or "_" in options.topic:
        print_output(COLLISION)
    if options.replication_factor is not None and not (
        1 <= options.replication_factor <= MAX_REPLICATION_FACTOR
    ):
        raise Refused(
            f"The replication factor must be between 1 and {MAX_REPLICATION_FACTOR} inclusive"
        )
    if options.partitions is not None and options.partitions < 1:
        raise Refused("The partitions must be greater than 0")
    topic = NewTopic(
        options.topic,
        -1 if options.partitions is None else options.partitions,
        -1 if options.replication_factor is None else options.replication_factor,
        dict(enumerate(assignments)) if assignments else None,
        config,
    )
    created = (await admin.create_topics([topic], validate_only=options.dry_run))[topic.name]
    if not isinstance(created, KafkaError):
        if options.dry_run:
            would(f"create topic {topic.name}{_size(created)}")
        else:
            print_output(f"Created topic {topic.name}.")
    elif not (options.if_not_exists and created.code == ErrorCode.topic_already_exists):
        raise created


async def _alter(admin: Admin, options: Options) -> None:
    from kcli.client.admin.admin import NewPartitions

    assignments = _assignments(options.replica_assignment)
    names = await _existing(admin, options)
    new_assignments: dict[str, Any] = dict.fromkeys(names)
    if assignments:
        for name, topic in (await admin.describe_topics(names)).items():
            new_assignments[name] = assignments[len(unwrap(topic).partitions) :]
    raise_first(
        await admin.create_partitions(
            {name: NewPartitions(options.partitions, new_assignments[name]) for name in names},
            validate_only=options.dry_run,
        )
    )
    if options.dry_run:
        would(*(f"give topic {name} {options.partitions} partitions in all" for name in names))


async def _delete(admin: Admin, options: Options) -> None:
    names = await _existing(admin, options)
    steps = [f"delete topic {name} and all its records" for name in names]
    if options.dry_run:
        would(*steps)
    elif names:
        await confirm(options, *steps)
        raise_first(await admin.delete_topics(names))


def _size(created: CreatedTopic) -> str:
    """Return "" if the broker does not report it."""
    if created.partitions < 0:
        return ""
    return f": partitions {created.partitions}, replication factor {created.replication_factor}"


async def _describe(admin: Admin, options: Options, out: Rows | None) -> bool:
    """Print topics, and return whether any partition was shown."""
    has_partitions = False
    async for view in _views(admin, options):
        has_partitions = has_partitions or any(True for _ in view.partitions())
        if out is None:
            for line in topic_lines.lines(view, options.topics_with_overrides):
                print_output(line)
        elif not options.topics_with_overrides:
            for row in topic_lines.rows(view):
                out.row(**row)
        elif view.overrides:
            out.row(**topic_lines.override_row(view))
    return has_partitions


async def _describe_topics(admin: Admin, options: Options) -> list[TopicDescription]:
    """Return the requested topics."""
    id = None if options.topic_id is None else topic_id(options.topic_id)
    if id:
        listed = await admin.list_topics(include_internal=not options.exclude_internal)
        ids = [id] if id in {topic.id for topic in listed} else []
        if not ids and not options.if_exists:
            raise Refused(f"TopicId '{options.topic_id}' does not exist as expected")
        descriptions = [*(await admin.describe_topics_by_id(ids)).values()]
    else:
        page = options.partition_size_limit_per_response or PAGE_PARTITIONS
        names = await _existing(admin, options)
        descriptions = [*(await admin.describe_topics(names, page_size=page)).values()]
    return [unwrap(topic) for topic in descriptions]


async def _views(admin: Admin, options: Options) -> AsyncIterator[topic_lines.View]:
    from kcli.client.admin.admin import ResourceType

    topics = await _describe_topics(admin, options)
    if not topics:
        return
    names = [(ResourceType.TOPIC, topic.name) for topic in topics]
    configs = await admin.describe_configs(names)
    live = {node.id for node in (await admin.describe_cluster()).brokers}
    moves = await admin.list_reassignments()
    reports = [name for name in REPORTS if is_set(options, name)]
    if options.check and not reports:
        reports = list(UNHEALTHY)
    for topic, name in zip(topics, names, strict=True):
        yield topic_lines.View(topic, unwrap(configs[name]), moves, live, reports)


async def _matching(admin: Admin, options: Options) -> list[TopicListing]:
    matches = (lambda _: True) if options.topic is None else name_filter(options.topic)
    listed = await admin.list_topics(include_internal=not options.exclude_internal)
    return [topic for topic in listed if matches(topic.name)]


async def _existing(admin: Admin, options: Options) -> list[str]:
    names = [topic.name for topic in await _matching(admin, options)]
    if options.topic and not names and not options.if_exists:
        raise Refused(f"Topic '{options.topic}' does not exist as expected")
    return names


def _topic_config(pairs: Sequence[str]) -> dict[str, str]:
    split = [re.split(r"\s*=\s*", pair) for pair in pairs]
    if any(len(parts) != 2 or not parts[1] for parts in split):
        raise Refused(
            "requirement failed: Invalid topic config: all configs to be added must be in the "
            'format "key=val".'
        )
    return {key.strip(): value.strip() for key, value in split}


def _assignments(text: str | None) -> list[list[int]]:
    """Parse `1:2,2:3`: the replicas of partition 0, then those of partition 1."""
    assignments: list[list[int]] = []
    for part in text.split(",") if text else ():
        replicas = [_broker_id(word.strip()) for word in part.split(":")]
        twice = sorted({str(id) for id in replicas if replicas.count(id) > 1})
        if twice:
            raise Refused(
                f"Partition replica lists may not contain duplicate entries: {','.join(twice)}"
            )
        assignments.append(replicas)
        if len(replicas) != len(assignments[0]):
            raise Refused(
                f"Partition {len(assignments) - 1} has different replication factor: {replicas}"
            )
    return assignments


def _broker_id(word: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", word):
        raise Refused(f'For input string: "{word}"')
    return int(word)


def _check(options: Options) -> None:
    """Check the rules between options, in Kafka's order and words."""
    actions = [name for name in ACTIONS if getattr(options, name)]
    if len(actions) != 1:
        refuse(
            "Command must include exactly one action: --list, --describe, --create, --alter or "
            "--delete"
        )
    if options.zookeeper is not None:
        if options.bootstrap_server is None and SERVER_VARIABLE not in os.environ:
            refuse("--zookeeper is not supported; use --bootstrap-server")
        complain("--zookeeper is ignored; --bootstrap-server is used.")
    if options.delete_config is not None:
        complain("--delete-config is ignored: k configs --alter --delete-config deletes settings.")
    if (
        options.describe
        and options.if_exists
        and options.topic is None
        and options.topic_id is None
    ):
        refuse("--topic or --topic-id is required to describe a topic")
    if not options.list and not options.describe:
        require(options, "topic")
    if options.alter:
        if options.config:
            refuse(
                'Option combination "[[config], [bootstrap-server]]" can\'t be used with option '
                f'"[alter]"{SEE_CONFIGS}'
            )
        require(options, "partitions")
    _only_with(options, "config", "alter", "create")
    _only_with(options, "partitions", "alter", "create")
    _only_with(options, "replication-factor", "create")
    _only_with(options, "replica-assignment", "alter", "create")
    if options.create:
        exclude(options, "replica-assignment", ("partitions", "replication-factor"))
    for report in REPORTS:
        exclude(options, report, ("topics-with-overrides",))
        _only_with(options, report, "describe")
    _only_with(options, "topics-with-overrides", "describe")
    _only_with(options, "if-exists", "alter", "delete", "describe")
    _only_with(options, "if-not-exists", "create")
    _only_with(options, "dry-run", "create", "alter", "delete")
    _only_with(options, "exclude-internal", "list", "describe")
    _only_with(options, "output", "list", "describe")
    _only_with(options, "check", "describe")
    exclude(options, "check", ("topics-with-overrides",))


def _only_with(options: Options, name: str, *actions: str) -> None:
    exclude(options, name, [action for action in ACTIONS if action not in actions])
