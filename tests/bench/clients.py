"""Run real clients, each in its own process: Python's (python/) and Apache's Java clients.

Each function returns messages of 200 bytes per second.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.bench.machine import BenchError
from tests.bench.servers import APACHE_VERSION, Server
from tests.bench.shapes import MESSAGE_BYTES
from tests.support import apache_kafka
from tests.support.tools import PACKAGES, find

ROOT = Path(__file__).parents[2]
CONSUME = Path(__file__).with_name("Consume.java")
JAVA_WARM_UP = 500_000
"""Messages before the JVM of a producer is warm."""
JAVA_MESSAGES_S = 500_000
"""Approximate rate of a producer; sets the number of messages for each second of a run."""
TIMEOUT_S = 300
SOME = 20
"""Records whose acknowledgement is awaited before a producer counts as running."""
RATE = re.compile(r"steady state records sent, ([\d.]+) records/sec")


@dataclass(frozen=True)
class Client:
    """A Python client. `module` is the end of its module's name in python/, `package` the package
    it needs.

    `paths` come before the source tree on the module search path, for a compiled build.
    """

    name: str
    module: str
    package: str = ""
    paths: tuple[Path, ...] = ()


def python_produce(client: Client, server: Server, shape: str, seconds: float) -> float:
    """Produce to a new topic."""
    with server.topic(1) as topic:
        sent, took_s = _python(client, server, "produce", topic, shape, seconds)
        _check_arrived(server, topic, sent)
    return sent / took_s


def python_consume(client: Client, server: Server, topic: str, shape: str, messages: int) -> float:
    read, took_s = _python(client, server, "consume", topic, shape, messages)
    return read / took_s


def java_produce(server: Server, topic: str, seconds: float) -> float:
    """Produce with Apache's kafka-producer-perf-test.sh, unthrottled, with its defaults."""
    messages = JAVA_WARM_UP + int(JAVA_MESSAGES_S * seconds)
    rate = perf_test(server.kind.name, server.address, topic, messages, JAVA_WARM_UP)
    _check_arrived(server, topic, messages)
    return rate


def perf_test(of: str, addresses: str, topic: str, messages: int, warm_up: int) -> float:
    """Return messages per second, measured after the first `warm_up` messages."""
    output = _run(
        of,
        [
            *(sys.executable, apache_kafka.__file__, "tool", APACHE_VERSION),
            *("kafka-producer-perf-test.sh", "--topic", topic, "--throughput", "-1"),
            *("--num-records", str(messages)),
            *("--warmup-records", str(warm_up), "--record-size", str(MESSAGE_BYTES)),
            *("--bootstrap-server", addresses),
        ],
    )
    return perf_test_rate(output)


def java_consume(server: Server, topic: str, messages: int) -> float:
    words = [server.address, topic, str(messages)]
    return float(
        _run(
            server.kind.name,
            apache_kafka.java(APACHE_VERSION, "kafka-consumer-perf-test", str(CONSUME), words),
        )
    )


def perf_test_rate(output: str) -> float:
    """Return records per second of the warm JVM, from the tool's summary."""
    found = RATE.search(output)
    if not found:
        raise BenchError(f"no rate in what the tool said:\n{output}")
    return float(found[1])


def _check_arrived(server: Server, topic: str, sent: int) -> None:
    """Raises BenchError if messages are missing: neither tool fails when the broker refuses its
    records."""
    arrived = server.end_offset(topic)
    if arrived != sent:
        raise BenchError(f"of {sent} messages {arrived} reached {server.kind.name}")


def _python(
    client: Client, server: Server, mode: str, topic: str, shape: str, amount: float
) -> tuple[int, float]:
    if client.package and find(client.package) is None:
        raise BenchError(PACKAGES[client.package])
    words = [client.module, mode, server.address, topic, shape, str(amount)]
    found = python_module(server, "tests.bench.python", words, client.paths)
    return found["messages"], found["seconds"]


def python_module(
    server: Server, module: str, words: Sequence[str], paths: Sequence[Path] = ()
) -> Any:
    """Run the module and return the JSON that it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))}
    # Without -P the working directory would come before all paths.
    return json.loads(
        _run(server.kind.name, [sys.executable, "-P", "-m", module, *words], environment)
    )


def _run(of: str, command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a client and return its output. `of` is the name of the broker's kind."""
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
        )
    except OSError as error:
        raise BenchError(f"a client of {of}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"a client of {of} did not end in {TIMEOUT_S} s") from error
    if ran.returncode:
        raise BenchError(f"a client of {of}: {ran.stderr[-2000:] or ran.stdout}")
    return ran.stdout


class Timeline:
    """A running module of tests.bench.python that prints two times for each record: when it was
    sent, and when it was acknowledged.

        with Timeline(kind's name, module, words) as timeline:

    The block begins after the first `SOME` records.
    """

    def __init__(self, kind: str, module: str, words: Sequence[str]) -> None:
        self.kind = kind
        self.command = [sys.executable, "-P", "-m", module, *words]

    def __enter__(self) -> Timeline:
        # A file, as nobody reads a pipe while librdkafka logs each failed connection.
        self._errors = TemporaryFile("w+")
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        # A program that prints nothing for too long is killed, which ends the wait for its next
        # line.
        self._limit = threading.Timer(TIMEOUT_S, self._process.kill)
        self._limit.start()
        for _ in range(SOME):
            self._times()
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.cancel()
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def next_after(self, began: float) -> float:
        """Return the seconds from `began`, on the monotonic clock, until the acknowledgement of a
        record that was sent later."""
        while True:
            sent, acknowledged = self._times()
            if sent > began:
                return acknowledged - began

    def end(self) -> dict[str, float]:
        """Close the program's standard input, and return the figures of its last line."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        while not (line := self._line()).startswith("{"):
            pass
        figures: dict[str, float] = json.loads(line)
        return figures

    def _times(self) -> tuple[float, float]:
        sent, acknowledged = self._line().split()
        return float(sent), float(acknowledged)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise BenchError(f"a client of {self.kind} ended: {self._errors.read()}")
        return line
