"""Parts that jobs share: options, Spark's session, and streams that are followed to their end.

words     topics to read, limits, checkpoints
driver    a session without noise; queries, followed with progress until they end
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kcli.command.options import (
    LONG,
    Refused,
    client_options,
    client_properties,
    exclude,
    is_set,
    option,
    option_group,
    refuse,
)
from kcli.command.output import complain, is_redrawable, transient
from kcli.command.statuses import DONE, INTERRUPTED
from kcli.spark.progress import Totals, line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kcli.command.command import Options

READ = "Input"
STREAM = "The stream"
SHOWN = "Progress"

AVAILABLE_NOW, CONTINUOUS = "availableNow", "continuous"
_EVERY = re.compile(r"([0-9]{1,9})(ms|s|m|h)")
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}

LOOK_EVERY_S = 0.5
SETTLE_S = 0.1
STARTING = ("Initializing StreamExecution", "Initializing sources")
"""Spark's status messages of a query before that."""
TOO_SLOW = "Python worker failed to connect back"
STARTS = 5

cluster = client_options("consumer")
"""Options of the cluster of the topics."""

topics = option_group(
    option("--topics", "Topics by name.", "TOPIC,...", section=READ),
    option(
        "--pattern",
        "Topics whose whole name matches this regular expression, including topics created later.",
        "PATTERN",
        section=READ,
    ),
)
stream = option_group(
    option(
        "--checkpoint",
        "The directory in which the job stores its progress; required.  Each job must have its"
        " own.  Keep it as long as the job's output.",
        "DIRECTORY",
        section=STREAM,
    ),
    option(
        "--trigger",
        "When to run a batch: availableNow reads all records that exist and ends; a time such as"
        " 30s or 5m runs a batch at this interval; continuous runs one after another.  Default:"
        " availableNow.",
        "WHEN",
        section=STREAM,
    ),
    option(
        "--max-offsets",
        "A batch reads at most this many offsets.",
        "N",
        type=LONG,
        section=STREAM,
    ),
    option(
        "--starting-offsets",
        "Where to begin with a new checkpoint: earliest, latest, or offsets as JSON.  Default:"
        " earliest.",
        "WHERE",
        section=STREAM,
    ),
    option(
        "--ignore-data-loss",
        "Continue if records have aged out before they were read, or if a topic was deleted and"
        " created again; such a topic is then read from its earliest record.",
        section=STREAM,
    ),
)
quiet = option("--quiet", "Show no progress and no summary.", section=SHOWN)


# Words


def check_topics(options: Options) -> None:
    exclude(options, "topics", ["pattern"])
    if not is_set(options, "topics") and not is_set(options, "pattern"):
        refuse("name topics to read: --topics or --pattern")


def check_stream(options: Options) -> None:
    """Check the options of `topics` and `stream`, before Spark is started."""
    from kcli.spark.options import stream_options
    from kserver.errors import ConfigError

    check_topics(options)
    if not options.checkpoint:
        refuse("name a directory for the progress of the job: --checkpoint DIRECTORY")
    trigger(options)
    try:
        stream_options(source_options(options))
    except ConfigError as error:
        raise Refused(str(error)) from error


def check_table(option: str, path: str, format: str | None) -> None:
    """Refuse a path that the library of Delta tables would take for another one.

    deltalake writes a table's log at the path as it is, and looks for it at the decoded path.
    """
    if format == "delta" and (match := _ENCODED.search(path)) is not None:
        refuse(
            f"{option} {path} contains {match[0]}, which the deltalake library decodes; give"
            " --format delta a path without a % before two hexadecimal digits"
        )


def subscription(options: Options) -> dict[str, str]:
    if options.topics is not None:
        return {"subscribe": options.topics}
    return {"subscribePattern": options.pattern}


def source_options(options: Options) -> dict[str, str]:
    """Return the options of spark.readStream.format("k")."""
    result = client_options_of(options) | subscription(options)
    result["startingOffsets"] = options.starting_offsets or "earliest"
    if options.max_offsets is not None:
        result["maxOffsetsPerTrigger"] = str(options.max_offsets)
    if options.ignore_data_loss:
        result["failOnDataLoss"] = "false"
    return result


def client_options_of(options: Options) -> dict[str, str]:
    """Return the client's configs, as options of the data source."""
    return {f"kafka.{key}": text for key, text in client_properties(options).items()}


def trigger(options: Options) -> dict[str, Any]:
    """Return the arguments of DataStreamWriter.trigger."""
    text = options.trigger or AVAILABLE_NOW
    if text.lower() == AVAILABLE_NOW.lower():
        return {"availableNow": True}
    if text.lower() == CONTINUOUS:
        return {"processingTime": "0 seconds"}
    if (match := _EVERY.fullmatch(text)) is None:
        refuse(
            f"--trigger must be {AVAILABLE_NOW}, {CONTINUOUS} or a time such as 30s, not '{text}'"
        )
    return {"processingTime": f"{match[1]} {_UNITS[match[2]]}"}


