"""`k delete-records`: moves the start of partitions' logs forward."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kcli.command import json_file
from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, confirm, reason, run
from kcli.command.error_texts import exception
from kcli.command.options import (
    Refused,
    cluster,
    dry_run,
    exclude,
    option,
    option_group,
    require,
    yes,
)
from kcli.command.output import print_output, would
from kcli.command.statuses import DONE, FAILED
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape
from kserver.errors import KafkaError
from kserver.model import Offset, TopicPartition
from kserver.wire.special_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin

ALL = -1
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1

MANUAL = Manual(
    kafka="kafka-delete-records.sh",
    examples=(
        (
            'echo \'{"partitions": [{"topic": "orders", "partition": 0, "offset": 100}]}\' '
            "> offsets.json; k delete-records --offset-json-file offsets.json",
            "Delete the records before offset 100.",
        ),
        (
            "k delete-records --offset-json-file offsets.json --dry-run",
            "Show the records that this would delete.",
        ),
    ),
    differences=(
        "A partition that does not exist is reported at once, not after a minute.",
        "If the records of a partition cannot be deleted, the exit status is 1.",
        "If standard input and error are a terminal, the command asks first, unless --yes is "
        "given.",
        "Partitions are printed in the order of the file.",
        "For an invalid file, one line names the invalid entry.",
    ),
    see_also=("k-get-offsets", "k-log-dirs", "k-topics"),
)

DELETED = RowShape(
    "k.delete-records",
    1,
    "A partition and its new start offset.",
    (
        RowField("topic", "string", "Its topic."),
        RowField("partition", "integer", "Its number."),
        RowField(
            "low_watermark",
            "integer",
            "The first offset that is left, or the next offset if none is left.",
        ),
    ),
)


@command(manual=MANUAL)
@option_group(
    option(
        "--offset-json-file",
        "For each partition, the first offset to keep, or -1 to delete all records.",
        "FILE",
    ),
    dry_run,
    yes,
    formatted(DELETED),
    cluster,
)
def delete_records(options: Options) -> int:
    """Deletes the records of partitions before an offset.

    The file is {"partitions": [{"topic": "foo", "partition": 1, "offset": 3}], "version": 1};
    version may be left out.  Deleted records cannot be restored.
    """
    require(options, "offset-json-file")
    exclude(options, "dry-run", ("output",))
    with rows_if_asked(options, DELETED) as out:
        path = options.offset_json_file
        offsets = _offsets(json_file.read(path), path)
        status = run(_delete(options, offsets, out), options.timeout, CLUSTER)
    return status if out is None else status or out.status


async def _delete(
    options: Options, offsets: Mapping[TopicPartition, Offset], out: Rows | None
) -> int:
    from kcli.client.admin.admin import Admin

    async with Admin(admin_config(options)) as admin:
        if options.dry_run:
            return await _preview(admin, offsets)
        if not options.yes and sys.stdin.isatty():
            steps, _ = await _steps(admin, offsets)
            if steps:
                await confirm(options, *steps)
        if out is None:
            print_output("Executing records delete operation")
        results = await admin.delete_records(offsets)
    if out is None:
        return _print_results(results)
    for partition, result in results.items():
        if isinstance(result, KafkaError):
            out.refused(str(partition), result)
        else:
            topic, number = partition
            out.row(topic=topic, partition=number, low_watermark=result)
    return DONE


def _print_results(results: Mapping[TopicPartition, Offset | KafkaError]) -> int:
    print_output("Records delete operation completed:")
    status = DONE
    for partition, result in results.items():
        if isinstance(result, KafkaError):
            print_output(f"partition: {partition}\terror: {exception(result)}: {reason(result)}")
            status = FAILED
        else:
            print_output(f"partition: {partition}\tlow_watermark: {result}")
    return status


async def _preview(admin: Admin, offsets: Mapping[TopicPartition, Offset]) -> int:
    steps, refusals = await _steps(admin, offsets)
    would(*steps)
    for partition, error in refusals.items():
        print_output(f"partition: {partition}\terror: {exception(error)}: {reason(error)}")
    return FAILED if refusals else DONE


async def _steps(
    admin: Admin, offsets: Mapping[TopicPartition, Offset]
) -> tuple[list[str], dict[TopicPartition, KafkaError]]:
    """Return the steps of a deletion, and the errors it would have."""
    from kserver.errors import ErrorCode

    starts = await admin.list_offsets(dict.fromkeys(offsets, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(offsets, LATEST))
    steps, refusals = [], {}
    for partition, target in offsets.items():
        start, end = starts[partition], ends[partition]
        if isinstance(start, KafkaError):
            refusals[partition] = start
            continue
        if isinstance(end, KafkaError):
            refusals[partition] = end
            continue
        offset = end.offset if target == ALL else target
        if not 0 <= offset <= end.offset:
            refusals[partition] = KafkaError(ErrorCode.offset_out_of_range)
        elif start.offset < offset:
            steps.append(f"delete offsets {start.offset} to {offset - 1} of {partition}")
    return steps, refusals


def _offsets(document: Any, path: str) -> dict[TopicPartition, Offset]:
    """Return the offsets in the file, in its order. Raises Refused if the file is invalid."""
    if not isinstance(document, dict) or "partitions" not in document:
        raise Refused("Missing partitions field")
    json_file.check_version(document, path)
    if not isinstance(document["partitions"], list):
        raise Refused(f"{path}: The partitions field is not a list")
    entries = [_entry(path, number, entry) for number, entry in enumerate(document["partitions"])]
    times = Counter(partition for partition, _ in entries)
    twice = [str(partition) for partition, count in times.items() if count > 1]
    if twice:
        raise Refused(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return dict(entries)


def _entry(path: str, number: int, entry: Any) -> tuple[TopicPartition, Offset]:
    match entry:
        case {"topic": str(topic), "partition": int(partition), "offset": int(offset)} if (
            not isinstance(partition, bool)
            and not isinstance(offset, bool)
            and 0 <= partition <= INT_MAX
            and abs(offset) <= LONG_MAX
        ):
            return TopicPartition(topic, partition), offset
    raise Refused(
        f"{path}: Entry {number} of the partitions field is invalid: {json.dumps(entry)}; it "
        'needs "topic", a string, and "partition" and "offset", integers'
    )
