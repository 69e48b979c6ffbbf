"""Rows of Spark: the source and sink `k` next to Spark's own connector, on this broker.

Each variant has its own session; they differ only in the format, and run each job once before it is
measured. --seconds determines the number of records: five million for 3.
"""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Callable, Mapping
from random import Random

from kserver.wire.batch import encode_batch
from tests.bench import compiled
from tests.bench.figures import Aim, at_least_times_of, at_most
from tests.bench.load import RECORDS
from tests.bench.machine import BenchError
from tests.bench.row import Row, Work
from tests.bench.servers import Server
from tests.bench.shapes import MESSAGE_BYTES
from tests.bench.sparks import Application, Took
from tests.support import spark_connector

K, COMPILED, CONNECTOR = "k", "k compiled", "connector"
VARIANTS = (K, COMPILED, CONNECTOR)
EXACTLY_ONCE = "k exactly once"
READ_A_S = 5_000_000 / 3
"""Records to read for each second of --seconds."""
WRITTEN_A_S = 1_000_000 / 3
TRIGGERS = 5
PARTITIONS, MANY = 4, 500
ACCOUNTS, MINUTES = 10, 60
_numbers = itertools.count()


def rows_s(variant: str) -> str:
    return f"{variant} M rows/s"


def rows_cpu(variant: str) -> str:
    return f"{variant} M rows/CPU s"


class Sparks:
    """The sessions and topics of one broker, shared by the rows."""

    def __init__(self, work: Work, server: Server) -> None:
        self.work = work
        self.server = server
        self.records = int(READ_A_S * work.seconds)
        self.written = int(WRITTEN_A_S * work.seconds)
        self.many_records = self.records // 5
        self._warm: set[tuple[str, str]] = set()

    def application(self, variant: str) -> Application:
        """Return a new application, which is closed at the end of the run at the latest."""
        jars = spark_connector.jars() if variant == CONNECTOR else ()
        if variant == CONNECTOR and not jars:
            raise BenchError("Spark's own connector is fetched by Maven (apt-get install maven)")
        paths = ()
        if variant == COMPILED:
            paths = (compiled.build(self.work.directory / compiled.DIRECTORY),)
        directory = self.work.directory / f"spark-{next(_numbers)}"
        form = "kafka" if variant == CONNECTOR else "k"
        application = Application(directory, form, jars, paths)
        self.work.until_the_end.callback(application.close)
        return application

    @functools.cached_property
    def applications(self) -> Mapping[str, Application]:
        found = {variant: self.application(variant) for variant in VARIANTS}
        for variant in (K, COMPILED):
            decoder = str(found[variant].run("decoder").found)
            if decoder.endswith("._columns") != (variant == COMPILED):
                raise BenchError(f"{variant} decodes by {decoder}")
        return found

    @functools.cached_property
    def topic(self) -> str:
        return self._filled("16k", RECORDS["16k"])

    @functools.cached_property
    def many(self) -> str:
        return self._filled("16k", RECORDS["16k"], self.many_records, MANY)

    @functools.cached_property
    def orders(self) -> str:
        """Topic of JSON values of some 200 bytes."""
        records = orders(RECORDS["64k"])
        (self.work.load.directory / "orders").write_bytes(encode_batch(records))
        return self._filled("orders", len(records))

    def _filled(
        self, batch: str, count: int, records: int = 0, partitions: int = PARTITIONS
    ) -> str:
        topic = self.work.until_the_end.enter_context(self.server.topic(partitions))
        size = (self.work.load.directory / batch).stat().st_size
        total = (records or self.records) * size // count
        self.work.load.fill(self.server, topic, partitions, total, batch)
        return topic

    def took(self, variant: str, job: str, **arguments: object) -> Took:
        """Return the result of a job in a session that has run the same job before."""
        application = self.applications[variant.removesuffix(" exactly once")]
        for _ in range(2 if (variant, job) not in self._warm else 1):
            found = application.run(job, address=self.server.address, **arguments)
            self._warm.add((variant, job))
        return found


@functools.cache
def sparks(work: Work, server: Server) -> Sparks:
    return Sparks(work, server)


def figures(found: Mapping[str, Took], rows: int) -> Mapping[str, float]:
    return {rows_s(variant): rows / took.seconds / 1e6 for variant, took in found.items()} | {
        rows_cpu(variant): rows / took.cpu_s / 1e6 for variant, took in found.items()
    }


def orders(count: int) -> list[tuple[int, None, bytes, tuple[()]]]:
    random = Random(1)
    now_ms = int(time.time() * 1000)
    made = []
    for number in range(count):
        order = {
            "account": random.randrange(ACCOUNTS),
            "amount": random.randrange(100_000) / 100,
            "at": f"2026-01-01T00:{number % MINUTES:02}:00Z",
            "note": "",
        }
        order["note"] = random.randbytes(MESSAGE_BYTES).hex()[: MESSAGE_BYTES - len(str(order))]
        made.append((now_ms, None, json.dumps(order).encode(), ()))
    return made


