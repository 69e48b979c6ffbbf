"""`k spark-submit compact`: compacts small files of a directory or a Delta table into few."""

from __future__ import annotations

import math
import re
import time
import uuid
from typing import TYPE_CHECKING, Any

import click

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.options import INT, Refused, dry_run, is_set, option, option_group, refuse
from kcli.command.output import complain, transient, would
from kcli.command.statuses import DONE
from kcli.spark.jobs import shared, sink_log, swap
from kcli.spark.jobs.compact_plan import SwapJournal, Unit, landed_name, selection, units
from kcli.spark.jobs.land_paths import CODECS, DEFAULT_CODEC
from kcli.spark.jobs.store import DELTA_LOG, TABLES, Store, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = tuple(CODECS)
TARGET_MB = 128
MB = 1 << 20
HOUR_S = 3600
LISTS_EVERY = "spark.sql.streaming.fileSink.log.compactInterval"
COUNTED = ("topic", "partition", "offset")
_JSON_CODECS = {".gz": "gzip", ".bz2": "bzip2"}
FILES = {
    "parquet": re.compile(r"\.parquet$"),
    "json": re.compile(r"\.(json|jsonl|ndjson)(\.(gz|bz2|zst|lz4|snappy|deflate))?$"),
}
"""Patterns of file names, by format."""
_SUFFIX = re.compile(r"part-[0-9]+-[0-9a-f-]+(\..+)")

MANUAL = Manual(
    examples=(
        (
            "k spark-submit compact --path /lake/orders --partitions date=2026-11-21",
            "All hours of a day.",
        ),
        (
            "k spark-submit compact --path /lake/orders --older-than 2h --target-mb 256 \\\n"
            "    --verify-counts",
            "From cron, while a job lands here: directories without a write for two hours.",
        ),
        (
            "k spark-submit compact --path /lake/logs --format delta \\\n"
            "    --partitions 'date=2026-11-01..2026-11-20' --vacuum-after 168h",
            "A Delta table; its old files are removed a week later.",
        ),
    ),
    differences=("Kafka's scripts have no such command.",),
    see_also=("k-spark-submit", "k-spark-submit-land"),
)


@command(manual=MANUAL)
@option_group(
    option("--path", "The directory of files or of a Delta table; required.", "DIRECTORY"),
    option(
        "--format",
        f"{', '.join(FORMATS)}.  Default: {FORMATS[0]}.",
        "FORMAT",
        type=click.Choice(FORMATS),
    ),
    option(
        "--partitions",
        "Only directories with these values: date=2026-11-21, a pattern such as"
        " date=2026-11-*,hour=0?, or a range, date=2026-11-01..2026-11-20.",
        "NAME=VALUE,...",
    ),
    option(
        "--target-mb",
        "Target size of files.  Files of at least three quarters of it are not changed.  "
        f"Default: {TARGET_MB}.",
        "MB",
        type=INT,
    ),
    option(
        "--older-than",
        "Only files written at least this long ago, in seconds or with a unit, such as 90m or"
        " 24h.  In a Delta table: only directories without a younger file.  Default: all.",
        "TIME",
        type=Duration(),
    ),
    option(
        "--verify-counts",
        "Also compare the counts and the sums of offsets of each topic and partition.  The number"
        " of rows is always compared.  If there is a difference, the job fails and leaves"
        " everything unchanged.",
    ),
    option(
        "--codec",
        "Compression of the new files; the same codecs as for the job land.  Default:"
        f" {DEFAULT_CODEC['parquet']}; json files keep their own.",
        "CODEC",
    ),
    option(
        "--vacuum-after",
        "Remove files that no version of a Delta table has used for this long, in seconds or with"
        " a unit, such as 168h; only whole hours.  Older versions become unreadable.  Default:"
        " keep them.",
        "TIME",
        type=Duration(),
    ),
    dry_run,
    shared.quiet,
)
def compact(options: Options) -> int:
    """Compacts many small files into few large ones.

    New files are written to a separate place and their rows are counted.  Then they replace the old
    files, according to a journal in _k_compact: a killed run neither loses nor duplicates records,
    and the next run completes it.  Only one run at a time can work in a directory.

    In the directory of a landing job, _spark_metadata lists the files that count.  Compaction
    handles the files in its newest list with .compact in its name: all except those of the last
    batches, at most ten.  The list is replaced atomically, so Spark reads either the old files or
    the new ones, and the job can continue to land.  If the job may be writing a list at the same
    time, the old files stay until a later run.  A reader that ignores the list sees records twice
    while both old and new files exist; without such a list, this is from the move of the new files
    to the end of the run.

    A Delta table is compacted with one commit for each directory, also while others write to it.
    """
    summary = shared.Summary(quiet=options.quiet)
    if options.format == "delta":
        text = _compact_table(options)
    else:
        with shared.session() as spark:
            text = compacted(spark, options)
    summary.report(text)
    return DONE