def check_target(options: Options, topic: str) -> None:
    """Raises Refused if the topic to write to does not exist: a task would fail, long after Spark
    was started.
    """
    from kcli.client.admin.admin import Admin
    from kcli.command.command_runner import CLUSTER, admin_config, run
    from kserver.errors import ErrorCode, KafkaError

    async def described() -> object:
        async with Admin(admin_config(options)) as admin:
            return (await admin.describe_topics([topic]))[topic]

    description = run(described(), None, CLUSTER)
    if isinstance(description, KafkaError):
        if description.code is not ErrorCode.unknown_topic_or_partition:
            raise description
        raise Refused(
            f"topic {topic} to write to does not exist; create it: k topics --create --topic "
            f"{topic}"
        )


# In the driver


@contextlib.contextmanager
def session(
    settings: Mapping[str, str] | None = None, *, shows_stages: bool = False
) -> Iterator[SparkSession]:
    """Open Spark's session, as configured by spark-submit; `settings` are defaults. With
    `shows_stages` it shows the progress of stages on a terminal, for jobs with few stages.

    Times are in UTC: the output must not depend on the machine's time zone.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    conf = SparkConf()
    for key, text in (settings or {}).items():
        conf.setIfMissing(key, text)
    if shows_stages and is_redrawable(sys.stderr):
        conf.setIfMissing("spark.ui.showConsoleProgress", "true")
    conf.set("spark.sql.session.timeZone", "UTC")
    conf.setIfMissing("spark.log.level", "ERROR")
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        yield spark
    finally:
        with contextlib.suppress(Exception):  # it has ended already
            _silence()
            spark.stop()


def _silence() -> None:
    """Silence Spark, which reports at length that it is being stopped. In Java, standard error
    becomes /dev/null; this process's own is not affected.
    """
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    if not os.environ.get("K_DEBUG"):
        jvm.java.lang.System.err.close()


def counted(frame: DataFrame) -> DataFrame:
    """Return the frame, whose query counts its rows as `rows` in its Totals.observed."""
    from pyspark.sql import functions as f

    return frame.observe("counted", f.count(f.lit(1)).alias("rows"))


def number(totals: Totals, of: str) -> str:
    """Return the number of rows that were counted, with a noun: 1 row, 2,000 rows."""
    rows = totals.observed.get("rows", 0)
    return f"{rows:,} {of}" if rows == 1 else f"{rows:,} {of}s"


def settled(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, and return it once its source is initialized or it has ended.

    Spark gives a source's Python ten seconds to start, which is too short on a busy machine:
    queries are started one after another, and restarted if they failed for that reason.
    """
    for _ in range(STARTS):
        query = start()
        while query.isActive and query.status["message"] in STARTING:
            time.sleep(SETTLE_S)
        if query.isActive or TOO_SLOW not in str(query.exception() or ""):
            break
    return query


def follow(
    queries: Mapping[str, StreamingQuery],
    *,
    quiet: bool,
    totals: dict[str, Totals] | None = None,
) -> tuple[int, dict[str, Totals]]:
    """Wait until all queries have ended, showing their progress. Return the status, and the totals
    of each, added to those before.

    If one fails the others are stopped, and its error is raised. Ctrl-C stops each after its
    current batch; a second one at once.
    """
    if totals is None:
        totals = {name: Totals() for name in queries}
    with _Interrupts() as interrupts:
        try:
            _follow(queries, totals, interrupts, quiet)
        finally:
            transient("")
            for query in queries.values():
                with contextlib.suppress(Exception):
                    if query.isActive:
                        _silence()
                    query.stop()
    return INTERRUPTED if interrupts.came else DONE, totals


def _follow(
    queries: Mapping[str, StreamingQuery],
    totals: Mapping[str, Totals],
    interrupts: _Interrupts,
    quiet: bool,
) -> None:
    alive = dict(queries)
    while alive:
        for name, query in list(alive.items()):
            # It raises the error of a failed query.
            ended = query.awaitTermination(LOOK_EVERY_S)  # type: ignore[arg-type]
            new = totals[name].add(_recent_progress(query, totals[name]))
            if ended:
                del alive[name]
            elif interrupts.came and (new or not query.status["isTriggerActive"]):
                # It may have begun the next batch, which will be run again at the next start.
                _silence()
                query.stop()
                del alive[name]
        if not quiet:
            transient(line(totals, stopping=interrupts.came))


def _recent_progress(query: StreamingQuery, totals: Totals) -> Sequence[Mapping[str, Any]]:
    """Return the progress of batches that were not counted yet. The whole history is expensive; it
    is requested only if more than one batch has passed.
    """
    last = query.lastProgress
    if last is None or last["batchId"] <= totals.batch:
        return []
    if last["batchId"] == totals.batch + 1:
        return [last]
    return query.recentProgress


class _Interrupts:
    """Notes Ctrl-C within the block; raises the second one."""

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def __enter__(self) -> _Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True


class Summary:
    """The line at the end: the outcome, and the duration in seconds."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._started = time.monotonic()

    def report(self, text: str) -> None:
        if not self._quiet:
            complain(f"{text}, {time.monotonic() - self._started:.1f} s")
