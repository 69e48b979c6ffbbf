"""Transcripts of two tools that take the same steps on one cluster, each with its own topic.

tools = {"ours": k, "theirs": apache}
ours, theirs = both(cluster, directory, scenario, "moved", tools, {0: [1, 2]})
assert ours == theirs
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tests.support.brokers import until
from tests.support.kraft_cluster import KRaftCluster
from tests.support.mixed_cluster import MixedCluster
from tests.support.side_by_side import Outcome, k

PATIENCE_S = 100
REASSIGN, ELECT = "reassign-partitions", "leader-election"
LOG_DIRS = re.compile(r'"log_dirs":\[[^]]*\]')
TRACE = re.compile(r"\n(java|org)\.[^\n]*Exception.*", re.DOTALL)
"""The stack trace that Apache's script prints after "Error: "."""
OF_LOGGERS = ("log4j:", "SLF4J", "WARNING: ")
PREFIX = re.compile(r"^(k [a-z-]+: |[\w.$]+(Exception|Error): )")
"""The command of `k`, or the class of a Java exception."""
THROTTLES = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)

AnyCluster: TypeAlias = MixedCluster | KRaftCluster
Tool: TypeAlias = Callable[..., Outcome]


class Step(NamedTuple):
    """One step of a transcript; `throttles` are the configs after it, if it reassigns."""

    status: int
    text: str
    error: str
    throttles: Mapping[tuple[str, str], str]


def log_dirs(cluster: AnyCluster, id_: int) -> list[str]:
    return [str(cluster.directory / f"disk-{id_}-{name}") for name in "ab"]


