"""The actions of `k reassign-partitions`: their requests and their output.

Order and texts are those of Kafka's tool. That tool prints `PlainError` errors as they are; other
errors begin with "Error: ".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from kcli.client.admin.admin import Admin, TopicDescription
from kcli.client.admin.descriptions import Reassignment
from kcli.client.errors import ClusterUnreachable, TimedOut
from kcli.command.command_runner import raise_first, reason, unwrap
from kcli.command.error_texts import exception
from kcli.command.options import Refused
from kcli.command.output import complain, print_output, would
from kcli.reassignment import throttles
from kcli.reassignment.plans import (
    ReassignmentPlan,
    TopicPartitionReplica,
    executable,
    plan_text,
    proposed,
)
from kcli.reassignment.states import (
    LogDirMove,
    ReassignmentState,
    joined,
    log_dir_moves,
    partition_states,
    places,
    reassignment_line,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, TopicPartition

ASK_AGAIN_S = 0.1
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
VERIFY_PERIODICALLY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed."
)

Current = dict[TopicPartition, tuple[BrokerId, ...]]


class PlainError(Refused):
    """An error that Kafka's tool prints without "Error: "."""


class Verified(NamedTuple):
    partitions: dict[TopicPartition, ReassignmentState]
    log_dirs: dict[TopicPartitionReplica, LogDirMove]
    any_active: bool
    """A partition of the cluster, not only of the plan, is being reassigned, or a replica of the
    plan is not in a directory yet.
    """


class Limits(NamedTuple):
    """Limits of --execute; bytes per second, negative for none."""

    throttle: int
    log_dirs_throttle: int
    timeout_s: float
    additional: bool
    allow_replication_factor_change: bool


async def generate(
    admin: Admin,
    names: Sequence[str],
    brokers: Sequence[BrokerId],
    random: Random,
    *,
    rack_aware: bool,
) -> None:
    """Print the present assignment of the topics, and a proposed one."""
    current = await _replicas_of_topics(admin, names)
    log_dirs = await _log_dirs(admin, current)
    racks = await _racks(admin, brokers, rack_aware=rack_aware)
    most = max(1, len(racks))
    starts = {name: (random.randrange(most), random.randrange(most)) for name in names}
    plan = proposed(current, racks, starts)
    print_output(f"Current partition replica assignment\n{plan_text(current, log_dirs)}\n")
    print_output(f"Proposed partition reassignment configuration\n{plan_text(plan)}")


async def execute(admin: Admin, plan: ReassignmentPlan, limits: Limits, *, dry_run: bool) -> None:
    """Begin the moves of a plan."""
    executable(plan)
    reassignments = await admin.list_reassignments()
    if reassignments and not limits.additional:
        raise PlainError(EXISTING)
    await _check_brokers(admin, plan)
    current = await _replicas_of_partitions(admin, plan.assignment)
    if dry_run:
        _preview(plan, current)
        return
    print_output("Current partition replica assignment\n")
    print_output(plan_text(current, await _log_dirs(admin, current)))
    print_output("\nSave this to use as the --reassignment-json-file option during rollback")
    await _throttle(admin, plan, limits, reassignments, current)
    results = await admin.alter_reassignments(
        plan.assignment, allow_replication_factor_change=limits.allow_replication_factor_change
    )
    _refuse_if_any("Error reassigning partition(s):", results)
    partitions = sorted(plan.assignment)
    print_output(
        f"Successfully started partition reassignment{_s(partitions)} for {joined(partitions)}"
    )
    await _move_log_dirs(admin, plan.log_dirs, limits.timeout_s)


async def verify(admin: Admin, plan: ReassignmentPlan) -> Verified:
    """Return the progress of a plan's moves."""
    reassignments = await admin.list_reassignments()
    waiting = {p.topic for p in plan.assignment if p not in reassignments}
    current: Current = {}
    for name, topic in (await admin.describe_topics(sorted(waiting))).items():
        if not isinstance(topic, KafkaError):
            current |= _replicas(name, topic)
        elif topic.code != ErrorCode.unknown_topic_or_partition:
            raise topic
    moves = await _log_dir_moves(admin, plan)
    return Verified(
        partition_states(plan.assignment, reassignments, current),
        moves,
        bool(reassignments) or not all(move.is_done for move in moves.values()),
    )


def print_status(verification: Verified) -> None:
    print_output("Status of partition reassignment:")
    for partition, state in verification.partitions.items():
        print_output(state.line(partition))
    # With no moves, the line that Kafka's tool has for them is empty.
    print_output("\n".join(move.line(replica) for replica, move in verification.log_dirs.items()))


