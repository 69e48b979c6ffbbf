"""Pipelines of Spark under kill -9: their parts, the kills, and the checks.

    with Source(broker.address, topic) as source:          writes records with known ids
        pipeline = Pipeline(directory, command, checkpoints)
        for _ in range(rounds):
            harm(...)                                      a process dies in the middle of a batch
        ids = source.finish()
        pipeline.finish(300)                               once to its end, without a kill
    check(ids, landed_in_files(path)).exact                every id is there, once

The processes of a pipeline are found by their working directory, which they inherit. So those of a
killed driver are found too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlparse

from kcli.client import Blocking, Consumer, Producer
from kserver.model import TopicPartition
from tests.support.brokers import Broker
from tests.support.spark_cluster import Cluster
from tests.support.tools import K

PATIENCE_S = 600
LOOK_AGAIN_S = 0.1
SHOWN_CHARACTERS = 4000


# Source of records


class Source:
    """A producer that continuously writes records with new ids, in a thread of its own."""

    def __init__(self, address: str, topic: str, partitions: int, rate: int = 1000) -> None:
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        settings = {
            "bootstrap.servers": address,
            "enable.idempotence": "true",
            "delivery.timeout.ms": "600000",
            "linger.ms": "5",
        }
        self._producer = Blocking(Producer, settings, on_batch=self._told)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._ended = threading.Event()
        self._sent = 0
        self._failures: list[object] = []

    def finish(self) -> set[bytes]:
        """Stop writing; return the ids of all records, each of them acknowledged."""
        self._ended.set()
        self._thread.join()
        self._producer.flush()
        assert not self._failures, self._failures[:3]
        return {b"%d" % n for n in range(self._sent)}

    def _told(self, delivered: object) -> None:
        if getattr(delivered, "error", None) is not None:
            self._failures.append(delivered)

    def _write(self) -> None:
        every_s = 0.05
        while not self._ended.wait(every_s):
            count = int(self._rate * every_s)
            self._producer.run(lambda producer, count=count: self._send(producer, count))

    async def _send(self, producer: Producer, count: int) -> None:
        offer = producer.try_send
        for n in range(self._sent, self._sent + count):
            # The sink partitions by the key.
            while not offer(self._topic, b"%d" % n, b"k%d" % (n % 97), n % self._partitions):
                await producer.ready(self._topic)
        self._sent += count

    def __enter__(self) -> Self:
        self._producer.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.__exit__(kind, error, traceback)


# Processes


@dataclass(frozen=True)
class Running:
    pid: int
    parent: int
    words: Sequence[str]

    @property
    def is_python_worker(self) -> bool:
        return "-m" in self.words and any(word.startswith("pyspark.") for word in self.words)

    @property
    def is_executor(self) -> bool:
        return any(word.endswith("CoarseGrainedExecutorBackend") for word in self.words)

    def kill(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def running_in(directory: Path) -> list[Running]:
    """Return the processes whose working directory is this one or below it."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            where = os.readlink(f"{entry.path}/cwd")
            if not Path(where).is_relative_to(directory):
                continue
            with open(f"{entry.path}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")[:-1]
            with open(f"{entry.path}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        found.append(Running(int(entry.name), parent, words))
    return found


class Pipeline:
    """A driver that is started, killed and restarted, and at the end runs without a kill.

    `command` returns its arguments: batch after batch, or with True to its end. `checkpoints` are
    those of its queries; `elsewhere` is the directory of its executors, if they are not next to the
    driver. As a context it runs batch after batch, or with `once` to its end.
    """

    def __init__(
        self,
        directory: Path,
        command: Callable[[bool], Sequence[str]],
        checkpoints: Sequence[Path],
        elsewhere: Path | None = None,
        once: bool = False,
    ) -> None:
        self._once = once
        self._directory = directory
        self._command = command
        self._checkpoints = checkpoints
        self._elsewhere = elsewhere
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        directory.mkdir(parents=True)

    def start(self, once: bool = False) -> None:
        self.starts += 1
        with open(self._log, "wb") as file:
            self._process = subprocess.Popen(
                [*K, "spark-submit", *self._command(once)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self._directory,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def keep_up(self) -> None:
        """Restart the driver if it has exited, with any status, as a supervisor does."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def finish(self, patience_s: float) -> None:
        """Kill all processes once more, and then run the pipeline to its end."""
        self.kill_driver()
        self.start(once=True)
        self.wait(patience_s)

    def wait(self, patience_s: float) -> None:
        """Wait until it has exited with success."""
        assert self._process is not None
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not at its end in {patience_s} s:\n{self.said()}") from None
        assert code == 0, self.said()

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-SHOWN_CHARACTERS:]

    def batches(self, state: str) -> list[int]:
        """Return the number of the last batch in the offsets or commits of each query's checkpoint;
        -1 if there is none.
        """
        return [
            max((int(n) for n in _names(checkpoint / state) if n.isdigit()), default=-1)
            for checkpoint in self._checkpoints
        ]

    def processes(self) -> list[Running]:
        found = running_in(self._directory)
        return found if self._elsewhere is None else found + running_in(self._elsewhere)

    def kill_driver(self, random: Random | None = None) -> str:
        """Kill its JVM, its Python, or both; wait until it has exited."""
        assert self._process is not None
        drivers = [
            one for one in running_in(self._directory) if not one.is_python_worker and one.words
        ]
        jvm = [one for one in drivers if one.words[0].endswith("java")]
        python = [one for one in drivers if not one.words[0].endswith("java")]
        name, killed = "driver", drivers
        if random is not None and jvm and python:
            name, killed = random.choice(
                [("driver", drivers), ("driver's JVM", jvm), ("driver's Python", python)]
            )
        for one in killed:
            one.kill()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the {name} was killed and it went on:\n{self.said()}") from None
        return name

    def kill_worker(self, random: Random) -> str | None:
        """Kill a Python worker that runs tasks; return None if there is none."""
        found = [one for one in self.processes() if one.is_python_worker]
        daemons = {one.pid for one in found}
        found = [one for one in found if one.parent in daemons]
        if not found:
            return None
        random.choice(found).kill()
        return "Python worker"

    def kill_executor(self, random: Random) -> str | None:
        found = [one for one in self.processes() if one.is_executor]
        if not found:
            return None
        random.choice(found).kill()
        return "executor"

    def stop(self) -> None:
        """Kill all of its processes."""
        if self._process is None:
            return
        deadline = time.monotonic() + PATIENCE_S
        while found := running_in(self._directory):
            for one in found:
                one.kill()
            assert time.monotonic() < deadline, found
            self._process.poll()
            time.sleep(LOOK_AGAIN_S)
        self._process.wait()

    @property
    def _log(self) -> Path:
        return self._directory / f"driver-{self.starts}.log"

    def __enter__(self) -> Self:
        self.start(self._once)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


# Kills


def harm(
    pipeline: Pipeline,
    broker: Broker,
    random: Random,
    victims: Sequence[str],
    grown: Callable[[], int],
    cluster: Cluster | None,
    at_any_time: float,
) -> str:
    """Kill -9 once, after each query has made progress: with this probability some time after a
    batch began, else when a sink has just grown. Return the victim and the time.
    """
    committed = pipeline.batches("commits")
    await_that(pipeline, lambda: _all_above(pipeline.batches("commits"), committed))
    before = grown()
    await_that(pipeline, lambda: pipeline.batches("offsets") != pipeline.batches("commits"))
    if random.random() < at_any_time:
        # From 10 ms to 10 s, since durations of batches differ by as much.
        time.sleep(10 ** random.uniform(-2, 1))
        when = "at some time"
    else:
        await_that(pipeline, lambda: grown() > before)
        when = "after it wrote"
    killed = _kill(random.choice(victims), pipeline, broker, random, cluster)
    pipeline.keep_up()
    return f"{killed} {when}"


def _all_above(now: list[int], before: list[int]) -> bool:
    return all(n > then for n, then in zip(now, before, strict=True))


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []


def _kill(
    victim: str,
    pipeline: Pipeline,
    broker: Broker,
    random: Random,
    cluster: Cluster | None,
) -> str:
    """Kill the victim, or the driver if there is no such victim, and return its name."""
    if victim == "broker":
        broker.kill()
        time.sleep(random.random())
        broker.start()
        return "broker"
    if victim == "node":
        assert cluster is not None
        node = cluster.kill_node(random)
        time.sleep(random.random())
        cluster.bring_back(node)
        return node.name
    killed = None
    if victim == "worker":
        killed = pipeline.kill_worker(random)
    elif victim == "executor":
        killed = pipeline.kill_executor(random)
    return killed or pipeline.kill_driver(random)


def await_that(pipeline: Pipeline, holds: Callable[[], bool]) -> None:
    """Wait, and restart the pipeline meanwhile if it exits."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        pipeline.keep_up()
        assert time.monotonic() < deadline, f"nothing comes:\n{pipeline.said()}"
        time.sleep(LOOK_AGAIN_S)


# Checks


@dataclass(frozen=True)
class Verdict:
    count: int
    """Number of expected ids."""
    missing: int
    doubled: int
    """Number of duplicates."""
    foreign: int

    @property
    def exact(self) -> bool:
        return (self.missing, self.doubled, self.foreign) == (0, 0, 0)


def check(ids: set[bytes], found: Iterable[bytes]) -> Verdict:
    counts = Counter(found)
    return Verdict(
        len(ids),
        missing=len(ids - counts.keys()),
        doubled=sum(counts.values()) - len(counts),
        foreign=len(counts.keys() - ids),
    )


def in_topic(address: str, topic: str, partitions: int) -> list[bytes]:
    """Return the values of committed records in a topic, up to its end."""
    settings = {"bootstrap.servers": address, "isolation.level": "read_committed"}
    found = []
    every = [TopicPartition(topic, n) for n in range(partitions)]
    with Blocking(Consumer, settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(every)
        ends = consumer.end_offsets(every)
        deadline = time.monotonic() + PATIENCE_S
        while any(consumer.position(p) < end for p, end in ends.items()):
            assert time.monotonic() < deadline, "an end that is never reached"
            found += [record.value for record in consumer.poll(200, max_records=100_000)]
    return found


def end_of(address: str, topic: str, partitions: int) -> int:
    """Return the number of a topic's offsets, of records of any kind."""
    every = [TopicPartition(topic, n) for n in range(partitions)]
    with Blocking(Consumer, {"bootstrap.servers": address}) as consumer:
        return sum(consumer.end_offsets(every).values())


def in_files(path: Path) -> list[bytes]:
    """Return the values of Parquet files: of those in the log of Spark's file sink if it has one,
    else of all.
    """
    return _values(listed(path))


def in_all_files(path: Path) -> list[bytes]:
    """Return the values as a reader that does not know Spark's log reads them."""
    return _values(_all(path))


def _values(files: list[str]) -> list[bytes]:
    import pyarrow.parquet as pq

    found: list[bytes] = []
    for file in files:
        found += pq.ParquetFile(file).read(columns=["value"])["value"].to_pylist()
    return found


def listed(path: Path) -> list[str]:
    """Return the listed files: every tenth entry in the sink's log contains all before it."""
    log = path / "_spark_metadata"
    if not log.is_dir():
        return _all(path)
    files: dict[str, None] = {}
    names = {name.removesuffix(".compact"): name for name in os.listdir(log) if name[0] != "."}
    for batch in sorted(names, key=int):
        for line in (log / names[batch]).read_text().splitlines()[1:]:
            one = json.loads(line)
            assert one["action"] == "add", one
            files[unquote(urlparse(one["path"]).path)] = None
    return list(files)


def _all(path: Path) -> list[str]:
    """Return all files except hidden ones, such as uncommitted ones, which every reader skips."""
    return sorted(
        str(file)
        for file in path.rglob("*.parquet")
        if not any(part[0] in "_." for part in file.relative_to(path).parts)
    )


def in_delta(path: Path) -> list[bytes]:
    from deltalake import DeltaTable

    table = DeltaTable(str(path)).to_pyarrow_table(columns=["value"])
    values: list[bytes] = table["value"].to_pylist()
    return values


def files_in(path: Path) -> int:
    return len(_all(path))
