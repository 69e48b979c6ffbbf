"""`k doctor`: examines a cluster, and prints its problems with their remedies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, run
from kcli.command.options import Refused, cluster, option, option_group
from kcli.command.output import complain, print_output
from kcli.command.statuses import DONE, FAILED, FOUND
from kcli.rows.listing import formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.doctor.checks import Finding
    from kcli.doctor.snapshot import ClusterSnapshot

WATCH_S = 6.0
"""Longer than the 5 s between commits of a consumer with Kafka's defaults."""
API_TIMEOUT_MS = 15_000
INDENT = " " * 9

MANUAL = Manual(
    examples=(
        ("k doctor", "List problems, each with a remedy."),
        ("k doctor -o json", "For a monitor: exit status 3 if a problem was found."),
        (
            "k doctor --watch 30s",
            "Distinguish groups that commit once in half a minute from stuck ones.",
        ),
    ),
    statuses=(
        (FOUND, "A problem was found."),
        (FAILED, "Some information could not be read from the cluster."),
    ),
    see_also=("k-topics", "k-consumer-groups", "k-transactions", "k-configs", "k-log-dirs"),
)

FINDING = RowShape(
    "k.doctor",
    1,
    "A problem of a cluster.",
    (
        RowField("check", "string", "The check: addresses, brokers, partitions, ..."),
        RowField(
            "severity",
            "string",
            "error if clients are refused, or would be after one more failure; else warning.",
        ),
        RowField("subject", "string", "The subject: a broker, a partition, a group."),
        RowField("found", "string", "The problem."),
        RowField("remedy", "string", "The remedy."),
    ),
)


@command(manual=MANUAL)
@option_group(
    option(
        "--watch",
        "How long a lagging group is watched before it is reported as stuck: seconds, or with a "
        f"unit: 500ms, 2s, 5m.  Default: {WATCH_S:g}s.",
        "TIME",
        type=Duration(),
    ),
    formatted(FINDING),
    cluster,
)
def doctor(options: Options) -> int:
    """Checks a cluster once and prints its problems, each with a remedy.

    It checks: the addresses that brokers advertise, as seen from this machine; missing brokers;
    partitions without a leader or with replicas out of sync, and why; disks that failed or are
    nearly full; configs that differ between brokers or conflict with each other, and topics with
    too few replicas for their min.insync.replicas; records ahead of this machine's clock; groups
    whose members make no progress; transactions that hold back readers; brokers of different
    versions.
    """
    return run(_doctor(options), options.timeout, CLUSTER)


async def _doctor(options: Options) -> int:
    from kcli.client.admin.admin import Admin
    from kcli.doctor.checks import CHECKS
    from kcli.doctor.snapshot import take

    config = admin_config(options, client_id="doctor", default_api_timeout_ms=str(API_TIMEOUT_MS))
    watch_s = WATCH_S if options.watch is None else options.watch
    async with Admin(config) as admin:
        snapshot = await take(admin, config.bootstrap_servers, time.time_ns() // 1_000_000, watch_s)
    findings = [(name, finding) for name, check in CHECKS.items() for finding in check(snapshot)]
    with rows_if_asked(options, FINDING) as out:
        for name, finding in findings:
            if out is None:
                _print(finding)
            else:
                out.row(check=name, **finding._asdict())
        for text in snapshot.refusals:
            if out is None:
                complain(f"not available: {text}")
            else:
                out.refused(text.partition(":")[0], Refused(text))
        if out is None:
            print_output(_summary(snapshot, len(findings)))
    if findings:
        return FOUND
    return FAILED if snapshot.refusals else DONE


def _print(finding: Finding) -> None:
    print_output(f"{finding.severity:8} {finding.subject}: {finding.found}")
    print_output(f"{INDENT}{finding.remedy}")


def _summary(snapshot: ClusterSnapshot, findings: int) -> str:
    partitions = sum(len(topic.partitions) for topic in snapshot.topics.values())
    return (
        f"Findings: {findings}.  Looked at: brokers {len(snapshot.brokers)}, "
        f"topics {len(snapshot.topics):,}, partitions {partitions:,}, "
        f"groups with members {len(snapshot.groups):,}."
    )