async def cancel(
    admin: Admin,
    plan: ReassignmentPlan,
    timeout_s: float,
    *,
    preserve_throttles: bool,
    dry_run: bool,
) -> None:
    """Cancel the moves of a plan: each partition, and each replica, returns to where it was."""
    active = sorted(await admin.list_reassignments(list(plan.assignment))) if plan.targets else []
    if dry_run:
        would(*(f"cancel the reassignment of {partition}" for partition in active))
        return
    if active:
        results = await admin.alter_reassignments(dict.fromkeys(active))
        refused = [result for result in results.values() if result is not None]
        _refuse_if_any(f"Error cancelling partition reassignment{_s(refused)} for:", results)
        print_output(
            f"Successfully cancelled partition reassignment{_s(active)} for: {joined(active)}"
        )
    else:
        print_output("None of the specified partition reassignments are active.")
    moves = await _log_dir_moves(admin, plan)
    back = {
        replica: move.current
        for replica, move in moves.items()
        if move.is_active and move.current is not None
    }
    if back:
        await _move_log_dirs(admin, back, timeout_s)
    else:
        # Kafka's tool ends no line here.
        print_output("None of the specified partition moves are active.", end="")
    if not preserve_throttles:
        await clear_throttles(admin, plan)


def print_reassignments(reassignments: Mapping[TopicPartition, Reassignment]) -> None:
    if not reassignments:
        print_output("No partition reassignments found.")
        return
    print_output("Current partition reassignments:")
    for partition, reassignment in sorted(reassignments.items()):
        print_output(reassignment_line(partition, reassignment))


async def clear_throttles(admin: Admin, plan: ReassignmentPlan, *, quietly: bool = False) -> None:
    """Clear the throttles of all brokers, any of which may have been a source, and of a plan's
    topics.
    """
    there = {node.id for node in (await admin.describe_cluster()).brokers}
    brokers = sorted(there.union(*(replicas for _, replicas in plan.targets)))
    for changes, level, what, names in (
        (throttles.without_broker_throttles(brokers), "broker", "broker", brokers),
        (throttles.without_topic_throttles(plan.topics), "topic", "topic", plan.topics),
    ):
        if not quietly:
            print_output(f"Clearing {level}-level throttles on {what}{_s(names)} {joined(names)}")
        raise_first(await admin.incremental_alter_configs(changes))


async def _throttle(
    admin: Admin,
    plan: ReassignmentPlan,
    limits: Limits,
    reassignments: Mapping[TopicPartition, Reassignment],
    current: Current,
) -> None:
    if limits.throttle < 0 and limits.log_dirs_throttle < 0:
        return
    print_output(VERIFY_PERIODICALLY)
    if limits.throttle >= 0:
        moving = throttles.moves(reassignments, plan.assignment, current)
        of_topics = throttles.topic_throttles(moving)
        raise_first(await admin.incremental_alter_configs(of_topics))
        of_brokers = throttles.broker_throttles(moving, limits.throttle)
        raise_first(await admin.incremental_alter_configs(of_brokers))
        print_output(f"The inter-broker throttle limit was set to {limits.throttle} B/s")
    if limits.log_dirs_throttle >= 0:
        brokers = {replica.broker for replica in plan.log_dirs}
        of_brokers = throttles.log_dirs_throttle(brokers, limits.log_dirs_throttle)
        raise_first(await admin.incremental_alter_configs(of_brokers))
        print_output(
            f"The replica-alter-dir throttle limit was set to {limits.log_dirs_throttle} B/s"
        )


