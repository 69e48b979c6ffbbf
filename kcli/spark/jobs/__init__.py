"""The jobs of `k spark-submit`: each a small module, checked here, run in Spark's driver.

    land         topics to Parquet, JSON or Delta (land_paths: its expressions; delta: its sink for
                 tables; leftovers: files that a killed run has left)
    etl          topics through SQL or Python, to a topic or files (etl_options: its options)
    replay       landed records, or a range of a topic, to a topic again (replay_frames; pace,
                 pace_server: its rate)
    compact      many small files into few (compact_plan: selection; swap: replacement of files;
                 sink_log: Spark's list of files; store: files in any file system)
    redrive      dead letters back to their topics (redrive_frames: its frames)
    audit        topics against landed rows (audit_queries: its queries;
                 audit_windows: results by window)
    run          the application for spark-submit: one job, from its words
    shared       options that jobs share, their session, streams followed to the end
    spark_errors Spark's errors in one line
    functions    user functions, by name
    payloads     formats of values, and invalid values
    landed_files landed files, as a frame
    ends         client configs for each end of a job
    places       bounds of a range: times, offsets

A job `name` is a module of that name with a click command `name`, whose body runs in the driver,
and a function `check`, which refuses invalid options. The words of a job are parsed and checked
before any JVM starts, and once more in the driver. A function `look` asks the cluster, before a JVM
starts for a driver that runs here. So a job's module imports PySpark only inside of functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from kcli.command.command import Command, Options

JOBS = {
    "land": "write topics as Parquet, JSON or Delta",
    "etl": "transform topics by SQL or Python, to a topic or files",
    "replay": "send landed records, or a range of a topic, to a topic again",
    "compact": "compact many small files into few large ones",
    "redrive": "send dead letters back to their topics",
    "audit": "compare topics with the rows landed from them, and report differences",
}


def job_named(name: str) -> Command:
    job = getattr(importlib.import_module(f"kcli.spark.jobs.{name}"), name)
    assert isinstance(job, Command)
    return job


def read(name: str, words: Sequence[str]) -> Options:
    """Return the checked options of a job's words.

    Raises click's UsageError or Refused if they are invalid; click's Exit after --help.
    """
    context = job_named(name).make_context(f"k spark-submit {name}", list(words))
    with context:
        options = Options(**context.params)
        importlib.import_module(f"kcli.spark.jobs.{name}").check(options)
    return options


def look(name: str, options: Options) -> None:
    """Check the cluster for the job, if its module has a function `look`.

    Raises Refused, or the client's errors.
    """
    module = importlib.import_module(f"kcli.spark.jobs.{name}")
    if hasattr(module, "look"):
        module.look(options)


def run(name: str, words: Sequence[str]) -> int | None:
    """Run the job here, in the driver; return its exit status."""
    options = read(name, words)
    body = job_named(name).callback
    assert body is not None
    status: int | None = body(options)
    return status
