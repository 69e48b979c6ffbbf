"""Members of one group, each in its own process with some client library.

All print the events of members/events.py, which are those of Apache's VerifiableConsumer; kcat's
output is converted to them.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.integration.clients.catalogue import HERE, built, install_packages
from tests.integration.clients.teller import Teller
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START, append
from tests.support.tools import K, require

SETTLE_TIMEOUT_S = 60
SESSION_TIMEOUT_MS = 30_000
JAVA = {"java": "4.3.1", "java-3.9.2": "3.9.2"}
JAVA_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
PYTHON = {
    "confluent": ("confluent_kafka", "confluent_member.py"),
    "kafka-python": ("kafka", "kafka_python_member.py"),
    "aiokafka": ("aiokafka", "aiokafka_member.py"),
}
GO = {"sarama": "sarama-member", "franz": "franz-member"}
_REBALANCED = re.compile(r"% Group .* rebalanced .*: (assigned|revoked): (.*)")
_PARTITION = re.compile(r"(\S+) \[(\d+)\]")

Partition = tuple[str, int]


class Member:
    """A member process, its events so far, and the partitions that it owns."""

    def __init__(self, library: str, command: Sequence[str], told: threading.Condition) -> None:
        self.library = library
        self.owned: set[Partition] = set()
        self.records: list[tuple[str, int, int, str]] = []
        """Topic, partition, offset and value."""
        self.rebalances: list[tuple[str, frozenset[Partition]]] = []
        """"assigned" or "revoked", and the partitions."""
        self.is_closed = False
        self.said: list[str] = []
        of_kcat = library == "kcat"
        self._process = Teller(
            command,
            told,
            self._kcat_record if of_kcat else self._event,
            self._kcat_rebalance if of_kcat else self.said.append,
        )

    def _event(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            self.said.append(line)
            return
        match event.get("name"):
            case "partitions_assigned" | "partitions_revoked" as name:
                partitions = {(p["topic"], p["partition"]) for p in event["partitions"]}
                self._rebalanced(name.removeprefix("partitions_"), partitions)
            case "record_data":
                place = (event["topic"], event["partition"], event["offset"])
                self.records.append((*place, event["value"]))
            case "shutdown_complete":
                self.is_closed = True

    def _kcat_record(self, line: str) -> None:
        topic, partition, offset, value = line.split()
        self.records.append((topic, int(partition), int(offset), value))

    def _kcat_rebalance(self, line: str) -> None:
        self.said.append(line)
        found = _REBALANCED.search(line)
        if found:
            partitions = {(topic, int(number)) for topic, number in _PARTITION.findall(found[2])}
            self._rebalanced(found[1], partitions)

    def _rebalanced(self, what: str, partitions: set[Partition]) -> None:
        self.rebalances.append((what, frozenset(partitions)))
        if what == "assigned":
            self.owned |= partitions
        else:
            self.owned -= partitions

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    def stop(self) -> None:
        """Stop the member, which commits, leaves its group and ends."""
        self._process.stop()
        self.owned = set()

    def kill(self) -> None:
        self._process.kill()
        self.owned = set()


class Group:
    """A group and its members: `with Group(...) as group: group.join("confluent")`; ends all
    members."""

    def __init__(self, name: str, address: str, topic: str, programs: Path) -> None:
        self.name = name
        self.written: set[str] = set()
        """Values of all written records."""
        self._rounds = itertools.count()
        self.members: list[Member] = []
        self._address = address
        self._topic = topic
        self._programs = programs
        """Directory of compiled programs."""
        self._told = threading.Condition()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()

    def join(
        self,
        library: str,
        *,
        strategy: str | None = "range",
        protocol: str = "classic",
        instance: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> Member:
        """Start a member. `strategy` is None with the protocol "consumer", where the broker
        assigns."""
        if library == "kcat":
            command = self._kcat(strategy, session_timeout_ms)
        else:
            options = {
                "bootstrap-server": self._address,
                "topic": self._topic,
                "group-id": self.name,
                "group-instance-id": instance,
                "group-protocol": protocol if protocol != "classic" else None,
                "session-timeout": str(session_timeout_ms) if protocol == "classic" else None,
                "assignment-strategy": strategy,
            }
            if library in JAVA and strategy:
                options["assignment-strategy"] = JAVA_STRATEGIES[strategy]
            words = [word for k, v in options.items() if v for word in (f"--{k}", v)]
            command = [*self._program(library), *words]
        member = Member(library, command, self._told)
        self.members.append(member)
        return member

    def _program(self, library: str) -> list[str]:
        if library in PYTHON:
            package, program = PYTHON[library]
            require(package)
            return [sys.executable, str(HERE / "members" / program)]
        if library in GO:
            program = self._programs / GO[library]
            return [str(program) if program.exists() else built(GO[library], self._programs)]
        if library == "kafkajs":
            install_packages(HERE / "node")
            return [require("node"), str(HERE / "node" / "member.mjs")]
        if library == "k":
            return [*K, "verifiable-consumer", "--verbose"]
        libraries = f"{apache_kafka.install(JAVA[library])}/libs/*"
        tool = "org.apache.kafka.tools.VerifiableConsumer"
        return [require("java"), *QUICK_START.split(), "-cp", libraries, tool, "--verbose"]

    def _kcat(self, strategy: str | None, session_timeout_ms: int) -> list[str]:
        settings = {
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": min(session_timeout_ms // 3, 500),
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
        }
        words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        form = ("-u", "-f", "%t %p %o %s\\n")
        return [require("kcat"), "-b", self._address, *words, *form, "-G", self.name, self._topic]

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.is_running]

    def owners(self) -> Counter[Partition]:
        return Counter(partition for member in self.running for partition in member.owned)

    def settle(self, partitions: int, *, all_own: bool = True) -> None:
        """Wait until each partition has one owner and, unless `all_own` is false, each member owns
        some."""
        wanted = dict.fromkeys(((self._topic, number) for number in range(partitions)), 1)
        self.wait_until(
            lambda: (
                self.owners() == wanted
                and (not all_own or all(member.owned for member in self.running))
            )
        )

    def values(self) -> Iterator[str]:
        """Return the values of all read records, unordered; a record read twice appears twice."""
        return (value for member in self.members for _, _, _, value in member.records)

    def write(self, partitions: int) -> None:
        """Write one record to each partition."""
        number = next(self._rounds)
        for partition in range(partitions):
            value = f"{partition}-{number}"
            append(self._address, self._topic, [(0, None, value.encode(), ())], partition)
            self.written.add(value)

    def read(self) -> None:
        """Wait until all written records have been read."""
        self.wait_until(lambda: self.written <= set(self.values()))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        with self._told:
            assert self._told.wait_for(holds, SETTLE_TIMEOUT_S), self.story()

    def story(self) -> str:
        """Describe each member for an error message: its state, partitions and last lines of
        output."""
        lines = []
        for member in self.members:
            state = "running" if member.is_running else f"ended ({member.exit_code})"
            owned = sorted(number for _, number in member.owned)
            lines.append(
                f"{member.library}: {state}, owns {owned}, read {len(member.records)} records,"
                f" {len(member.rebalances)} rebalances"
            )
            lines += ["    " + line.rstrip() for line in member.said[-5:]]
        return "\n".join(lines)
