"""`k` and Apache's own scripts, run in turn with the same arguments; and records to run them on."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from typing import NamedTuple

from kcli.client.producer.producer import Producer
from tests.support import apache_kafka
from tests.support.apache_scripts import ApacheScripts
from tests.support.brokers import QUICK_START
from tests.support.tools import K
from tests.support.transactions import hanging

NEW, OLD, ELDEST = "4.3.1", "3.9.2", "2.8.2"
"""Releases of Apache Kafka. ELDEST has scripts that were removed since."""
TIMEOUT_S = 120
TOPIC_ID = re.compile(r"TopicId: [\w-]{22}")


# Lines that differ in every run: time passes, and a controller writes to its log.
PASSING = re.compile(r"(?<=Epoch: )\d+$|(?<=\t)\d+ *(?=\t *\t$)")
RECORDS = [
    b"NO\tkey 1\tvalue 1",
    b"h1:a,h2:NULL\tkey 2\tvalue 2",
    b"NO\tNULL\tno key",
    b"NO\tkey 3\tNULL",
    "NO\tschlüssel\twert".encode(),
    b"NO\t\t",
]
READER = ["parse.key=true", "parse.headers=true", "null.marker=NULL", "ignore.error=true"]


class Outcome(NamedTuple):
    status: int
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[str]:
        lines = self.out.decode(errors="replace").splitlines()
        return [PASSING.sub("N", TOPIC_ID.sub("TopicId: ID", line)) for line in lines]


def run(command: list[str], input: bytes = b"", **environment: str) -> Outcome:
    done = subprocess.run(
        command,
        input=input,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=os.environ | environment,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def k(command: str, *words: str, input: bytes = b"") -> Outcome:
    return run([*K, command, *words], input)


ASK = {
    "broker-api-versions",
    "cluster",
    "configs",
    "delete-records",
    "features",
    "get-offsets",
    "leader-election",
    "log-dirs",
    "preferred-election",
    "reassign-partitions",
    "topics",
    "transactions",
}
"""Commands that query, print and exit: their scripts share one JVM of their version."""


SCRIPTS = {"preferred-election": "preferred-replica-election"}
"""Names of scripts that differ from the command's."""
_running: dict[str, ApacheScripts] = {}


def scripts(version: str) -> ApacheScripts:
    """Return the JVM of a version's scripts; start it at the first call."""
    if version not in _running:
        _running[version] = ApacheScripts(version)
    return _running[version]


def close_scripts() -> None:
    """End the JVMs of `scripts`."""
    while _running:
        _running.popitem()[1].close()


def apache(command: str, *words: str, input: bytes = b"", version: str = NEW) -> Outcome:
    if command in ASK:
        status, out, err = scripts(version).run(SCRIPTS.get(command, command), *words)
        return Outcome(status, out.encode(), err.encode())
    script = [sys.executable, apache_kafka.__file__, "tool", version, f"kafka-{command}.sh"]
    return run([*script, *words], input, KAFKA_JVM_PERFORMANCE_OPTS=QUICK_START)


def hang(address: str) -> None:
    """Write a hanging transaction, and a committed one."""
    words = ["--bootstrap-server", address, "--create", "--topic", "hung", "--partitions", "1"]
    assert k("topics", *words).status == 0
    asyncio.run(hanging(address, "hangs", "hung", [b"never read"]))
    asyncio.run(_committed(address))


async def _committed(address: str) -> None:
    async with Producer({"bootstrap.servers": address, "transactional.id": "tx-1"}) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("hung", b"held back")