def check(options: Options) -> None:
    if not options.path:
        refuse("name the directory of the files: --path DIRECTORY")
    shared.check_table("--path", options.path, options.format)
    try:
        selection(options.partitions)
    except ValueError as error:
        refuse(f"--partitions {error}")
    if options.target_mb is not None and options.target_mb < 1:
        refuse("--target-mb must be at least 1")
    format = options.format or FORMATS[0]
    if options.codec is not None and (options.codec not in CODECS[format] or format == "delta"):
        refuse(f"--codec for {format} cannot be {options.codec}")
    if is_set(options, "vacuum_after") and format != "delta":
        refuse("--vacuum-after is for --format delta; other directories keep no old files")


def compacted(spark: SparkSession, options: Options) -> str:
    """Compact, and return a summary."""
    store = opened(spark, options.path)
    if not store.entries(""):
        raise Refused(f"--path {options.path} contains no files; correct the path")
    _check_place(spark, store, options)
    if (why := swap.skip_reason(store, FILES[options.format or FORMATS[0]])) is not None:
        complain(why)
    if options.dry_run:
        for unit in _units(store, options):
            would(
                f"make {unit.into} of {len(unit.files)} files in {unit.directory or options.path}"
            )
        return "nothing was changed"
    try:
        with store.locked(swap.LOCK):
            return _compact_store(spark, store, options)
    except swap.UnexpectedState as error:
        raise Refused(str(error)) from error


def _check_place(spark: SparkSession, store: Store, options: Options) -> None:
    """Refuse a directory that belongs to a table: a list in it or above it names its files."""
    if any(entry.name == DELTA_LOG for entry in store.entries("")):
        raise Refused(f"--path {options.path} is a Delta table: give --format delta")
    above = store.uri("").rstrip("/")
    while (above := above.rpartition("/")[0]).count("/") > 2:
        for name in TABLES:
            if opened(spark, above).entries(name):
                raise Refused(
                    f"--path {options.path} is part of the directory that {above}/{name} lists;"
                    " give that directory as --path, and select this part with --partitions"
                )


def _compact_store(spark: SparkSession, store: Store, options: Options) -> str:
    interval = int(str(spark.conf.get(LISTS_EVERY, str(sink_log.INTERVAL))))
    waiting = 0
    for journal in list(swap.pending_swaps(store)):
        waiting += not swap.resume_swap(store, journal, _now_ms(), interval)
    swap.clean(store)
    # New files of a pending swap must not be compacted, nor the old ones.
    busy = {
        path
        for journal in swap.pending_swaps(store)
        for path in (*journal.old, *(end for _, end in journal.new))
    }
    done: list[Unit] = []
    for unit in _units(store, options):
        if busy & {file.path for file in unit.files}:
            continue
        if not options.quiet:
            transient(f"{unit.directory or options.path}: {len(unit.files)} files into {unit.into}")
        journal = _write_unit(spark, store, unit, options)
        swap.decide(store, journal)
        waiting += not swap.resume_swap(store, journal, _now_ms(), interval)
        done.append(unit)
    if waiting:
        complain(f"the old files of {waiting} swaps stay for now; a later run removes them")
    return _summary_text(
        sum(len(unit.files) for unit in done),
        sum(unit.into for unit in done),
        len({unit.directory for unit in done}),
    )


def _summary_text(before: int, after: int, directories: int) -> str:
    if not before:
        return "no files to compact"
    return f"{before:,} files in {directories:,} directories compacted into {after:,}"


def _units(store: Store, options: Options) -> list[Unit]:
    return units(
        swap.candidates(store, FILES[options.format or FORMATS[0]]),
        selects=selection(options.partitions),
        target_bytes=(options.target_mb or TARGET_MB) * MB,
        before_ms=_now_ms() - int((options.older_than or 0) * 1000),
    )


def _write_unit(spark: SparkSession, store: Store, unit: Unit, options: Options) -> SwapJournal:
    """Write the new files to a separate place, count them, and return the journal of the swap."""
    id = uuid.uuid4().hex[:12]
    where = swap.staging(id)
    is_json = options.format == "json"
    paths = [store.uri(file.path) for file in unit.files]
    codec = options.codec or (_codec_of(unit) if is_json else DEFAULT_CODEC["parquet"])
    frame = _read(spark, paths, is_json)
    writer = frame.coalesce(unit.into).write.option("compression", codec)
    writer.format("text" if is_json else "parquet").save(store.uri(where))
    files = sorted(
        entry.path for entry in store.entries(where) if not entry.name.startswith(("_", "."))
    )
    _compare(frame, _read(spark, [store.uri(path) for path in files], is_json), unit, options)
    new = []
    for number, path in enumerate(files):
        match = _SUFFIX.fullmatch(path.rpartition("/")[2])
        assert match is not None, path
        suffix = match[1].replace(".txt", ".json")
        new.append((path, landed_name(unit.directory, id, number, suffix)))
    return SwapJournal(id, [file.path for file in unit.files], new)


