"""The load generator (load.c), compiled once per run, and the batches that it sends."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from kserver.wire.batch import encode_batch
from kserver.wire.compression import Compression
from tests.bench.machine import BenchError, touch
from tests.bench.servers import Server
from tests.bench.shapes import MESSAGE_BYTES, SHAPES, Shape

SOURCE = Path(__file__).with_name("load.c")
RECORDS = {"1": 1, "50": 50, "16k": 78, "64k": 314, "1m": 4980}
"""Number of records of MESSAGE_BYTES in the batch of each name."""
MAX_BYTES = 2 << 30
"""Limit of one measurement: less than the amount from which Linux throttles writers on 16 GB of
memory."""
FILL_S = 60


class Outcome(NamedTuple):
    """Result of one run of the generator: latencies in microseconds, and the broker's CPU time."""

    seconds: float
    requests: int
    bytes: int
    p50_us: float
    p99_us: float
    broker_cpu_s: float
    plain_mb_s: float = 0.0
    """Rate of a plain write into the page cache right before the run."""

    @property
    def megabytes_s(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def requests_s(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.broker_cpu_s / (self.bytes / 1e9)

    @property
    def cpu_us_per_request(self) -> float:
        return self.broker_cpu_s / self.requests * 1e6


@dataclass(frozen=True)
class Load:
    directory: Path
    """Holds the program and the batches."""

    @classmethod
    def build(cls, directory: Path) -> Load:
        try:
            subprocess.run(["gcc", "-O2", "-o", str(directory / "load"), str(SOURCE)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BenchError(
                f"the load generator needs gcc (apt-get install gcc): {error}"
            ) from error
        for name, count in RECORDS.items():
            (directory / name).write_bytes(batch(count))
        for name, shape in SHAPES.items():
            (directory / name).write_bytes(shaped_batch(shape))
        return cls(directory)

    def produce(
        self,
        server: Server,
        topic: str,
        batch: str,
        *,
        seconds: float,
        connections: int = 1,
        partitions: int = 1,
        in_flight: int = 5,
        most_bytes: int = MAX_BYTES,
        touched: bool = False,
        acks: int = 1,
    ) -> Outcome:
        """Produce `batch` repeatedly.

        With `touched`, the broker writes into memory that was freed right before (machine.touch).
        """
        plain_mb_s = touch(self.directory, most_bytes) if touched else 0.0
        path = self.directory / batch
        words = [partitions, connections, in_flight, seconds, path, most_bytes, acks]
        found = self._run(server, "produce", topic, *words)
        return found._replace(plain_mb_s=plain_mb_s)

    def fetch(
        self,
        server: Server,
        topic: str,
        *,
        seconds: float,
        max_bytes: int,
        connections: int = 1,
        partitions: int = 1,
    ) -> Outcome:
        return self._run(server, "fetch", topic, partitions, connections, seconds, max_bytes)

    def fill(self, server: Server, topic: str, partitions: int, size: int, batch: str) -> None:
        """Produce the same batch until `size` bytes in total are spread evenly over the
        partitions."""
        self.produce(
            server,
            topic,
            batch,
            seconds=FILL_S,
            connections=partitions,
            partitions=partitions,
            most_bytes=size,
        )

    def _run(self, server: Server, mode: str, topic: str, *words: object) -> Outcome:
        before = server.cpu_s()
        ran = subprocess.run(
            [str(self.directory / "load"), mode, str(server.port), topic, *map(str, words)],
            capture_output=True,
            text=True,
        )
        used_s = server.cpu_s() - before
        if ran.returncode:
            raise BenchError(f"{mode} against {server.kind.name}: {ran.stderr or ran.stdout}")
        return outcome(ran.stdout, used_s)


def outcome(output: str, broker_cpu_s: float) -> Outcome:
    """Parse the generator's line of JSON."""
    found = json.loads(output)
    return Outcome(
        found["seconds"],
        found["requests"],
        found["bytes"],
        found["p50_us"],
        found["p99_us"],
        broker_cpu_s,
    )


def batch(count: int) -> bytes:
    """Return a batch of `count` records with random values, the same each time; they do not
    compress."""
    random = Random(1)
    now_ms = int(time.time() * 1000)
    return encode_batch([(now_ms, None, random.randbytes(MESSAGE_BYTES), ()) for _ in range(count)])


def shaped_batch(shape: Shape) -> bytes:
    """Return a batch of shaped messages: as many as a batch of 16 KB holds without shape."""
    now_ms = int(time.time() * 1000)
    records = [
        (now_ms, message.key, message.value, message.headers)
        for message in shape.messages()[: RECORDS["16k"]]
    ]
    return encode_batch(records, compression=Compression[shape.compression])
