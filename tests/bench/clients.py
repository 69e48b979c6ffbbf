"""Real clients, each in a process of its own: librdkafka through Python, and Apache's Java clients.

Each returns messages of 200 bytes a second.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.bench.load import MESSAGE_BYTES
from tests.bench.machine import BenchError
from tests.bench.servers import APACHE_VERSION, Server
from tests.support import apache_kafka
from tests.support.tools import PACKAGES, find

LIBRDKAFKA = Path(__file__).with_name("librdkafka.py")
CONSUME = Path(__file__).with_name("Consume.java")
JAVA_WARM_UP = 500_000
"""Messages before the JVM of a producer is warm."""
JAVA_MESSAGES_S = 500_000
"""About what a producer sends; how many it is given for a second's run."""
RATE = re.compile(r"steady state records sent, ([\d.]+) records/sec")


def librdkafka_produce(server: Server, topic: str, seconds: float) -> float:
    sent, took_s = _librdkafka(server, "produce", topic, seconds)
    _check_arrived(server, topic, sent)
    return sent / took_s


def librdkafka_consume(server: Server, topic: str, messages: int) -> float:
    read, took_s = _librdkafka(server, "consume", topic, messages)
    return read / took_s


def java_produce(server: Server, topic: str, seconds: float) -> float:
    """Apache's kafka-producer-perf-test.sh: as fast as it can, with its defaults."""
    messages = JAVA_WARM_UP + int(JAVA_MESSAGES_S * seconds)
    output = _run(
        server,
        [
            *(sys.executable, apache_kafka.__file__, "tool", APACHE_VERSION),
            *("kafka-producer-perf-test.sh", "--topic", topic, "--throughput", "-1"),
            *("--num-records", str(messages)),
            *("--warmup-records", str(JAVA_WARM_UP), "--record-size", str(MESSAGE_BYTES)),
            *("--bootstrap-server", server.address),
        ],
    )
    _check_arrived(server, topic, messages)
    return perf_test_rate(output)


def java_consume(server: Server, topic: str, messages: int) -> float:
    words = [server.address, topic, str(messages)]
    return float(
        _run(
            server,
            apache_kafka.java(APACHE_VERSION, "kafka-consumer-perf-test", str(CONSUME), words),
        )
    )


def perf_test_rate(output: str) -> float:
    """Records a second of the warm JVM, from the summary."""
    found = RATE.search(output)
    if not found:
        raise BenchError(f"no rate in what the tool said:\n{output}")
    return float(found[1])


def _check_arrived(server: Server, topic: str, sent: int) -> None:
    """Neither tool fails when the broker refuses what it sends."""
    arrived = server.end_offset(topic)
    if arrived != sent:
        raise BenchError(f"of {sent} messages {arrived} reached {server.kind.name}")


def _librdkafka(server: Server, mode: str, topic: str, amount: float) -> tuple[int, float]:
    if find("confluent_kafka") is None:
        raise BenchError(PACKAGES["confluent_kafka"])
    words = [mode, server.address, topic, str(amount)]
    found = json.loads(_run(server, [sys.executable, "-m", "tests.bench.librdkafka", *words]))
    return found["messages"], found["seconds"]


def _run(server: Server, command: list[str]) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"a client of {server.kind.name}: {error}") from error
    if ran.returncode:
        raise BenchError(f"a client of {server.kind.name}: {ran.stderr[-2000:] or ran.stdout}")
    return ran.stdout
