"""Transactors, each in its own process with some client library, and readers of their output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.integration.clients.catalogue import HERE, built
from tests.integration.clients.teller import Teller
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.tools import K, require

JAVA = "4.3.1"
PATIENCE_S = 90
PYTHON = {"confluent": "confluent_kafka", "aiokafka": "aiokafka", "k": "kcli"}


class Transactor:
    """A process that is restarted when it ends by itself, until it is killed for good."""

    def __init__(
        self, library: str, mode: str, told: threading.Condition, programs: Path, **options: str
    ) -> None:
        self.library = library
        self.committed = 0
        self.kills = 0
        self.said: list[str] = []
        self._told = told
        words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", v)]
        self._command = [*_program(library, programs), mode, *words]
        self._process = self._start()

    def _start(self) -> Teller:
        return Teller(self._command, self._told, self._took, self.said.append)

    def _took(self, line: str) -> None:
        if json.loads(line)["name"] == "committed":
            self.committed += 1

    def restart(self) -> None:
        """Kill the process and start it again."""
        self._process.kill()
        self.kills += 1
        self._process = self._start()

    def kill(self) -> None:
        self._process.kill()
        self.kills += 1

    def is_killed_where(self, holds: Callable[[], bool]) -> bool:
        """Pause the process and call `holds`; if true, kill the process and return True, else
        resume it."""
        self._process.signal(signal.SIGSTOP)
        if holds():
            self.kill()
            return True
        self._process.signal(signal.SIGCONT)
        return False

    def look_after(self) -> None:
        if not self._process.is_running:
            self.restart()


def _program(library: str, programs: Path) -> list[str]:
    if library in PYTHON:
        if library != "k":
            require(PYTHON[library])
        return [sys.executable, str(HERE / "transactors" / f"{library}_transactor.py")]
    if library == "franz":
        program = programs / "franz-transactor"
        return [str(program) if program.exists() else built("franz-transactor", programs)]
    assert library == "java", library
    libraries = f"{apache_kafka.install(JAVA)}/libs/*"
    source = str(HERE / "java" / "Transactor.java")
    return [require("java"), *QUICK_START.split(), "-cp", libraries, source]


class Transactors:
    """All transactors: `with Transactors(...) as all_: all_.start("confluent", ...)`; ends all of
    them."""

    def __init__(self, programs: Path, seed: int) -> None:
        self.each: list[Transactor] = []
        self._programs = programs
        self._random = Random(seed)
        self._told = threading.Condition()

    def __enter__(self) -> Transactors:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        for transactor in self.each:
            transactor.kill()

    def start(self, library: str, mode: str, **options: str) -> None:
        self.each.append(Transactor(library, mode, self._told, self._programs, **options))

    def kill_some(self, times: int) -> None:
        """Kill random transactors, one after the other, each after some new progress."""
        for _ in range(times):
            self.wait_until(self._progress(self._random.randint(1, 10)))
            self._random.choice(self.each).restart()

    def _progress(self, transactions: int) -> Callable[[], bool]:
        wanted = sum(t.committed for t in self.each) + transactions
        return lambda: sum(t.committed for t in self.each) >= wanted

    def wait_until(self, holds: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until `holds` returns true; restart transactors that end by themselves, for example
        fenced."""

        def cared_for() -> bool:
            for transactor in self.each:
                transactor.look_after()
            return holds()

        with self._told:
            assert self._told.wait_for(cared_for, seconds), self.story()

    def story(self) -> str:
        lines = []
        for transactor in self.each:
            lines.append(
                f"{transactor.library}: {transactor.committed} committed, {transactor.kills} kills"
            )
            lines += ["    " + line.rstrip() for line in transactor.said[-8:]]
        return "\n".join(lines)


def read_by_confluent(address: str, topic: str, isolation: str) -> list[str]:
    """Return the values of all partitions, up to their ends."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    values, ended = [], set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"{topic}: only the ends of {ended} were reached"
        for message in consumer.consume(1000, timeout=1):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    consumer.close()
    return values


def _read_by(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout.split()


def read_by_kcat(address: str, topic: str, isolation: str) -> list[str]:
    words = ["-C", "-e", "-q", "-o", "beginning", "-X", f"isolation.level={isolation}", "-t", topic]
    return _read_by([require("kcat"), "-b", address, *words])


def read_by_k(address: str, topic: str, isolation: str) -> list[str]:
    words = ["--isolation-level", isolation, "--from-beginning", "--exit-at-end"]
    command = [*K, "console-consumer"]
    return _read_by([*command, "--bootstrap-server", address, "--topic", topic, *words])


def read_by_java(address: str, topic: str, isolation: str, count: int) -> list[str]:
    """Return `count` values; the console consumer cannot detect the end of a topic."""
    require("java")
    command = [sys.executable, apache_kafka.__file__, "tool", JAVA, "kafka-console-consumer.sh"]
    words = ["--isolation-level", isolation, "--from-beginning", "--max-messages", str(count)]
    return _read_by([*command, "--bootstrap-server", address, "--topic", topic, *words])


def read_by_all(address: str, topic: str, isolation: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each reader's name and the values that it has read."""
    read = read_by_confluent(address, topic, isolation)
    yield "confluent", read
    yield "kcat", read_by_kcat(address, topic, isolation)
    yield "k", read_by_k(address, topic, isolation)
    yield "java", read_by_java(address, topic, isolation, len(read))