class Transcript:
    """One of the two tools, with its own topic, and its output by step."""

    def __init__(
        self,
        tool: Tool,
        topic: str,
        cluster: AnyCluster,
        directory: Path,
        before: Mapping[int, Sequence[int]],
    ) -> None:
        self.tool = tool
        self.topic = topic
        self.cluster = cluster
        self.file = directory / f"{topic}.json"
        self.server: tuple[str, ...] = ("--bootstrap-server", cluster.addresses)
        assignment = ",".join(":".join(map(str, replicas)) for replicas in before.values())
        words = ("--create", "--topic", topic, "--replica-assignment", assignment)
        assert k("topics", *words, *self.server).status == 0
        self.printed: dict[str, Step] = {}

    def plan(
        self,
        replicas: Mapping[int, Sequence[int]],
        directories: Mapping[int, Sequence[str]] | None = None,
    ) -> tuple[str, str]:
        """Write a plan, and return the option that names it."""
        entries = [
            {"topic": self.topic, "partition": number, "replicas": of}
            | ({"log_dirs": directories[number]} if number in (directories or {}) else {})
            for number, of in replicas.items()
        ]
        return self.write({"version": 1, "partitions": entries})

    def partitions(self, *partitions: int | tuple[str, int]) -> tuple[str, str]:
        """Write a file of partitions, of the own topic by their number, and return its option."""
        named = [(self.topic, p) if isinstance(p, int) else p for p in partitions]
        self.write({"partitions": [{"topic": topic, "partition": n} for topic, n in named]})
        return ("--path-to-json-file", str(self.file))

    def write(self, document: object) -> tuple[str, str]:
        self.file.write_text(document if isinstance(document, str) else json.dumps(document))
        return ("--reassignment-json-file", str(self.file))

    def run(
        self,
        step: str,
        *words: str,
        command: str = REASSIGN,
        status: int = 0,
        server: Sequence[str] | None = None,
    ) -> str:
        """Run a step, and return its output as it is."""
        done = self.tool(command, *words, *(self.server if server is None else server))
        assert done.status == status, (step, done)
        text = TRACE.sub("\n", done.out.decode())
        text = LOG_DIRS.sub('"log_dirs":[]', text.replace(self.topic, "TOPIC")).rstrip("\n")
        throttles = self.throttles() if command == REASSIGN else {}
        if command != REASSIGN:
            text = in_order(text)
        error = first_error(done.err).replace(self.topic, "TOPIC")
        self.printed[step] = Step(done.status, text, error, throttles)
        return done.out.decode()

    def throttles(self) -> dict[tuple[str, str], str]:
        """Return the throttle configs of the topic and of the brokers."""
        return {
            ("TOPIC" if name == self.topic else name, key): value
            for name, configs in self.cluster.configs(self.topic).items()
            for key, value in configs.items()
            if key in THROTTLES
        }

    def slow_down(self, id_: int) -> None:
        """Throttle moves between the broker's directories before a move begins.

        Apache's broker accepts the throttle at once, but applies it a moment later.
        """
        config = f"{THROTTLES[-1]}=1"
        words = ("--broker", str(id_), *self.server)
        assert k("configs", "--alter", "--add-config", config, *words).status == 0
        describe = ("configs", "--describe", *words)
        until(lambda: f"{config} ".encode() in k(*describe).out, PATIENCE_S)

    def described(self) -> dict[int, dict[str, Any]]:
        words = ("--describe", "--topic", self.topic, "-o", "jsonl", *self.server)
        rows = map(json.loads, k("topics", *words).out.splitlines())
        return {row["partition"]: row for row in rows}

    def replicas(self) -> dict[int, list[int]]:
        return {number: row["replicas"] for number, row in self.described().items()}

    def leaders(self) -> dict[int, int | None]:
        return {number: row["leader"] for number, row in self.described().items()}

    def reorder(self, replicas: Mapping[int, Sequence[int]]) -> None:
        """Give each partition another preferred leader; the leader stays."""
        before = self.leaders()
        done = k(REASSIGN, "--execute", *self.plan(replicas), *self.server)
        assert done.status == 0, done
        until(lambda: self.replicas() == replicas, PATIENCE_S)
        assert self.leaders() == before

    def places(self) -> dict[tuple[int, int, bool], str]:
        """Return each replica's directory by partition, broker, and whether it is a future
        replica."""
        words = ("--describe", "--topic-list", self.topic, "-o", "jsonl", *self.server)
        rows = list(map(json.loads, k("log-dirs", *words).out.splitlines()))
        return {
            (row["partition"], row["broker"], row["is_future"]): row["log_dir"]
            for row in rows
            if row["topic"] == self.topic
        }

    def until_at_rest(self) -> None:
        listed = (REASSIGN, "--list", *self.server)
        until(lambda: b"No partition" in k(*listed).out, PATIENCE_S)
        until(lambda: not any(is_future for _, _, is_future in self.places()), PATIENCE_S)


def both(
    cluster: AnyCluster,
    directory: Path,
    scenario: Callable[[Transcript], None],
    name: str,
    tools: Mapping[str, Tool],
    before: Mapping[int, Sequence[int]],
) -> list[dict[str, Step]]:
    """Run the scenario with each tool; return what each printed."""
    transcripts = [
        Transcript(tool, f"{name}-{of}", cluster, directory, before) for of, tool in tools.items()
    ]
    for transcript in transcripts:
        scenario(transcript)
    return [transcript.printed for transcript in transcripts]


def differing(ours: Mapping[str, Step], theirs: Mapping[str, Step]) -> dict[str, object]:
    """Return both outputs of the steps where they differ."""
    assert ours.keys() == theirs.keys()
    return {step: (ours[step], theirs[step]) for step in ours if ours[step] != theirs[step]}


def first_error(err: bytes) -> str:
    """Return the first line of standard error, without its beginning that differs between tools."""
    lines = [line for line in err.decode().splitlines() if not line.startswith(OF_LOGGERS)]
    return PREFIX.sub("", lines[0]) if lines else ""


def in_order(text: str) -> str:
    """Sort the partitions of each line, and the lines: Apache's order is that of a hash table."""
    return "\n".join(sorted(map(_sorted_partitions, text.splitlines())))


def _sorted_partitions(line: str) -> str:
    head, between, names = line.partition(" for partitions ")
    return head + between + ", ".join(sorted(names.split(", ")))
