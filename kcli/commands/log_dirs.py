"""`k log-dirs`: sizes of replicas in each log directory of each broker."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, run, unwrap
from kcli.command.error_texts import exception
from kcli.command.options import Refused, cluster, option, option_group, require
from kcli.command.output import print_output
from kcli.command.statuses import DONE
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin, LogDirDescription
    from kserver.model import BrokerId

CLIENT_ID = "log-dirs-tool"

MANUAL = Manual(
    kafka="kafka-log-dirs.sh",
    examples=(
        ("k log-dirs --describe", "Every log directory, as one line of JSON."),
        (
            "k log-dirs --describe -o tsv | sort -t$'\\t' -k7n | tail",
            "The largest replicas.",
        ),
        (
            "k log-dirs --describe --topic-list orders -o template='{broker} {log_dir} {size}'",
            "The location and the size of a topic.",
        ),
    ),
    differences=(
        "Brokers, directories and partitions are in the order of their names.",
        "With --output, a directory whose disk failed, or that has none of the requested "
        "replicas, is a row without a replica.",
    ),
    see_also=("k-topics", "k-delete-records"),
)

LOG_DIRS = RowShape(
    "k.log-dirs",
    1,
    "A replica in a log directory, or a directory without one.",
    (
        RowField("broker", "integer", "The broker's id."),
        RowField("log_dir", "string", "The directory."),
        RowField("error", "string or null", "The error of the directory; null if it is usable."),
        RowField(
            "total_bytes",
            "integer or null",
            "Total bytes of its file system; null if the broker does not report them.",
        ),
        RowField(
            "usable_bytes",
            "integer or null",
            "Free bytes of its file system; null if the broker does not report them.",
        ),
        RowField("topic", "string or null", "The replica's topic; null if there is no replica."),
        RowField("partition", "integer or null", "The partition number."),
        RowField("size", "integer or null", "Bytes of its segments."),
        RowField(
            "offset_lag",
            "integer or null",
            "How many offsets a future replica is behind the current one.",
        ),
        RowField(
            "is_future",
            "boolean or null",
            "Whether it is a future replica, which will replace the current one when its move is "
            "done.",
        ),
    ),
)


@command(manual=MANUAL)
@option_group(
    option("--describe", "Print the log directories; the only action, required."),
    option("--broker-list", "Query only these brokers.", "ID,..."),
    option("--topic-list", "Only replicas of these topics.", "TOPIC,..."),
    formatted(LOG_DIRS),
    cluster,
)
def log_dirs(options: Options) -> int:
    """Prints the size and the lag of the replicas in each log directory.

    The output is two lines about the query, and one line of JSON.  A future replica, isFuture, is
    being moved to that directory.
    """
    require(options, "describe")
    with rows_if_asked(options, LOG_DIRS) as out:
        return run(_describe(options, out), options.timeout, CLUSTER)


async def _describe(options: Options, out: Rows | None) -> int:
    from kcli.client.admin.admin import Admin

    topics = set(_words(options.topic_list))
    async with Admin(admin_config(options, client_id=CLIENT_ID)) as admin:
        brokers = await _brokers(admin, options)
        if out is None:
            print_output("Querying brokers for log directories information")
        described = await admin.describe_log_dirs(brokers)
    by_broker = {id: _matching(unwrap(described[id]), topics) for id in brokers}
    if out is None:
        ids = ",".join(map(str, brokers))
        print_output(f"Received log directory information from brokers {ids}")
        print_output(json.dumps(_as_kafka(by_broker), separators=(",", ":"), ensure_ascii=False))
        return DONE
    for id, directories in by_broker.items():
        for directory in directories:
            _print(out, id, directory)
    return DONE


async def _brokers(admin: Admin, options: Options) -> list[BrokerId]:
    """Return the brokers of --broker-list, or all."""
    there = [node.id for node in (await admin.describe_cluster()).brokers]
    words = _words(options.broker_list)
    for word in words:
        if not re.fullmatch(r"[+-]?[0-9]+", word):
            raise Refused(f'For input string: "{word}"')
    ids = sorted(set(map(int, words)))
    missing = [id for id in ids if id not in there]
    if missing:
        raise Refused(
            "ERROR: The given brokers do not exist from --broker-list: "
            f"{','.join(map(str, missing))}. Current existent brokers: "
            f"{','.join(map(str, there))}"
        )
    return ids or there


def _words(text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]


def _matching(directories: list[LogDirDescription], topics: set[str]) -> list[LogDirDescription]:
    return [
        directory._replace(
            replicas=sorted(
                r for r in directory.replicas if not topics or r.partition.topic in topics
            )
        )
        for directory in sorted(directories, key=lambda directory: directory.path)
    ]


def _as_kafka(by_broker: dict[BrokerId, list[LogDirDescription]]) -> dict[str, Any]:
    """Return the document with the fields in the order of Kafka's tool."""
    return {
        "brokers": [
            {
                "broker": id,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": str(r.partition),
                                "size": r.size,
                                "offsetLag": r.lag,
                                "isFuture": r.is_future,
                            }
                            for r in directory.replicas
                        ],
                        "error": None if directory.error is None else exception(directory.error),
                        "logDir": directory.path,
                    }
                    for directory in directories
                ],
            }
            for id, directories in by_broker.items()
        ],
        "version": 1,
    }


def _print(out: Rows, id: BrokerId, directory: LogDirDescription) -> None:
    of_directory = {
        "broker": id,
        "log_dir": directory.path,
        "error": None if directory.error is None else directory.error.code.name.upper(),
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
    }
    if not directory.replicas:
        nothing = dict.fromkeys(("topic", "partition", "size", "offset_lag", "is_future"))
        out.row(**of_directory, **nothing)
    for replica in directory.replicas:
        out.row(
            **of_directory,
            topic=replica.partition.topic,
            partition=replica.partition.partition,
            size=replica.size,
            offset_lag=replica.lag,
            is_future=replica.is_future,
        )
