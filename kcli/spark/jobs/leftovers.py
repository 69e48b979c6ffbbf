"""Removes files that a killed run or task left, which are not in Spark's list but visible to
others; and refuses directories of another query.

Leftovers are the files that exist before, and are not listed after, a moment when no batch is under
way: they belong to no batch, past or future.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kcli.command.options import Refused
from kcli.spark.jobs import shared, sink_log
from kcli.spark.jobs.store import Store, data_files
from kcli.spark.progress import Totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Files(NamedTuple):
    """Where a query writes files with Spark's list, and its checkpoint."""

    store: Store
    checkpoint: Store


def follow(
    spark: SparkSession,
    writers: Mapping[str, DataStreamWriter],
    files: Mapping[str, Files],
    *,
    trigger: Mapping[str, Any],
    quiet: bool,
) -> tuple[int, dict[str, Totals]]:
    """Start the queries and follow them to their end, as `shared.follow`. Leftover files are
    removed, so that readers without Spark's list see each row once too.
    """
    totals = {name: Totals() for name in writers}
    for mine in files.values():
        check_own(mine.store, mine.checkpoint)
    for name, mine in files.items():
        if not is_under_way(mine.checkpoint):
            continue
        rest = {name: shared.settled(writers[name].trigger(availableNow=True).start)}
        status, _ = shared.follow(rest, quiet=quiet, totals=totals)
        if status:
            return status, totals
        remove_leftovers(mine.store, mine.checkpoint)
    queries = {
        name: shared.settled(writer.trigger(**trigger).start) for name, writer in writers.items()
    }
    status, _ = shared.follow(queries, quiet=quiet, totals=totals)
    if files and tasks_failed(spark):
        for mine in files.values():
            remove_leftovers(mine.store, mine.checkpoint)
    return status, totals


def is_under_way(checkpoint: Store) -> bool:
    """Whether a batch of this query was begun and has not ended: it is running, or was killed."""
    begun, ended = (
        max(sink_log.batches(entry.name for entry in checkpoint.entries(name)), default=-1)
        for name in ("offsets", "commits")
    )
    return begun > ended


def check_own(store: Store, checkpoint: Store) -> None:
    """Raises Refused if another query has landed there: its batches have the same numbers, and
    Spark would skip this query's batches silently.
    """
    if sink_log.batches(entry.name for entry in store.entries(sink_log.DIRECTORY)) and not (
        checkpoint.entries("offsets")
    ):
        raise Refused(
            f"{store.root} was written by a query with another checkpoint, and {checkpoint.root}"
            " is new; give that checkpoint, or write to another directory"
        )


def remove_leftovers(store: Store, checkpoint: Store) -> int:
    """Remove leftovers; return their number."""
    files = [f"{store.root}/{file.path}" for file in data_files(store)]
    if is_under_way(checkpoint):
        return 0
    log = {entry.name for entry in store.entries(sink_log.DIRECTORY)}
    names = sink_log.read_by(log)
    texts = [store.read(f"{sink_log.DIRECTORY}/{name}") for name in names]
    listed = [listed_file.path for text in texts for listed_file in sink_log.parse(text)]
    paths = sink_log.leftovers(files, listed) if names else []
    for path in paths:
        store.delete(path.removeprefix(f"{store.root}/"))
    return len(paths)


def tasks_failed(spark: SparkSession) -> bool:
    """Whether any task failed, of those that this session remembers."""
    context = spark.sparkContext._jsc
    assert context is not None
    executors = context.sc().statusStore().executorList(False)
    return any(
        executors.apply(n).failedTasks() or not executors.apply(n).isActive()
        for n in range(executors.size())
    )