def _read(spark: SparkSession, paths: list[str], is_json: bool) -> DataFrame:
    """Read files; lines of JSON are read as text."""
    if is_json:
        return spark.read.text(paths)
    return spark.read.option("mergeSchema", "true").parquet(*paths)


def _codec_of(unit: Unit) -> str:
    name = unit.files[0].name
    return next((c for end, c in _JSON_CODECS.items() if name.endswith(end)), "none")


def _compare(before: DataFrame, after: DataFrame, unit: Unit, options: Options) -> None:
    """Raises Refused, with all files unchanged, if the contents differ."""
    counts = [_counts(frame, options) for frame in (before, after)]
    if counts[0] != counts[1]:
        raise Refused(
            f"{unit.directory or options.path}: the new files do not hold all rows that were read;"
            " the old files were left unchanged"
        )


def _counts(frame: DataFrame, options: Options) -> Any:
    if (
        not options.verify_counts
        or frame.columns[0] == "value"
        or not set(COUNTED) <= {*frame.columns}
    ):
        return frame.count()
    groups = frame.groupBy("topic", "partition").agg({"*": "count", "offset": "sum"})
    return sorted(tuple(row) for row in groups.collect())


def _compact_table(options: Options) -> str:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    from kcli.spark.jobs.delta import address

    try:
        table = DeltaTable(address(options.path))
    except TableNotFoundError as error:
        raise Refused(f"--path {options.path} contains no Delta table") from error
    selects = selection(options.partitions)
    before_ms = _now_ms() - int((options.older_than or 0) * 1000)
    partitions = [
        partition
        for partition in _partitions(table)
        if selects(partition) and _newest_ms(table, partition) <= before_ms
    ]
    removals = additions = directories = 0
    for partition in partitions:
        if options.dry_run:
            would(f"compact {_path_of(partition) or options.path}")
            continue
        gone, new = _compact_partition(table, partition, options)
        removals, additions, directories = (
            removals + gone,
            additions + new,
            directories + bool(gone),
        )
    if is_set(options, "vacuum_after") and not options.dry_run:
        table.vacuum(
            retention_hours=math.ceil(options.vacuum_after / HOUR_S),
            dry_run=False,
            enforce_retention_duration=False,
        )
    return (
        "nothing was changed"
        if options.dry_run
        else _summary_text(removals, additions, directories)
    )


def _compact_partition(table: Any, partition: dict[str, str], options: Options) -> tuple[int, int]:
    """Compact one partition; return the numbers of removed and added files."""
    table.update_incremental()
    version, rows = table.version(), _rows(table, partition)
    metrics = table.optimize.compact(
        partition_filters=[(name, "=", value) for name, value in partition.items()] or None,
        target_size=(options.target_mb or TARGET_MB) * MB,
    )
    # If others have committed meanwhile, the counts cannot be compared.
    if table.version() == version + 1 and _rows(table, partition) != rows:
        table.restore(version)
        raise Refused(
            f"{_path_of(partition) or options.path}: rows were lost; the table was left unchanged"
        )
    return metrics["numFilesRemoved"], metrics["numFilesAdded"]


def _partitions(table: Any) -> list[dict[str, str]]:
    if not table.metadata().partition_columns:
        return [{}]
    # deltalake has no filter for null: such partitions stay as they are.
    partitions = [
        {**partition} for partition in table.partitions() if None not in partition.values()
    ]
    return sorted(partitions, key=_path_of)


def _actions(table: Any, partition: dict[str, str]) -> list[dict[str, Any]]:
    import pyarrow as pa

    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [r for r in rows if all(r[f"partition.{name}"] == v for name, v in partition.items())]


def _newest_ms(table: Any, partition: dict[str, str]) -> int:
    return max((row["modification_time"] for row in _actions(table, partition)), default=0)


def _rows(table: Any, partition: dict[str, str]) -> int:
    return sum(row["num_records"] for row in _actions(table, partition))


def _path_of(partition: dict[str, str]) -> str:
    return "/".join(f"{name}={value}" for name, value in partition.items())


def _now_ms() -> int:
    return int(time.time() * 1000)
