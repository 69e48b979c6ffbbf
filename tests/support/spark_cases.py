"""Pipelines to test with kill -9: jobs and queries, each with its output.

with Harmed(broker, directory, EXACT["land to Parquet"], seed) as harmed:
    harmed.harm()
    assert all(verdict.exact for verdict in harmed.finish().values())
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self

from tests.support.brokers import create_topic
from tests.support.spark_cluster import Cluster
from tests.support.spark_harness import (
    Pipeline,
    Source,
    Verdict,
    check,
    end_of,
    files_in,
    harm,
    in_all_files,
    in_delta,
    in_files,
    in_topic,
)

PARTITIONS = 2
SOURCE = "source"
FINISH_S = 600
MAX_OFFSETS, MAX_OFFSETS_AT_LAST = 1000, 20_000
"""Limits of the offsets in one batch, under kills and at the end."""
RATE = 500
"""Records a second."""
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SMALL = (
    *("--driver-memory", "512m", "--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=WARN"),
    *("--conf", f"spark.driver.extraJavaOptions={QUICK}"),
    *("--conf", f"spark.executor.extraJavaOptions={QUICK}"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
)
LOCAL = ("--master", "local[2,8]", *SMALL)
"""On two processors; a task may fail seven times."""

FORGETFUL = ("topic", "forgetful")
"""The kinds of sinks of spark_pipelines that write again the records that a killed batch
repeats.
"""
PROGRAM = Path(__file__).with_name("spark_pipelines.py")


@dataclass(frozen=True)
class Case:
    command: Callable[[bool], Sequence[str]]
    checkpoints: Sequence[Path]
    found: Mapping[str, Callable[[], list[bytes]]]
    """The values of each sink."""
    grown: Callable[[], int]
    """A figure that grows when a sink grows, of the sinks that write records again."""


def land(
    address: str,
    directory: Path,
    spark: Sequence[str],
    *words: str,
    most_at_last: int = MAX_OFFSETS_AT_LAST,
) -> Case:
    """Return the case of the job with these options."""
    path, checkpoint = directory / "landed", directory / "checkpoint"
    shared = (
        *("--topics", SOURCE, "--path", str(path), "--checkpoint", str(checkpoint)),
        *("--bootstrap-server", address),
    )

    def command(once: bool) -> list[str]:
        trigger, most = ("availableNow", most_at_last) if once else ("continuous", MAX_OFFSETS)
        when = ("--trigger", trigger, "--max-offsets", str(most))
        return [*spark, "land", *shared, *when, *words]

    found = (
        {"the table": partial(in_delta, path)}
        if "delta" in words
        else {"what is listed": partial(in_files, path), "all files": partial(in_all_files, path)}
    )
    return Case(command, [checkpoint / "landed"], found, partial(files_in, path))


def program(address: str, directory: Path, spark: Sequence[str], *kinds: str) -> Case:
    """Return the case of a program: queries of spark_pipelines."""
    checkpoints = directory / "checkpoints"
    sinks: dict[str, str] = {}
    found: dict[str, Callable[[], list[bytes]]] = {}
    size: dict[str, Callable[[], int]] = {}
    for kind in kinds:
        if kind in ("topic", "exactly"):
            sinks[kind] = create_topic(address, kind, PARTITIONS)
            found[kind] = partial(in_topic, address, kind, PARTITIONS)
            size[kind] = partial(end_of, address, kind, PARTITIONS)
        else:
            path = directory / kind
            sinks[kind] = str(path)
            found[kind] = partial(in_files, path)
            size[kind] = partial(files_in, path)
    watched = [size[kind] for kind in kinds if kind in FORGETFUL] or size.values()
    given = {
        "broker": address,
        "source": SOURCE,
        "sinks": sinks,
        "checkpoints": str(checkpoints),
    }
    return Case(
        lambda once: [
            *(*spark, str(PROGRAM)),
            json.dumps(
                given | {"once": once, "most": MAX_OFFSETS_AT_LAST if once else MAX_OFFSETS}
            ),
        ],
        [checkpoints / kind for kind in kinds],
        found,
        lambda: sum(one() for one in watched),
    )


Make = Callable[[str, Path, Sequence[str]], Case]
EXACT: Mapping[str, Make] = {
    "land to Parquet": lambda *where: land(*where, "--partition-by", "hour"),
    "land to Delta": lambda *where: land(*where, "--format", "delta"),
    "topic to topic": lambda *where: program(*where, "exactly"),
}
NOT_EXACT: Mapping[str, Make] = {
    "topic to topic at least once": lambda *where: program(*where, "topic"),
    "a writer that forgets the batch": lambda *where: program(*where, "forgetful"),
}


class Harmed:
    """A case, its source and its driver, on a broker of its own that may be killed."""

    def __init__(
        self,
        broker: Any,
        directory: Path,
        make: Make,
        seed: int,
        *,
        victims: Sequence[str] = ("driver", "worker", "broker"),
        spark: Sequence[str] = LOCAL,
        cluster: Cluster | None = None,
    ) -> None:
        create_topic(broker.address, SOURCE, PARTITIONS)
        self._case = make(broker.address, directory, spark)
        self._broker = broker
        self._random = Random(seed)
        self._victims = victims
        self._source = Source(broker.address, SOURCE, PARTITIONS, RATE)
        self._cluster = cluster
        elsewhere = None if cluster is None else cluster.directory
        self.pipeline = Pipeline(
            directory / "driver", self._case.command, self._case.checkpoints, elsewhere
        )
        self._open = contextlib.ExitStack()
        self.harms: list[str] = []

    def harm(self, victim: str | None = None, at_any_time: float = 0.5) -> str:
        """Kill once, a random victim or this one; see `harm`."""
        victims = self._victims if victim is None else [victim]
        done = harm(
            self.pipeline,
            self._broker,
            self._random,
            victims,
            self._case.grown,
            self._cluster,
            at_any_time,
        )
        self.harms.append(done)
        return done

    def doubled(self) -> dict[str, int]:
        """Return the number of duplicates so far, by sink."""
        return {name: check(set(), found()).doubled for name, found in self._case.found.items()}

    def finish(self) -> dict[str, Verdict]:
        """Process all records to the end, without a kill; return the verdicts by sink."""
        ids = self._source.finish()
        self.pipeline.finish(FINISH_S)
        assert check(ids, in_topic(self._broker.address, SOURCE, PARTITIONS)).exact
        return {name: check(ids, found()) for name, found in self._case.found.items()}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            opening.enter_context(self._source)
            opening.enter_context(self.pipeline)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)