async def _move_log_dirs(
    admin: Admin, targets: Mapping[TopicPartitionReplica, str], timeout_s: float
) -> None:
    """Begin to move replicas to directories. A replica that was just assigned to a broker may not
    exist there yet; its request is repeated until it does.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pending = dict(sorted(targets.items()))
    while pending:
        for replica in await _start_moves(admin, pending):
            print_output(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                f"{replica.partition} with broker {replica.broker} "
            )
        if pending and loop.time() >= deadline:
            raise PlainError(
                f"Timed out before log directory move{_s(pending)} could be started for: "
                f"{joined(pending)}"
            )
        if pending:
            await asyncio.sleep(ASK_AGAIN_S)


async def _start_moves(
    admin: Admin, targets: Mapping[TopicPartitionReplica, str]
) -> list[TopicPartitionReplica]:
    """Return the replicas whose broker has accepted the move."""
    begun = []
    for broker in sorted({replica.broker for replica in targets}):
        paths = {r.partition: path for r, path in targets.items() if r.broker == broker}
        for partition, refused in (await admin.alter_replica_log_dirs(broker, paths)).items():
            replica = TopicPartitionReplica(broker, partition)
            if refused is None:
                begun.append(replica)
            elif refused.code != ErrorCode.replica_not_available:
                raise Refused(f"Failed to alter dir for {replica}: {reason(refused)}")
    return begun


async def _log_dir_moves(
    admin: Admin, plan: ReassignmentPlan
) -> dict[TopicPartitionReplica, LogDirMove]:
    if not plan.log_dirs:
        return {}
    there = {node.id for node in (await admin.describe_cluster()).brokers}
    brokers = there & {replica.broker for replica in plan.log_dirs}
    described = await admin.describe_log_dirs(sorted(brokers))
    return log_dir_moves(
        plan.log_dirs, {id: unwrap(directories) for id, directories in described.items()}
    )


async def _log_dirs(admin: Admin, current: Current) -> dict[TopicPartitionReplica, str]:
    """Return the directories of the replicas, for brokers that are live and respond."""
    there = {node.id for node in (await admin.describe_cluster()).brokers}
    brokers = there & {broker for replicas in current.values() for broker in replicas}
    described = await admin.describe_log_dirs(sorted(brokers))
    return places(
        {id: unwrap(directories) for id, directories in described.items()}, is_future=False
    )


async def _check_brokers(admin: Admin, plan: ReassignmentPlan) -> None:
    there = {node.id for node in (await admin.describe_cluster()).brokers}
    unknown = {broker for _, replicas in plan.targets for broker in replicas} - there
    if unknown:
        raise Refused(f"Unknown broker id {min(unknown)}")


async def _racks(
    admin: Admin, brokers: Sequence[BrokerId], *, rack_aware: bool
) -> dict[BrokerId, str | None]:
    """Return the racks of the existing brokers."""
    nodes = (await admin.describe_cluster()).brokers
    racks = {node.id: node.rack if rack_aware else None for node in nodes if node.id in brokers}
    if away := [broker for broker in brokers if broker not in racks]:
        complain(f"Not among the brokers, and left out: {joined(away)}")
    if len({rack is None for rack in racks.values()}) > 1:
        raise Refused(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    return racks


async def _replicas_of_topics(admin: Admin, names: Iterable[str]) -> Current:
    current: Current = {}
    for name, topic in (await admin.describe_topics(names)).items():
        if isinstance(topic, KafkaError) and topic.code == ErrorCode.unknown_topic_or_partition:
            raise KafkaError(topic.code, f"Topic {name} not found.")
        current |= _replicas(name, unwrap(topic))
    return current


async def _replicas_of_partitions(admin: Admin, partitions: Iterable[TopicPartition]) -> Current:
    ordered = sorted(partitions)
    of_topics = await _replicas_of_topics(admin, dict.fromkeys(p.topic for p in ordered))
    if missing := [str(partition) for partition in ordered if partition not in of_topics]:
        text = f"Unable to find partition: {', '.join(missing)}"
        raise KafkaError(ErrorCode.unknown_topic_or_partition, text)
    return {partition: of_topics[partition] for partition in ordered}


def _replicas(name: str, topic: TopicDescription) -> Current:
    return {TopicPartition(name, p.partition): tuple(p.replicas) for p in topic.partitions}


def _preview(plan: ReassignmentPlan, current: Current) -> None:
    would(
        *(
            f"move {partition} from brokers {joined(current[partition])} to {joined(replicas)}"
            for partition, replicas in sorted(plan.assignment.items())
            if current[partition] != replicas
        ),
        *(f"move {replica} to {path}" for replica, path in sorted(plan.log_dirs.items())),
    )


def _refuse_if_any(heading: str, results: Mapping[TopicPartition, KafkaError | None]) -> None:
    refused = [f"{p}: {reason(e)}" for p, e in sorted(results.items()) if e is not None]
    if refused:
        raise PlainError("\n".join([heading, *refused]))


def error_text(error: Exception) -> str:
    """Return the message of Kafka's tool."""
    if isinstance(error, PlainError):
        return str(error)
    if isinstance(error, KafkaError):
        return f"Error: {exception(error)}: {reason(error)}"
    if isinstance(error, ClusterUnreachable | TimedOut):
        timeout = KafkaError(ErrorCode.request_timed_out)
        return f"Error: {exception(timeout)}: {error}"
    return f"Error: {reason(error)}"


def _s(items: Sequence[object] | Mapping[TopicPartitionReplica, str]) -> str:
    return "" if len(items) == 1 else "s"
