"""`k reassign-partitions --plan`: shows the changes of each broker, and executes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.filesize import decimal

from kcli.command.options import Refused, name_filter
from kcli.command.output import print_output
from kcli.reassignment import planner
from kcli.reassignment.journal import PlannedMove, ReassignmentJournal, batches, default_path
from kcli.reassignment.mover import Mover
from kcli.reassignment.placement import Placement, bytes_moved, changes
from kcli.reassignment.plans import brokers_of
from kcli.reassignment.sizes import bytes_of_replicas
from kcli.rows.listing import Rows
from kserver.errors import KafkaError
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.command.command import Options


async def plan(admin: Admin, options: Options, out: Rows | None) -> None:
    """Show the plan; with --execute, execute it."""
    before, internal = await _placement(admin)
    after = _planned(before, internal, options)
    moving = changes(before, after)
    _show(before, after, out)
    moves = [
        PlannedMove(partition, before.replicas[partition], replicas, before.size(partition))
        for partition, replicas in moving.items()
    ]
    if out is None:
        print_output(_summary(before, after, moves, options.throttle))
    if not options.execute or not moves:
        return
    cluster_id = (await admin.describe_cluster()).cluster_id or ""
    path = _path(options, cluster_id)
    if path.exists():
        raise Refused(
            f"{path}: the journal of an interrupted reassignment exists; use --resume to continue "
            "it, or --undo to revert it"
        )
    if await admin.list_reassignments():
        raise Refused(
            "partitions are being moved already; run k reassign-partitions --list to see them"
        )
    in_batches = batches(moves, options.batch)
    journal = ReassignmentJournal(path, cluster_id, options.throttle, in_batches)
    journal.write()
    await _carry_out(admin, journal)


async def resume(admin: Admin, options: Options) -> None:
    """Continue with the journal's remaining batches."""
    await _carry_out(admin, await _journal(admin, options))


async def undo(admin: Admin, options: Options) -> None:
    """Revert the batches that were begun according to the journal."""
    journal = await _journal(admin, options)
    moving = await admin.list_reassignments(
        [move.partition for batch in journal.batches for move in batch]
    )
    if moving:
        await admin.alter_reassignments(dict.fromkeys(moving))
    await _carry_out(admin, journal.undoing())


async def _carry_out(admin: Admin, journal: ReassignmentJournal) -> None:
    await Mover(admin, journal).run()
    moved = sum(map(len, journal.batches))
    print_output(
        f"Done.  Partitions that are where they should be now: {moved}.  Nothing is throttled."
    )


async def _journal(admin: Admin, options: Options) -> ReassignmentJournal:
    cluster_id = (await admin.describe_cluster()).cluster_id or ""
    journal = ReassignmentJournal.read(_path(options, cluster_id))
    if journal.cluster_id != cluster_id:
        raise Refused(f"{journal.path} is of cluster {journal.cluster_id}, not of {cluster_id}")
    return journal


def _path(options: Options, cluster_id: str) -> Path:
    return default_path(cluster_id) if options.journal is None else Path(options.journal)


async def _placement(admin: Admin) -> tuple[Placement, set[str]]:
    """Return the placement of all partitions, and the names of internal topics."""
    nodes = await admin.nodes()
    listed = await admin.list_topics()
    described = await admin.describe_topics([topic.name for topic in listed])
    replicas = {
        TopicPartition(name, partition.partition): tuple(partition.replicas)
        for name, topic in described.items()
        if not isinstance(topic, KafkaError)
        for partition in topic.partitions
    }
    sizes: dict[TopicPartition, int] = {}
    replica_sizes = await bytes_of_replicas(admin, [node.id for node in nodes])
    for (_, partition), size in replica_sizes.items():
        sizes[partition] = max(size, sizes.get(partition, 0))
    racks = {node.id: node.rack for node in nodes}
    return Placement(racks, replicas, sizes), {t.name for t in listed if t.is_internal}


def _planned(before: Placement, internal: set[str], options: Options) -> Placement:
    try:
        if options.plan == "evacuate":
            gone = set(brokers_of(options.broker_list))
            unknown = gone - before.counts.keys()
            if unknown:
                raise Refused(
                    f"broker {min(unknown)} does not exist, and has no replica; correct "
                    "--broker-list"
                )
            return planner.evacuate(before, gone)
        if options.plan == "set-rf":
            matches = name_filter(options.topic) if options.topic else lambda t: t not in internal
            partitions = [partition for partition in before.replicas if matches(partition.topic)]
            if options.topic and not partitions:
                raise Refused(f"no topic is named {options.topic}")
            return planner.set_rf(before, options.replication_factor, partitions)
    except planner.Unplaceable as error:
        raise Refused(str(error)) from error
    return planner.spread(before) if options.plan == "racks" else planner.rebalance(before)


def _show(before: Placement, after: Placement, out: Rows | None) -> None:
    """Print a line for each broker: its load before and after."""
    was, will = before.loads(), after.loads()
    racks = before.racks
    lines = [("BROKER", "RACK", "LEADERS", "REPLICAS", "BYTES")]
    for broker in sorted(was.keys() | will.keys()):
        load, load_after = was[broker], will.get(broker, planner.NOTHING)
        if out is not None:
            out.row(
                broker=broker,
                rack=racks.get(broker),
                leaders=load.leaders,
                leaders_after=load_after.leaders,
                replicas=load.replicas,
                replicas_after=load_after.replicas,
                bytes=load.bytes,
                bytes_after=load_after.bytes,
            )
        lines.append(
            (
                str(broker),
                racks.get(broker) or "-",
                f"{load.leaders} -> {load_after.leaders}",
                f"{load.replicas} -> {load_after.replicas}",
                f"{decimal(load.bytes)} -> {decimal(load_after.bytes)}",
            )
        )
    if out is None:
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            print_output("  ".join(padded).rstrip())


def _summary(
    before: Placement, after: Placement, moves: Sequence[PlannedMove], throttle: int | None
) -> str:
    if not moves:
        return "Nothing has to change."
    copied = bytes_moved(before, after)
    text = f"Partitions that change: {len(moves)}; {decimal(copied)} to copy"
    if not throttle:
        return f"{text}."
    return f"{text}, {timedelta(seconds=round(_slowest(moves) / throttle))} at the throttle."


def _slowest(moves: Sequence[PlannedMove]) -> int:
    """Return the bytes through the most loaded broker, in or out; leaders send."""
    through: dict[tuple[str, int], int] = {}
    for move in moves:
        for broker in set(move.target) - set(move.source):
            for key in (("in", broker), ("out", move.source[0])):
                through[key] = through.get(key, 0) + move.size
    return max(through.values(), default=0)
