"""`k reassign-partitions`: moves partitions to other brokers, and replicas to other disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kcli.command import json_file
from kcli.command.command import OLDER, Manual, Milliseconds, Options, command
from kcli.command.command_runner import CLUSTER, EXPECTED, admin_config, run, status_of
from kcli.command.options import (
    CONNECTION,
    INT,
    LONG,
    bootstrap_server,
    command_config,
    dry_run,
    is_set,
    option,
    option_group,
    refuse,
    require,
)
from kcli.command.output import print_output
from kcli.command.statuses import DONE
from kcli.rows.listing import Rows, formatted, rows
from kcli.rows.shapes import RowField, RowShape

PLANS = ("evacuate", "rebalance", "set-rf", "racks")
BATCH = 50

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.reassignment.actions import Verified
    from kcli.reassignment.plans import ReassignmentPlan

ACTION = "Action (one of)"
PLANNING = "Plans of k"
ACTIONS = ("generate", "execute", "verify", "cancel", "list")
NO_THROTTLE = -1
TIMEOUT_MS = 10_000
CLIENT_ID = "reassign-partitions-tool"

PLAN = "reassignment-json-file"
TOPICS = "topics-to-move-json-file"
NEEDS: Mapping[str, Sequence[str]] = {
    "generate": (TOPICS, "broker-list"),
    "execute": (PLAN,),
    "verify": (PLAN,),
    "cancel": (PLAN,),
    "list": (),
}
TAKES: Mapping[str, Sequence[str]] = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
        "dry-run",
    ),
    "verify": ("preserve-throttles", "output"),
    "cancel": ("bootstrap-controller", "preserve-throttles", "timeout", "dry-run"),
    "list": ("bootstrap-controller", "output"),
}
"""The optional options of each action, in addition to those of all."""
OPTIONAL = dict.fromkeys(name for names in (*NEEDS.values(), *TAKES.values()) for name in names)

OF_PLANS = ("replication-factor", "topic", "batch", "journal")
"""Options that require --plan, --resume or --undo."""

MANUAL = Manual(
    kafka="kafka-reassign-partitions.sh",
    examples=(
        (
            'echo \'{"topics": [{"topic": "orders"}]}\' > topics.json; '
            "k reassign-partitions --generate --topics-to-move-json-file topics.json "
            "--broker-list 1,2,3",
            "Print the current assignment of a topic, and one that spreads it over three brokers.",
        ),
        (
            "k reassign-partitions --execute --reassignment-json-file plan.json "
            "--throttle 10000000",
            "Start the moves of a plan, at 10 MB/s.",
        ),
        (
            "k reassign-partitions --verify --reassignment-json-file plan.json",
            "Print their progress; remove the throttles of moves that are complete.",
        ),
        (
            "k reassign-partitions --plan rebalance",
            "Print a plan that balances the brokers, as a table.",
        ),
        (
            "k reassign-partitions --plan evacuate --broker-list 3 --throttle 10000000 --execute",
            "Move all replicas off a broker at 10 MB/s, and wait for the end.",
        ),
        ("k reassign-partitions --list -o table", "All partitions that are being moved."),
        (
            "k reassign-partitions --cancel --reassignment-json-file plan.json",
            "Cancel the moves and restore the previous replicas.",
        ),
    ),
    differences=(
        "An error is printed in one line, without a Java stack trace; for an invalid file it "
        "names the invalid entry.",
        "An invalid argument ends with exit status 2; if no broker answers, it is 124.",
        "--generate places replicas as Kafka 3.9 does, with a random start as there; brokers "
        "that do not exist are named on standard error.",
        "Topics whose throttles are cleared, and partitions that are not found, are printed in "
        "the order of their names.",
        "The rollback plan has the log directories of the replicas, as in Kafka 4.3; 3.9 prints "
        "any.",
        "--cancel cancels every move of the plan, as in Kafka 4.3; 3.9 skips moves that only add "
        "replicas.",
        "If a replica of the plan is on a broker that does not exist, --verify reports it at "
        "once; Kafka's tool waits for a minute and fails.  A partition that does not exist is "
        "reported as having no replicas.",
        "If a broker refuses a log directory, its reason is printed.",
        "--zookeeper of kafka-reassign-partitions.sh until 2.8 is refused: use --bootstrap-server.",
        "Without --bootstrap-server and --bootstrap-controller, the usual default is used.",
    ),
    see_also=("k-topics", "k-log-dirs", "k-configs"),
)

LIST = RowShape(
    "k.reassign-partitions.list",
    1,
    "A partition that is being moved.",
    (
        RowField("topic", "string", "Its topic."),
        RowField("partition", "integer", "Its number."),
        RowField("replicas", "list of integer", "Its current and future replicas."),
        RowField("adding", "list of integer", "The replicas that are being added."),
        RowField("removing", "list of integer", "The replicas that are being removed."),
    ),
)
VERIFY = RowShape(
    "k.reassign-partitions.verify",
    1,
    "A partition of the plan, or one of its replicas with a log directory in the plan.",
    (
        RowField("topic", "string", "Its topic."),
        RowField("partition", "integer", "Its number."),
        RowField("broker", "integer or null", "The broker of the replica; null for the partition."),
        RowField(
            "state",
            "string",
            "completed; active while it is being moved; or other if it differs from the plan and "
            "is not being moved there.",
        ),
        RowField("replicas", "list of integer or null", "Current replicas of the partition."),
        RowField("target_replicas", "list of integer or null", "Replicas in the plan."),
        RowField(
            "log_dir",
            "string or null",
            "Current log directory of the replica; null if it is not found.",
        ),
        RowField("future_log_dir", "string or null", "Log directory to which it is being moved."),
        RowField("target_log_dir", "string or null", "Log directory in the plan."),
    ),
)


PLANNED = RowShape(
    "k.reassign-partitions.plan",
    1,
    "A broker, before and after --plan.",
    (
        RowField("broker", "integer", "Its id."),
        RowField("rack", "string or null", "Its rack."),
        RowField("leaders", "integer", "Partitions of which it is the preferred leader."),
        RowField("leaders_after", "integer", "The same after the plan."),
        RowField("replicas", "integer", "Replicas on it."),
        RowField("replicas_after", "integer", "The same after the plan."),
        RowField("bytes", "integer", "Bytes of its replicas."),
        RowField("bytes_after", "integer", "The same after the plan."),
    ),
)


@command(manual=MANUAL)
@option_group(
    option("--generate", "Print a plan that spreads topics over brokers.", section=ACTION),
    option("--execute", "Start the moves of a plan.", section=ACTION),
    option(
        "--verify",
        "Print the progress of a plan, and remove the throttles once no partition is being moved.",
        section=ACTION,
    ),
    option("--cancel", "Cancel the moves of a plan, and remove the throttles.", section=ACTION),
    option("--list", "Print all partitions that are being moved.", section=ACTION),
    option("--reassignment-json-file", "The plan.  See above.", "FILE"),
    option("--topics-to-move-json-file", "The topics for --generate.  See above.", "FILE"),
    option(
        "--broker-list",
        "The brokers that --generate spreads over, or that --plan evacuate empties.",
        "ID,...",
    ),
    option("--disable-rack-aware", "Let --generate ignore racks."),
    option(
        "--throttle",
        "Maximum bytes per second between brokers, for all moves of --execute.",
        "N",
        type=LONG,
    ),
    option(
        "--replica-alter-log-dirs-throttle",
        "Maximum bytes per second between the log directories of a broker.",
        "N",
        type=LONG,
    ),
    option(
        "--timeout",
        "How long --execute and --cancel wait for moves between log directories to start: "
        f"milliseconds, or with a unit: 2s, 5m.  Default: {TIMEOUT_MS}.",
        "TIME",
        type=Milliseconds(),
    ),
    option(
        "--additional",
        "Let --execute start moves in addition to active ones, or change the throttle of active "
        "ones.",
    ),
    option(
        "--disallow-replication-factor-change",
        "Let --execute refuse a change of the replication factor.",
    ),
    option("--preserve-throttles", "Keep the throttles."),
    option(
        "--plan",
        "Make a plan from the current replicas and their sizes that moves the fewest bytes: "
        "evacuate the brokers of --broker-list; rebalance leaders, replicas and bytes; set-rf, "
        "to --replication-factor; or spread over racks.  With --execute, run the plan.",
        "|".join(PLANS),
        type=click.Choice(PLANS),
        section=PLANNING,
    ),
    option("--replication-factor", "For set-rf.", "N", type=INT, section=PLANNING),
    option(
        "--topic",
        "For set-rf: the topics.  Default: all except internal ones.",
        "REGEX",
        section=PLANNING,
    ),
    option(
        "--batch",
        f"Number of partitions to move at a time.  Default: {BATCH}.",
        "N",
        type=INT,
        section=PLANNING,
    ),
    option(
        "--journal",
        "File in which --execute records its progress.  Default: reassignment-CLUSTER.json in "
        "$XDG_STATE_HOME/k, or ~/.local/state/k.",
        "FILE",
        section=PLANNING,
    ),
    option("--resume", "Continue an interrupted plan.", section=PLANNING),
    option("--undo", "Undo the completed part of an interrupted plan.", section=PLANNING),
    dry_run,
    formatted(LIST, VERIFY, PLANNED),
    bootstrap_server,
    option(
        "--bootstrap-controller",
        "KRaft controllers to connect to instead; with --cancel and --list.",
        "HOST:PORT,...",
        section=CONNECTION,
    ),
    command_config,
    option("--zookeeper", "Refused.", "HOST:PORT,...", section=OLDER),
)
def reassign_partitions(options: Options) -> int:
    """Moves partitions to other brokers, and replicas to other log directories.

    A plan is {"version": 1, "partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2],
    "log_dirs": ["any", "/d1"]}]}: the first replica is the preferred leader; version and log_dirs
    may be left out.  The input of --generate is {"topics": [{"topic": "foo"}]}.

    --execute first prints the current assignment as a plan for a rollback.  Moves continue in the
    background, while records are written and read.  Throttles stay until --verify finds no
    partition of the cluster being moved, or until --cancel; --preserve-throttles keeps them.

    --plan is an addition of k: it prints the load of each broker before and after.  With --execute
    it moves partitions batch by batch, waits for each batch, and always removes the throttles at
    the end.  Its progress is recorded in a journal.  After an interruption, also by Ctrl-C or kill
    -9, --resume continues and --undo reverts.
    """
    if options.plan is not None or options.resume or options.undo:
        return _execute_plan(options)
    action = _check(options)
    if options.bootstrap_controller is not None:
        options.bootstrap_server = options.bootstrap_controller
    work = {
        "generate": _generate,
        "execute": _execute,
        "verify": _verify,
        "cancel": _cancel,
        "list": _list,
    }[action]
    if options.output is not None:
        with rows(options, VERIFY if options.verify else LIST) as out:
            return run(work(options, out), None, CLUSTER)
    try:
        return run(work(options, None), None, CLUSTER)
    except EXPECTED as error:
        from kcli.reassignment.actions import error_text

        print_output(error_text(error))
        return status_of(error)


def _execute_plan(options: Options) -> int:
    _check_plan(options)
    if options.output is None:
        return run(_plan(options, None), None, CLUSTER)
    with rows(options, PLANNED) as out:
        return run(_plan(options, out), None, CLUSTER)


async def _plan(options: Options, out: Rows | None) -> int:
    from kcli.reassignment import planned

    async with _admin(options) as admin:
        if options.resume:
            await planned.resume(admin, options)
        elif options.undo:
            await planned.undo(admin, options)
        else:
            await planned.plan(admin, options, out)
    return DONE


def _check_plan(options: Options) -> None:
    """Check the options of --plan, --resume or --undo."""
    what = [name for name in ("plan", "resume", "undo") if is_set(options, name)]
    if len(what) != 1:
        refuse(" and ".join(f"--{name}" for name in what) + " cannot be used together")
    takes = {"bootstrap-server", "command-config", "journal", *what}
    if options.plan is not None:
        takes |= {"execute", "throttle", "batch", "output"}
        needs = {"evacuate": ("broker-list",), "set-rf": ("replication-factor",)}
        require(options, *needs.get(options.plan, ()))
        takes.update(needs.get(options.plan, ()), ("topic",) if options.plan == "set-rf" else ())
    of_all = {*OPTIONAL, *ACTIONS, "bootstrap-controller", "zookeeper", *OF_PLANS}
    for name in sorted(of_all - takes):
        if is_set(options, name):
            refuse(f"--{name} is not allowed with --{what[0]}")
    for name in ("throttle", "batch", "replication-factor"):
        if is_set(options, name) and getattr(options, name.replace("-", "_")) <= 0:
            refuse(f"--{name} must be a positive number")
    options.batch = options.batch or BATCH


def _check(options: Options) -> str:
    """Check the rules between options, in Kafka's order and words; return the action."""
    if options.zookeeper is not None:
        refuse("--zookeeper is not supported; use --bootstrap-server")
    actions = [name for name in ACTIONS if getattr(options, name)]
    if len(actions) != 1:
        refuse(
            "Command must include exactly one action: " + ", ".join(f"--{name}" for name in ACTIONS)
        )
    (action,) = actions
    for name in OF_PLANS:
        if is_set(options, name):
            refuse(f"--{name} is only allowed with --plan")
    if is_set(options, "bootstrap-server") and is_set(options, "bootstrap-controller"):
        refuse("Please don't specify both --bootstrap-server and --bootstrap-controller")
    require(options, *NEEDS[action])
    for name in OPTIONAL:
        if name not in (*NEEDS[action], *TAKES[action]) and is_set(options, name):
            refuse(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


def _admin(options: Options) -> Admin:
    from kcli.client.admin.admin import Admin

    return Admin(admin_config(options, client_id=CLIENT_ID))


def _plan_in_file(options: Options) -> ReassignmentPlan:
    from kcli.reassignment import plans

    path = options.reassignment_json_file
    return plans.plan_of(json_file.read(path), path)


async def _generate(options: Options, _: Rows | None) -> int:
    from random import Random

    from kcli.reassignment import actions, plans

    async with _admin(options) as admin:
        path = options.topics_to_move_json_file
        document, brokers = json_file.read(path), plans.brokers_of(options.broker_list)
        await actions.generate(
            admin,
            plans.topics_of(document, path),
            brokers,
            Random(),
            rack_aware=not options.disable_rack_aware,
        )
    return DONE


async def _execute(options: Options, _: Rows | None) -> int:
    from kcli.reassignment import actions

    limits = actions.Limits(
        _or(options.throttle, NO_THROTTLE),
        _or(options.replica_alter_log_dirs_throttle, NO_THROTTLE),
        _or(options.timeout, TIMEOUT_MS) / 1000,
        options.additional,
        not options.disallow_replication_factor_change,
    )
    async with _admin(options) as admin:
        await actions.execute(admin, _plan_in_file(options), limits, dry_run=options.dry_run)
    return DONE


async def _verify(options: Options, out: Rows | None) -> int:
    from kcli.reassignment import actions

    async with _admin(options) as admin:
        plan = _plan_in_file(options)
        verification = await actions.verify(admin, plan)
        if out is None:
            actions.print_status(verification)
        else:
            _print(verification, out)
        if not verification.any_active and not options.preserve_throttles:
            await actions.clear_throttles(admin, plan, quietly=out is not None)
    return DONE


async def _cancel(options: Options, _: Rows | None) -> int:
    from kcli.reassignment import actions

    async with _admin(options) as admin:
        await actions.cancel(
            admin,
            _plan_in_file(options),
            _or(options.timeout, TIMEOUT_MS) / 1000,
            preserve_throttles=options.preserve_throttles,
            dry_run=options.dry_run,
        )
    return DONE


async def _list(options: Options, out: Rows | None) -> int:
    from kcli.reassignment import actions

    async with _admin(options) as admin:
        reassignments = await admin.list_reassignments()
    if out is None:
        actions.print_reassignments(reassignments)
        return DONE
    for (topic, number), reassignment in sorted(reassignments.items()):
        out.row(
            topic=topic,
            partition=number,
            replicas=list(reassignment.replicas),
            adding=list(reassignment.adding),
            removing=list(reassignment.removing),
        )
    return DONE


def _print(verification: Verified, out: Rows) -> None:
    nowhere = dict.fromkeys(("log_dir", "future_log_dir", "target_log_dir"))
    for (topic, number), state in verification.partitions.items():
        out.row(
            topic=topic,
            partition=number,
            broker=None,
            state=_state(state.is_active, state.is_completed),
            replicas=list(state.replicas),
            target_replicas=list(state.target),
            **nowhere,
        )
    for replica, move in verification.log_dirs.items():
        out.row(
            topic=replica.partition.topic,
            partition=replica.partition.partition,
            broker=replica.broker,
            state=_state(move.future == move.target, move.is_done and move.current == move.target),
            replicas=None,
            target_replicas=None,
            log_dir=move.current,
            future_log_dir=move.future,
            target_log_dir=move.target,
        )


def _state(is_active: bool, is_completed: bool) -> str:
    return "active" if is_active else "completed" if is_completed else "other"


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
