"""`k top`: shows brokers, topics and groups as they are now, again and again."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, reason, run
from kcli.command.options import INT, cluster, name_filter, option, option_group, refuse
from kcli.command.output import is_redrawable
from kcli.command.statuses import DONE, FAILED
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.cluster import Cluster
    from kcli.top.rates import Dashboard
    from kcli.top.screen import Show
    from kcli.top.snapshot import Selection

EVERY_S = 2.0
VIEWS = ("brokers", "topics", "groups")
CLIENT_ID = "top"
CONNECT_MS, REQUEST_MS = "2000", "5000"
"""Time limits for a broker, before another one is tried."""

MANUAL = Manual(
    examples=(
        ("k top", "Everything, every two seconds, until Ctrl-C."),
        ("k top --topics --topic 'orders.*'", "Only some topics."),
        ("k top --groups --interval 10s", "The lag of groups, and its trend."),
        ("k top --once -o json", "For a monitor: one report, from two samples."),
        (
            "k top --once -o json | jq '.items[] | select(.lag_trend == \"growing\")'",
            "The groups that fall behind.",
        ),
        ("k top -o jsonl >> top.jsonl", "A line per sample for every broker, topic and group."),
    ),
    statuses=((FAILED, "Some information could not be read from the cluster."),),
    see_also=("k-doctor", "k-topics", "k-consumer-groups", "k-log-dirs"),
)

_RATE = "; null if unknown"

ROW = RowShape(
    "k.top",
    1,
    "A broker, a topic or a group; null in what does not apply to it.",
    (
        RowField("time_ms", "integer", "Time of the sample, in ms since 1970."),
        RowField("kind", "string", "broker, topic or group."),
        RowField("name", "string", "Its name; the id of a broker."),
        RowField(
            "state",
            "string or null",
            "Of a broker: up, or away if it does not answer.  Of a topic: offline if a partition "
            "has no leader, else under-replicated if a replica is out of sync, else ok.  Of a "
            "group: such as Stable or Empty; null if unknown.",
        ),
        RowField("address", "string or null", "HOST:PORT of a broker; null if not known."),
        RowField(
            "is_controller",
            "boolean or null",
            "Whether a broker is the controller; null if that is not known.",
        ),
        RowField(
            "away_since_ms",
            "integer or null",
            "When a broker that is away was seen last, in ms since 1970; null if never.",
        ),
        RowField(
            "partitions",
            "integer or null",
            "Of a topic; that a broker leads; that a group has committed offsets for.",
        ),
        RowField(
            "under_replicated",
            "integer or null",
            "Partitions of a topic with replicas out of sync; a broker's replicas that are.",
        ),
        RowField("offline", "integer or null", "Partitions of a topic without a leader."),
        RowField(
            "records_in_per_second",
            "number or null",
            f"Growth of where its partitions end{_RATE}.",
        ),
        RowField("bytes_in_per_second", "number or null", f"Growth of their leaders' logs{_RATE}."),
        RowField(
            "records_out_per_second",
            "number or null",
            f"Growth of what groups have committed, over up to ten looks{_RATE}.",
        ),
        RowField(
            "bytes_out_per_second",
            "number or null",
            "The same in bytes, estimated from the mean size of the records that come in.",
        ),
        RowField(
            "size_bytes",
            "integer or null",
            "Of the leaders' logs of a topic; of all replicas of a broker; null if unknown.",
        ),
        RowField(
            "lag",
            "integer or null",
            "Records that a group has left to read; null if not known of a partition.",
        ),
        RowField(
            "lag_per_second",
            "number or null",
            "How that changes, over up to ten looks; below zero it shrinks.",
        ),
        RowField("lag_trend", "string or null", "growing, shrinking or steady."),
        RowField(
            "isr_left",
            "integer or null",
            "How many times a replica left the ISR since the first sample.",
        ),
        RowField("isr_joined", "integer or null", "How many times one joined it."),
        RowField(
            "leader_changes",
            "integer or null",
            "How many times a partition of a topic was given another leader since the first look, "
            "or a broker came to lead one.",
        ),
    ),
)


@command(manual=MANUAL)
@option_group(
    option("--brokers", "Show brokers."),
    option("--topics", "Show topics."),
    option("--groups", "Show groups."),
    option("--topic", "Only these topics; of brokers and groups, only what is in them.", "REGEX"),
    option("--group", "Only these groups; records out are what these have committed.", "REGEX"),
    option(
        "--interval",
        f"Sampling interval: seconds, or with a unit: 500ms, 2s, 5m.  Default: {EVERY_S:g}s.",
        "TIME",
        type=Duration(),
    ),
    option("--once", "Take two samples, an interval apart, and print once."),
    option("--count", "Print this many times.  Default: until Ctrl-C.", "N", type=INT),
    formatted(ROW),
    cluster,
)
def top(options: Options) -> int:
    """Shows what brokers, topics and groups do now: records and bytes in and out, lag and its
    trend, changes of the ISR.

    Without --brokers, --topics and --groups, all three are shown.  Rows with problems come first,
    then the busiest; groups are sorted by lag.  On a terminal each sample replaces the previous
    one; otherwise, and with -o, samples are printed one after another.

    It works with the brokers of any Kafka.  Records in are the growth of the end offsets; bytes in
    are the growth of the leaders' logs, which is unknown if retention made them shorter.  Records
    out are the growth of the committed offsets of groups, over up to ten samples: consumers commit
    every 5 s by default, so use --once with --interval 10s.  Bytes out are an estimate that assumes
    the size of incoming records.  Consumers without a group are not included.

    A broker that does not answer is shown as away since its last response.  Replicas that left the
    ISR and joined it (-1 +2), and leader elections, are counted from the first sample on.
    """
    views = [view for view in VIEWS if getattr(options, view)] or VIEWS
    if options.once and options.count is not None:
        refuse("--once and --count cannot be used together")
    if options.count is not None and options.count <= 0:
        refuse("--count must be a positive number")
    count = 1 if options.once else options.count
    with rows_if_asked(options, ROW) as out:
        awaited = CLUSTER if options.once else ""
        return run(_top(options, views, count, out), options.timeout, awaited, while_read=True)


async def _top(options: Options, views: Sequence[str], count: int | None, out: Rows | None) -> int:
    from kcli.client.admin.admin import Admin
    from kcli.top import screen
    from kcli.top.snapshot import Selection

    config = admin_config(
        options,
        client_id=CLIENT_ID,
        request_timeout_ms=REQUEST_MS,
        socket_connection_setup_timeout_ms=CONNECT_MS,
        socket_connection_setup_timeout_max_ms=CONNECT_MS,
    )
    topics, groups = name_filter(options.topic or ".*"), name_filter(options.group or ".*")
    selection = Selection(topics, groups, options.topic is not None)
    is_live = out is None and not options.once and is_redrawable(sys.stdout)
    async with Admin(config) as admin:
        await admin.nodes()
        # From now on, a broker that cannot be reached is shown in its row.
        logging.getLogger("kcli.client.cluster").setLevel(logging.ERROR)
        with ExitStack() as stack:
            if is_live:
                show = stack.enter_context(screen.on_a_terminal(views))
            else:
                show = screen.as_text(views) if out is None else screen.as_rows(out, views)
            looks = _looks(admin.cluster, selection, options.interval or EVERY_S)
            return await _shown(looks, show, count, is_live)


async def _looks(
    cluster: Cluster, selection: Selection, every_s: float
) -> AsyncIterator[Dashboard]:
    """Yield samples for ever. Raises an error if the first one fails; later the cluster may be
    unreachable for a while.
    """
    from kcli.servers.reachability import os_reason
    from kcli.top.rates import History
    from kcli.top.snapshot import FAILURES, take

    loop = asyncio.get_running_loop()
    began = loop.time()
    history = History()
    yield history.update(await take(cluster, selection, patient=True))
    while True:
        await asyncio.sleep(max(0, began + every_s - loop.time()))
        began = loop.time()
        try:
            now = await take(cluster, selection, patient=False)
        except FAILURES as error:
            why = os_reason(error) if isinstance(error, OSError) else reason(error)
            yield history.note_failure(why or "no answer in time")
        else:
            yield history.update(now)


async def _shown(
    looks: AsyncIterator[Dashboard], show: Show, count: int | None, is_live: bool
) -> int:
    """Show `count` samples; the first, whose rates are unknown, only on a terminal that shows the
    next ones too.
    """
    first = await anext(looks)
    if is_live:
        show(first)
    shown = 0
    while True:
        dashboard = await anext(looks)
        show(dashboard)
        sys.stdout.flush()
        shown += 1
        if shown == count:
            return FAILED if dashboard.refused or dashboard.missing else DONE
