"""`k consumer-groups`: list, describe and delete groups of consumers, and set their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.command_runner import CLUSTER, EXPECTED, admin_config, reason, run, status_of
from kcli.command.options import (
    CONNECTION,
    LONG,
    Declined,
    bootstrap_server,
    command_config,
    exclude,
    is_set,
    option,
    option_group,
    refuse,
    yes,
)
from kcli.command.output import complain, print_output
from kcli.command.statuses import DONE, FOUND
from kcli.groups import regex
from kcli.groups.group_queries import list_groups
from kcli.groups.group_shapes import (
    LIST,
    MEMBERS,
    OFFSETS,
    RESET,
    STATE,
    STATES,
    TYPES,
    WATCH,
)
from kcli.groups.lag import Look, left_behind
from kcli.groups.offset_reset import NO_EXECUTE, SCENARIOS
from kcli.rows.listing import Rows, formatted, rows
from kcli.rows.shapes import RowShape

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
LIVE = ("watch", "until-lag")
VIEWS = ("members", "offsets", "state")
ACTION = "Action (one of)"
VIEW = "What --describe shows"
SCOPE = "What --reset-offsets sets, and to what"

MANUAL = Manual(
    kafka="kafka-consumer-groups.sh",
    examples=(
        ("k consumer-groups --list --state", "All consumer groups and their states."),
        ("k consumer-groups --describe --group billing", "The lag of a group."),
        ("k consumer-groups --describe --group billing --watch", "The same, updated continuously."),
        (
            "k consumer-groups --describe --group billing --until-lag 0 --timeout 5m",
            "Continue in a script when all records are read, or fail after five minutes.",
        ),
        (
            "k consumer-groups --reset-offsets --group billing --topic orders --to-earliest "
            "--dry-run",
            "Show what would be read again.",
        ),
        (
            "k consumer-groups --reset-offsets --group billing --topic orders:0,1 --shift-by -10 "
            "--execute",
            "Read the last ten records of two partitions again.",
        ),
        (
            "k consumer-groups --reset-offsets --group billing --all-topics --to-current --dry-run "
            "--export > offsets.csv",
            "Save the committed offsets of a group in a file.",
        ),
        (
            "k consumer-groups --reset-offsets --group billing --from-file offsets.csv --execute",
            "Restore these offsets.",
        ),
        ("k consumer-groups --delete --group billing", "Delete a group that has no members."),
    ),
    statuses=((FOUND, "With --validate-regex: the pattern is not valid."),),
    differences=(
        "An action that is refused or fails ends with exit status 1: for a group that does not "
        "exist, that could not be deleted, or that has active members when its offsets are "
        "reset.  Kafka's tool ends with 0.",
        "--timeout limits the whole command, not each of its requests, and accepts units; "
        "without it, each request may take default.api.timeout.ms.",
        "Rows are sorted by group, topic and partition; Kafka's tool has no order.",
        "A partition whose topic was deleted is shown without an end offset; Kafka's tool fails.",
        "--to-datetime also accepts a time without milliseconds.",
        "--delete and --delete-offsets accept --dry-run, and ask first if standard input and "
        "error are a terminal; --yes deletes without asking.",
        "--zookeeper, --new-consumer and --new-group of older releases are not supported.",
    ),
    see_also=("k-groups", "k-get-offsets", "k-console-consumer"),
)


@command(manual=MANUAL)
@option_group(
    option("--list", "Print the names of groups.", section=ACTION),
    option("--describe", "Print the offsets, lag and members of groups.", section=ACTION),
    option("--delete", "Delete groups and their committed offsets.", section=ACTION),
    option("--reset-offsets", "Reset the committed offsets of groups.", section=ACTION),
    option(
        "--delete-offsets",
        "Delete the committed offsets of a group for the topics of --topic.",
        section=ACTION,
    ),
    option(
        "--validate-regex",
        "Check whether a pattern is a valid subscription pattern on a broker (RE2).",
        "PATTERN",
        section=ACTION,
    ),
    option("--group", "The group.  Repeatable.", "NAME", multiple=True),
    option("--all-groups", "All consumer groups."),
    option("--offsets", "Its committed offset in each partition; the default.", section=VIEW),
    option("--members", "Its members.", section=VIEW),
    option(
        "--state",
        "Its state.  With --list: show states, or only groups in some of them: "
        f"{', '.join(STATES)}.",
        "[STATE,...]",
        if_bare="",
        section=VIEW,
    ),
    option("--verbose", "Also print epochs and assignments.", section=VIEW),
    option(
        "--watch",
        "Refresh every second, or at this interval (seconds, or with a unit: 500ms, 2s, 5m): lag "
        "in records and in seconds, and its trend.",
        "[TIME]",
        type=Duration(),
        if_bare="1s",
        section=VIEW,
    ),
    option(
        "--until-lag",
        "Wait until no group has more than this many records to read.",
        "N",
        type=LONG,
        section=VIEW,
    ),
    option(
        "--type",
        f"With --list: show types, or only groups of some: {', '.join(TYPES)}.",
        "[TYPE,...]",
        if_bare="",
        section=VIEW,
    ),
    option(
        "--topic",
        "A topic, or some of its partitions as TOPIC:N,N; also for --delete-offsets.  Repeatable.",
        "TOPIC",
        multiple=True,
        section=SCOPE,
    ),
    option("--all-topics", "All topics for which the group has committed offsets.", section=SCOPE),
    option("--to-earliest", "To the start of partitions.", section=SCOPE),
    option("--to-latest", "To the end of partitions.", section=SCOPE),
    option("--to-current", "To the committed offsets.", section=SCOPE),
    option(
        "--to-offset", "To this offset, within the range of the log.", "N", type=LONG, section=SCOPE
    ),
    option(
        "--shift-by",
        "Forward by this many offsets; backward if negative.",
        "N",
        type=LONG,
        section=SCOPE,
    ),
    option(
        "--to-datetime",
        "To the first record at or after YYYY-MM-DDThh:mm:ss.sss, in UTC unless Z, +hh or +hh:mm "
        "follows.",
        "TIME",
        section=SCOPE,
    ),
    option(
        "--by-duration",
        "To the first record that is not older than this duration: PnDTnHnMnS.",
        "TIME",
        section=SCOPE,
    ),
    option("--from-file", "To the offsets in a file that --export wrote.", "FILE", section=SCOPE),
    option("--execute", "Reset the offsets; without it, only show the plan.", section=SCOPE),
    option("--export", "Print the plan as CSV, for --from-file.", section=SCOPE),
    option("--dry-run", "Check and print the changes, but change nothing."),
    yes,
    formatted(LIST, OFFSETS, MEMBERS, STATE, WATCH, RESET),
    bootstrap_server,
    command_config,
    option(
        "--timeout",
        "Give up after this long, with exit status 124: milliseconds, or with a unit: 500ms, 2s, "
        "5m.",
        "TIME",
        type=Duration("ms"),
        section=CONNECTION,
    ),
)
def consumer_groups(options: Options) -> int:
    """Lists, describes and deletes consumer groups, and resets their committed offsets.

    Exactly one action is required.  --describe, --delete and --reset-offsets act on the groups of
    --group or on --all-groups.  Offsets can be reset only while a group has no members.

    --until-lag is for scripts: it ends with 0 when the groups have reached this lag, or with 124 if
    --timeout expires first.  A group counts as soon as it is not rebalancing; for a partition
    without a committed offset, the lag is all its records.  Records that retention has deleted are
    not part of the lag, with --watch neither; without these options the lag is that of Kafka's
    tool, which counts them.  A group that does not exist is refused at once.
    """
    states, types = _check(options)
    if options.validate_regex is not None:
        return _validate_regex(options.validate_regex)
    awaited = CLUSTER
    if options.watch is not None:
        awaited = ""
    elif options.until_lag is not None:
        awaited = f"a lag of {options.until_lag:,}"

    def act(out: Rows | None) -> int:
        last: list[Look] = []
        try:
            return run(_act(options, states, types, out, last), options.timeout, awaited)
        except TimeoutError as error:
            if options.until_lag is None or not last:
                raise
            raise TimeoutError(f"{error}: {left_behind(last, options.until_lag)}") from error

    if options.output is not None:
        with rows(options, _shape(options)) as out:
            return act(out) or out.status
    try:
        return act(None)
    except Declined:
        raise
    except EXPECTED as error:
        print_output(f"\nError: Executing consumer group command failed due to {reason(error)}")
        return status_of(error)


def _shape(options: Options) -> RowShape:
    if options.reset_offsets:
        return RESET
    if options.list:
        return LIST
    if options.watch is not None:
        return WATCH
    if options.members:
        return MEMBERS
    return OFFSETS if options.state is None else STATE


async def _act(
    options: Options,
    states: list[str],
    types: list[str],
    out: Rows | None,
    last: list[Look],
) -> int:
    from kcli.client.admin.admin import Admin
    from kcli.groups import deletion, description, lag_watch, offset_reset

    async with Admin(admin_config(options)) as admin:
        if options.list:
            await description.print_list(admin, options, states, types, out)
            return DONE
        if options.delete_offsets:
            return await deletion.delete_offsets(admin, options, options.group[0])
        if options.watch is not None or options.until_lag is not None:
            await lag_watch.watch(admin, options, lambda: _groups(admin, options), out, last)
            if options.watch is not None:
                return DONE
        names = await _groups(admin, options)
        if options.describe:
            return await description.print_description(admin, options, names, out)
        if options.delete:
            return await deletion.delete(admin, options, names)
        return await offset_reset.reset(admin, options, names, out)


async def _groups(admin: Admin, options: Options) -> list[str]:
    if options.all_groups:
        return sorted(group.group for group in await list_groups(admin))
    return list(dict.fromkeys(options.group))


def _validate_regex(pattern: str) -> int:
    wrong = regex.wrong(pattern)
    if wrong is None:
        print_output(f"The regular expression `{pattern}` is valid.")
        return DONE
    print_output(f"The regular expression `{pattern}` is invalid: {wrong}.")
    return FOUND


def _check(options: Options) -> tuple[list[str], list[str]]:
    """Check the rules between options; return the states and types for --list."""
    for name, actions in (
        *((name, ("describe",)) for name in ("members", "offsets", "verbose", *LIVE)),
        ("state", ("describe", "list")),
        ("type", ("list",)),
    ):
        if is_set(options, name) and not any(is_set(options, action) for action in actions):
            refuse(f"Option(s) [{name}] are unavailable given other options on the command line")
    for action in ("describe", "delete", "reset-offsets"):
        if is_set(options, action):
            _check_action(options, action)
            if not options.group and not options.all_groups:
                refuse(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if options.delete_offsets:
        if not options.group or not options.topic:
            refuse("Option [delete-offsets] takes the following options: [group], [topic]")
        if len(options.group) > 1:
            refuse("Found multiple arguments for option group, but you asked for only one")
    for scenario in SCENARIOS if options.reset_offsets else ():
        exclude(options, scenario, [other for other in SCENARIOS if other != scenario])
    exclude(options, "group", ("all-groups", "list"))
    exclude(options, "topic", ("list", "describe"))
    for action in ("delete", "delete-offsets", "validate-regex"):
        exclude(options, "output", (action,))
    exclude(options, "output", ("export",))
    if sum(is_set(options, action) for action in ACTIONS) != 1:
        refuse(f"Command must include exactly one action: --{', --'.join(ACTIONS)}")
    if not options.list:
        return [], []
    return _choices("state", options.state, STATES), _choices("type", options.type, TYPES)


def _check_action(options: Options, action: str) -> None:
    if action == "describe":
        if sum(is_set(options, view) for view in VIEWS) > 1:
            names = ", ".join(f"[{view}]" for view in VIEWS)
            refuse(f"Option [describe] takes at most one of these options: {names}")
        if options.state:
            refuse("Option [describe] does not take a value for [state]")
        for name in LIVE:
            exclude(options, name, ("members", "state"))
        if options.until_lag is not None and options.until_lag < 0:
            refuse("--until-lag must be a number of records, at least 0")
    if action == "delete" and options.topic:
        refuse(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if action == "reset-offsets":
        if options.dry_run and options.execute:
            refuse("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not options.dry_run and not options.execute:
            complain(NO_EXECUTE)


def _choices(kind: str, text: str | None, valid_names: tuple[str, ...]) -> list[str]:
    """Parse a list of words in any case, into Kafka's spelling."""
    if not text:
        return []
    by_name = {name.lower(): name for name in valid_names}
    choices = [by_name.get(word.strip().lower()) for word in text.split(",")]
    if None in choices:
        plural = "types" if kind == "type" else kind  # Kafka's two messages differ
        refuse(f"Invalid {plural} list '{text}'. Valid {kind}s are: {', '.join(valid_names)}")
    return [name for name in choices if name is not None]
