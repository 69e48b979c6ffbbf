"""Latency of producers while partitions are copied to another broker, on four brokers of one kind.

The moves are the same for each kind: every other partition of a topic on the brokers 1 to 3 gets a
replica on broker 4 instead of one of the others.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from kcli.client.admin.admin import Admin
from kcli.client.config import AdminConfig
from tests.bench import clusters
from tests.bench.servers import Kind
from tests.support.large_reassignment import (
    LOAD,
    LOAD_PARTITIONS,
    RECORD_BYTES,
    TOPIC,
    assignment,
    fill,
    write_plan,
)
from tests.support.side_by_side import k
from tests.support.steady_load import SteadyLoad

TARGET = 4
QUIET_S = 30
"""Seconds of load before the moves."""
LOOK_AGAIN_S = 0.2


class Latency(NamedTuple):
    """Milliseconds from sending a record to its acknowledgement."""

    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies_s: list[float]) -> Latency:
        cuts = statistics.quantiles(latencies_s, n=100)
        return cls(cuts[49] * 1000, cuts[98] * 1000)

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"


def print_latency(
    kind: Kind, directory: Path, *, partitions: int, partition_bytes: int, throttle: int
) -> None:
    """Print the latency before the moves and during them, and their rate; `throttle` is in bytes a
    second.
    """
    with clusters.running(kind, directory, TARGET) as cluster:
        server = ("--bootstrap-server", cluster.address)

        def ask(command: str, *words: object) -> str:
            done = k(command, *map(str, words), *server)
            assert done.status == 0, done
            return done.out.decode()

        before = assignment(partitions)
        for topic, replicas in ((TOPIC, before), (LOAD, assignment(LOAD_PARTITIONS))):
            words = ",".join(":".join(map(str, of)) for of in replicas.values())
            ask("topics", "--create", "--topic", topic, "--replica-assignment", words)
        fill(cluster.address, TOPIC, partitions, partition_bytes // RECORD_BYTES)
        cluster.until_whole(TOPIC)

        wanted = {n: [of[0], TARGET] for n, of in before.items() if n % 2 == 0}
        plan = write_plan(directory / "moves.json", TOPIC, wanted)
        copied_bytes = len(wanted) * partition_bytes
        with SteadyLoad({"bootstrap.servers": cluster.address}, LOAD, LOAD_PARTITIONS) as load:
            load.advance()
            load.take_latencies_s()
            time.sleep(QUIET_S)  # latencies are measured
            quiet = Latency.of(load.take_latencies_s())
            began = time.monotonic()
            ask("reassign-partitions", "--execute", *plan, "--throttle", throttle)
            asyncio.run(_until_moved(cluster.address, 120 + 4 * copied_bytes / throttle))
            took_s = time.monotonic() - began
            moving = Latency.of(load.take_latencies_s())
            load.advance()
        load.check()
        output = ask("reassign-partitions", "--verify", *plan)
        assert output.count(" is completed.") == len(wanted)
    rate = copied_bytes / took_s / throttle
    print(f"{kind.name}: {quiet} before; {moving} in {took_s:.0f} s at {rate:.2f} of the throttle")


async def _until_moved(servers: str, within_s: float) -> None:
    """Wait until no partition is being reassigned, in this process: a command for each look would
    use much of a core."""
    async with asyncio.timeout(within_s):
        async with Admin(AdminConfig.of({"bootstrap.servers": servers})) as admin:
            while await admin.list_reassignments():
                await asyncio.sleep(LOOK_AGAIN_S)
