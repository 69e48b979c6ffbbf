"""The jobs of `k spark-submit`: each a small module, read and checked here, run in Spark's driver.

    land         topics to Parquet, JSON or Delta (land_paths: its expressions; delta: its sink for
                 tables; leftovers: what a killed run has left)
    etl          topics through SQL or Python, to a topic or files (shaping: its words)
    replay       what has landed, or a range of a topic, to a topic again (replay_frames; pacing,
                 pace_server: its rate)
    compact      small files to few (compact_plan: which; swapping: their files in the place of
                 others; sink_log: Spark's list of files; store: files wherever they are)
    redrive      dead letters back to their topics (redrive_frames: its frames)
    audit        what topics hold against what has landed (audit_queries: its queries; reckoning)

    run          the application that spark-submit is handed: one job, from its words
    shared       options that jobs share, their session, their streams followed to the end
    telling      what Spark says went wrong, in one line
    functions    functions of one's own, by name
    payloads     what values are, and what becomes of those that are not
    land_reading what has landed, as a frame
    ends         what each end of a job is told of the cluster
    places       where a range begins or ends: times, offsets

A job `name` is a module of that name with a click command `name`, whose body runs in the driver,
and a function `check`, which is given the same options and refuses what makes no sense.  The words
of a job are parsed and checked before any JVM starts, and once more in the driver; a function
`look` asks the cluster, before a JVM starts for a driver that runs here.  So a job's
module imports PySpark inside of functions only.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import SimpleNamespace

from kcli.command import Command

JOBS = {
    "land": "write topics as Parquet, JSON or Delta",
    "etl": "transform topics by SQL or Python, to a topic or files",
    "replay": "send landed records, or a range of a topic, to a topic again",
    "compact": "compact many small files into few large ones",
    "redrive": "send dead letters back to their topics",
    "audit": "compare topics with the rows landed from them, and report differences",
}


def job_named(name: str) -> Command:
    found = getattr(importlib.import_module(f"kcli.spark.jobs.{name}"), name)
    assert isinstance(found, Command)
    return found


def read(name: str, words: Sequence[str]) -> SimpleNamespace:
    """What the words of a job say, checked.

    click's UsageError or Refused for what makes no sense; click's Exit after --help.
    """
    context = job_named(name).make_context(f"k spark-submit {name}", list(words))
    with context:
        given = SimpleNamespace(**context.params)
        importlib.import_module(f"kcli.spark.jobs.{name}").check(given)
    return given


def look(name: str, given: SimpleNamespace) -> None:
    """What the cluster is to have for it, where the job's module has a function `look`.

    Refused, or what keeps a client from the cluster."""
    module = importlib.import_module(f"kcli.spark.jobs.{name}")
    if hasattr(module, "look"):
        module.look(given)


def run(name: str, words: Sequence[str]) -> int | None:
    """Run it here, which is the driver; its exit status."""
    given = read(name, words)
    body = job_named(name).callback
    assert body is not None
    status: int | None = body(given)
    return status
