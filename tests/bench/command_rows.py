"""Rows of commands: the time that a script waits for them, and their CPU time.

The columns are brokers, the figures are commands: `k`, Apache's script and kcat. Wall and CPU time
are measured from the start of the process to its end, including the start of Python or Java.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from tests.bench.figures import Aim, at_most
from tests.bench.machine import BenchError
from tests.bench.row import Row, Work
from tests.bench.servers import APACHE_VERSION, K, Server, compile_packages
from tests.bench.shapes import MESSAGE_BYTES
from tests.support import apache_kafka
from tests.support.tools import PROGRAMS, find

LINES = 1_000_000
LINES_FILE = "lines"
FILL_BYTES = 1 << 28
TIMEOUT_S = 120
TOOLS = ("k", "script", "kcat")


def wall(tool: str) -> str:
    return f"{tool} s"


def cpu(tool: str) -> str:
    return f"{tool} CPU s"


def figures(
    *tools: str, wall_aim: Aim | None = None, cpu_aim: Aim | None = None
) -> dict[str, Aim | None]:
    """Return two figures for each tool, with the aims of ours."""
    found: dict[str, Aim | None] = {}
    for tool in tools:
        found |= {wall(tool): None, cpu(tool): None}
    return found | {wall("k"): wall_aim, cpu("k"): cpu_aim}


def ours(*words: str) -> list[str]:
    compile_packages()
    return [sys.executable, "-c", K, *words]


def script(name: str, *words: str) -> list[str]:
    """Return the Java command that Apache's script of this name starts, without the shell before
    it."""
    classes = json.loads((apache_kafka.install(APACHE_VERSION) / "tools.json").read_text())
    return apache_kafka.java(APACHE_VERSION, name, classes[name], list(words))


def kcat(*words: str) -> list[str]:
    if find("kcat") is None:
        raise BenchError(PROGRAMS["kcat"])
    return ["kcat", *words]


def timed(tool: str, command: Sequence[str], lines: Path | None = None) -> Mapping[str, float]:
    """Run the command to its end with `lines` as its input; discard its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(lines or "/dev/null", "rb") as given:
        began = time.perf_counter()
        try:
            ran = subprocess.run(
                command,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
            )
        except OSError as error:
            raise BenchError(f"{tool}: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{tool} did not end within {TIMEOUT_S} s") from error
        took = time.perf_counter() - began
    if ran.returncode:
        raise BenchError(f"{tool}: {ran.stderr.decode(errors='replace')[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {wall(tool): took, cpu(tool): used}


def version(work: Work, server: Server, _: str) -> Mapping[str, float]:
    return {
        **timed("k", ours("--version")),
        **timed("script", script("kafka-topics", "--version")),
        **timed("kcat", kcat("-V")),
    }


def list_topics(work: Work, server: Server, _: str) -> Mapping[str, float]:
    words = ("--bootstrap-server", server.address, "--list")
    return {
        **timed("k", ours("topics", *words)),
        **timed("script", script("kafka-topics", *words)),
        **timed("kcat", kcat("-L", "-b", server.address)),
    }


def produce(work: Work, server: Server, topic: str, lines: Path) -> Mapping[str, float]:
    """Produce with each tool; check the topic's end offset after each."""
    words = ("--bootstrap-server", server.address, "--topic", topic)
    commands = {
        "k": ours("console-producer", *words),
        "script": script("kafka-console-producer", *words),
        "kcat": kcat("-P", "-b", server.address, "-t", topic, "-p", "0"),
    }
    count = lines.stat().st_size // (MESSAGE_BYTES + 1)
    found: dict[str, float] = {}
    held = 0
    for tool, command in commands.items():
        found |= timed(tool, command, lines)
        held += count
        if (end := server.end_offset(topic)) != held:
            raise BenchError(f"{server.kind.name} holds {end} records of {held} after {tool}")
    return found


def consume(server: Server, topic: str, count: int) -> Mapping[str, float]:
    words = ("--bootstrap-server", server.address, "--topic", topic)
    words += ("--partition", "0", "--offset", "earliest", "--max-messages", str(count))
    of_kcat = ("-C", "-b", server.address, "-t", topic, "-p", "0", "-o", "beginning", "-q")
    return {
        **timed("k", ours("console-consumer", *words)),
        **timed("script", script("kafka-console-consumer", *words)),
        **timed("kcat", kcat(*of_kcat, "-c", str(count))),
    }


def produce_one(work: Work, server: Server, topic: str) -> Mapping[str, float]:
    one = work.directory / "one-line"
    one.write_bytes(b"v" * MESSAGE_BYTES + b"\n")
    return produce(work, server, topic, one)


def consume_one(work: Work, server: Server, topic: str) -> Mapping[str, float]:
    return consume(server, topic, 1)


def produce_lines(work: Work, server: Server, topic: str) -> Mapping[str, float]:
    return produce(work, server, topic, _a_million_lines(work.directory / LINES_FILE))


def consume_lines(work: Work, server: Server, topic: str) -> Mapping[str, float]:
    return consume(server, topic, LINES)


def _a_million_lines(path: Path) -> Path:
    if not path.exists():
        random = Random(1)
        some = b"".join(
            random.randbytes(MESSAGE_BYTES // 2).hex().encode() + b"\n" for _ in range(1000)
        )
        with open(path, "wb") as file:
            for _ in range(LINES // 1000):
                file.write(some)
    return path


ROWS = (
    Row(
        "command-version",
        "k --version, kafka-topics.sh --version, kcat -V",
        version,
        figures(*TOOLS, wall_aim=at_most(0.12), cpu_aim=at_most(0.12)),
        has_rival=False,
    ),
    Row(
        "command-topics",
        "k topics --list, kafka-topics.sh --list, kcat -L",
        list_topics,
        figures(*TOOLS, cpu_aim=at_most(0.25)),
        partitions=1,
    ),
    Row(
        "command-produce-1",
        "one record through console-producer and kcat -P",
        produce_one,
        figures(*TOOLS, wall_aim=at_most(0.3)),
        partitions=1,
    ),
    Row(
        "command-consume-1",
        "one record through console-consumer and kcat -C",
        consume_one,
        figures(*TOOLS, wall_aim=at_most(0.3)),
        partitions=1,
        fill_bytes=1 << 14,
        fill_with="plain",
    ),
    Row(
        "lines-in",
        "a million lines of 200 bytes through console-producer and kcat -P",
        produce_lines,
        figures(*TOOLS, wall_aim=at_most(1.5)),
        partitions=1,
    ),
    Row(
        "lines-out",
        "a million lines of 200 bytes through console-consumer and kcat -C",
        consume_lines,
        figures(*TOOLS, wall_aim=at_most(1.5)),
        partitions=1,
        fill_bytes=FILL_BYTES,
        fill_with="plain",
    ),
)