Job = Callable[[Sparks, str], Took]


def row(
    name: str,
    about: str,
    job: Job,
    aims: Mapping[str, Aim | None],
    *,
    variants: tuple[str, ...] = VARIANTS,
    rows_of: Callable[[Sparks], int] = lambda shared: shared.records,
) -> Row:
    """Return a row that runs `job` with each of the variants."""

    def measure(work: Work, server: Server, _: str) -> Mapping[str, float]:
        shared = sparks(work, server)
        rows = rows_of(shared)
        return figures({variant: job(shared, variant) for variant in variants}, rows)

    every = dict.fromkeys(figure(variant) for figure in (rows_s, rows_cpu) for variant in variants)
    # `partitions` is set only to get a running broker; the topic is not used.
    return Row(name, about, measure, every | dict(aims), partitions=1, has_rival=False)


def reading(name: str, about: str, job: str, aims: Mapping[str, Aim | None]) -> Row:
    def run(shared: Sparks, variant: str) -> Took:
        more = {"a_trigger": shared.records // TRIGGERS} if job == "available" else {}
        return shared.took(variant, job, topic=shared.topic, **more)

    return row(name, about, run, aims)


def many(shared: Sparks, variant: str) -> Took:
    a_trigger = shared.many_records
    return shared.took(variant, "available", topic=shared.many, a_trigger=a_trigger)


def write(shared: Sparks, variant: str) -> Took:
    options = {"exactlyOnce": "true"} if variant == EXACTLY_ONCE else {}
    with shared.server.topic(PARTITIONS) as topic:
        return shared.took(variant, "write", topic=topic, rows=shared.written, **options)


def windows(shared: Sparks, variant: str) -> Took:
    with shared.server.topic(PARTITIONS) as to:
        return shared.took(variant, "windows", topic=shared.orders, to=to)


def first(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Measure from the start of the process, including the start of the JVM and the session."""
    shared = sparks(work, server)
    topic = shared.topic
    found: dict[str, float] = {}
    for variant in VARIANTS:
        application = shared.application(variant)
        application.run("first", address=server.address, topic=topic)
        took = application.since_its_start()
        found[f"{variant} s"], found[f"{variant} CPU s"] = took.seconds, took.cpu_s
        application.close()
    return found | {
        f"{variant} s behind": found[f"{variant} s"] - found[f"{CONNECTOR} s"]
        for variant in (K, COMPILED)
    }


def times(bound: float, *variants: str, wall: float = 0) -> dict[str, Aim]:
    """Return aims relative to the connector's figure."""
    found = {rows_cpu(v): at_least_times_of(rows_cpu(CONNECTOR), bound) for v in variants}
    if wall:
        found |= {rows_s(v): at_least_times_of(rows_s(CONNECTOR), wall) for v in variants}
    return found


READ = times(1, K) | times(1.2, COMPILED, wall=2)
LAND = times(1, K, wall=1.2) | times(1.2, COMPILED, wall=1.2)
PRUNED = times(1, K, wall=2) | times(2, COMPILED, wall=2)
WRITE = times(1, K, COMPILED, wall=1)

ROWS = (
    reading("spark-count", "Spark counts what is in a topic, records of 200 bytes", "count", READ),
    reading("spark-columns", "all seven columns, to nowhere", "columns", READ),
    reading("spark-two", "two columns, to nowhere: value and offset", "two", PRUNED),
    reading("spark-parquet", "all seven columns, to Parquet", "parquet", LAND),
    reading(
        "spark-available",
        f"the same as a stream, by Trigger.AvailableNow in {TRIGGERS} micro-batches",
        "available",
        LAND,
    ),
    row(
        "spark-many",
        f"a fifth of the records in {MANY} partitions, as a stream in one micro-batch",
        many,
        times(1, K, COMPILED, wall=1),
        rows_of=lambda shared: shared.many_records,
    ),
    row(
        "spark-write",
        "rows of 200 bytes from Spark to a topic, at least once and exactly once",
        write,
        WRITE | {rows_cpu(EXACTLY_ONCE): at_least_times_of(rows_cpu(K), 1 / 1.15)},
        variants=(*VARIANTS, EXACTLY_ONCE),
        rows_of=lambda shared: shared.written,
    ),
    row("spark-json", "JSON into sums by minute, to a topic", windows, WRITE),
    Row(
        "spark-first",
        "the first row, from the start of the process",
        first,
        dict.fromkeys(f"{variant} {unit}" for unit in ("s", "CPU s") for variant in VARIANTS)
        | {f"{variant} s behind": at_most(2) for variant in (K, COMPILED)},
        partitions=1,
        has_rival=False,
    ),
)
