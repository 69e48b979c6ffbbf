"""Filling many partitions with records quickly, and the memory of each kind of process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from random import Random
from typing import Self

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from tests.support.spark_harness import Running
from tests.support.wire_client import WireClient, milliseconds

AT_ONCE = 25
"""Partitions of a request."""
SAMPLE_EVERY_S = 0.25
T0 = 1_700_000_000_000


def fill(address: str, topic: str, partitions: int, records: int, batch: int, size: int) -> None:
    """Write this many records to each partition, in batches of `batch` records, of `size` bytes
    that no codec compresses much. All partitions have the same records.
    """
    random = Random(0)
    assert records % batch == 0
    data = encode_batch([(T0 + n, b"%d" % n, random.randbytes(size), ()) for n in range(batch)])
    with WireClient(address) as client:
        for _ in range(records // batch):
            for first in range(0, partitions, AT_ONCE):
                some = range(first, min(first + AT_ONCE, partitions))
                sent = [{"index": partition, "records": data} for partition in some]
                answer = client.call(
                    ApiKey.PRODUCE,
                    8,
                    acks=-1,
                    timeout=milliseconds(30_000),
                    topic_data=[{"name": topic, "partition_data": sent}],
                )
                for one in answer.responses[0].partition_responses:
                    assert one.error_code is ErrorCode.none, one


def kind_of(process: Running) -> str:
    if process.is_python_worker:
        return "Python workers"
    if process.words and process.words[0].endswith("java"):
        return "JVM"
    return "driver's Python"


class Memory:
    """The peak memory of all processes of each kind, and of one of them, in MiB, sampled several
    times a second.
    """

    def __init__(self, processes: Callable[[], list[Running]]) -> None:
        self._processes = processes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.together: dict[str, float] = {}
        self.one: dict[str, float] = {}

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY_S):
            now: dict[str, float] = {}
            for process in self._processes():
                with contextlib.suppress(OSError):
                    kind, size = kind_of(process), resident_mb(process.pid)
                    now[kind] = now.get(kind, 0) + size
                    self.one[kind] = max(self.one.get(kind, 0), size)
            now["all"] = sum(now.values())
            self.together = {k: max(v, self.together.get(k, 0)) for k, v in now.items()} | {
                k: v for k, v in self.together.items() if k not in now
            }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {size:.0f} MiB" + (f" (one {self.one[kind]:.0f})" if kind in self.one else "")
            for kind, size in self.together.items()
        )


def resident_mb(pid: int) -> float:
    """Return the resident memory in MiB. Raises OSError if the process has ended."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
