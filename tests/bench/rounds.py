"""Measure each row in rounds: at one broker, then immediately at the next, several times."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.bench.figures import Sample, shown
from tests.bench.load import Load
from tests.bench.row import Row, Work
from tests.bench.servers import APACHE, COMPILED, ELDER, OURS, Kind, Server, running

Samples = dict[str, list[Sample]]
"""Samples by the broker's name, one per round."""


def kinds(row: Row) -> list[Kind]:
    """Return the kinds of brokers that a row is measured at, ours first."""
    if not row.has_rival:
        return [OURS]
    if row.of_cluster:
        return [OURS, APACHE, ELDER]
    return [OURS, COMPILED, APACHE] if row.of_broker else [OURS, APACHE]


@contextmanager
def brokers(work: Work, rows: Sequence[Row]) -> Iterator[list[Server]]:
    """Yield one server of each kind that the rows need, started and warm if any row needs it."""
    needed = dict.fromkeys(kind for row in rows for kind in kinds(row))
    with ExitStack() as stack:
        if not any(row.partitions for row in rows):
            yield [Server(kind, work.directory / _folder(kind)) for kind in needed]
            return
        lone = {kind for row in rows if not row.of_cluster for kind in kinds(row)}
        servers = []
        for kind in needed:
            directory = work.directory / _folder(kind)
            if kind not in lone:
                servers.append(Server(kind, directory))
                continue
            server = stack.enter_context(running(kind, directory))
            servers.append(server)
            say(f"{kind.name}: {kind.warm_up_s:.0f} s of load to warm it up")
            warm_up(work.load, server)
        yield servers


def warm_up(load: Load, server: Server) -> None:
    """Run each kind of load that rows use, in turn."""
    step_s = server.kind.warm_up_s / 10
    ends = time.monotonic() + server.kind.warm_up_s
    while time.monotonic() < ends:
        with server.topic(4) as topic:
            for batch, connections, in_flight in (("1m", 4, 5), ("16k", 4, 5), ("1", 8, 1)):
                load.produce(
                    server,
                    topic,
                    batch,
                    seconds=step_s,
                    connections=connections,
                    partitions=4,
                    in_flight=in_flight,
                )
            for max_bytes, connections in ((1 << 20, 1), (1 << 14, 8)):
                load.fetch(
                    server,
                    topic,
                    seconds=step_s,
                    max_bytes=max_bytes,
                    connections=connections,
                    partitions=4,
                )


def measure(row: Row, work: Work, servers: Sequence[Server], rounds: int) -> Samples:
    """Measure a row for a number of rounds. Raises BenchError if it cannot be measured."""
    compared = [server for server in servers if server.kind in kinds(row)]
    found: Samples = {server.kind.name: [] for server in compared}
    with ExitStack() as stack:
        filled = {}
        if row.fill_bytes:
            for server in compared:
                filled[server] = stack.enter_context(server.topic(row.partitions))
                work.load.fill(
                    server, filled[server], row.partitions, row.fill_bytes, row.fill_with
                )
            os.sync()  # no dirty pages are left to be written during fetches
        for number in range(1, rounds + 1):
            for server in compared:
                sample = measure_once(row, work, server, filled.get(server))
                found[server.kind.name].append(sample)
                figures = ", ".join(
                    f"{shown(sample[name])} {name}" for name in row.aims if name in sample
                )
                say(f"{row.name} {number}/{rounds} {server.kind.name}: {figures}")
    return found


def measure_once(row: Row, work: Work, server: Server, topic: str | None) -> Sample:
    if topic is not None or not row.partitions:
        return row.measure(work, server, topic or "")
    with server.topic(row.partitions) as new:
        return row.measure(work, server, new)


def say(text: str) -> None:
    """Print progress to standard error, separate from the results."""
    print(text, file=sys.stderr, flush=True)


def _folder(kind: Kind) -> str:
    return kind.name.lower().replace(" ", "-")
