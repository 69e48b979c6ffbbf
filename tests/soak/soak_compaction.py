"""Test compaction of a topic with 10 GB, most of it superseded: the newest value of each key
remains, and the broker continues to serve.

Prints the CPU time and memory of broker and cleaner, and limits the memory.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from kcli.client import Producer
from kserver.log.checkpoint import CLEANED
from tests.conformance.test_compaction import active
from tests.fault.test_kill_compaction import newest
from tests.support import brokers
from tests.support.process import BrokerProcess

GIGABYTES = float(os.environ.get("GIGABYTES", "10"))
VALUE_BYTES = 1000
KEYS = 1_000_000
BATCH = 1000
BROKER_MB, CLEANER_MB = 150, 250
PATIENCE_S = 3600
SETTINGS = {"log.cleaner.backoff.ms": 1000, "log.retention.check.interval.ms": 1000}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> dict[int, tuple[float, float]]:
    """Return CPU seconds and resident MB of a process and of its children, by process id."""
    found = {}
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (pid, *map(int, children)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        found[one] = cpu_s, int(fields[21]) * 4096 / 1e6
    return found


async def fill(address: str, count: int) -> None:
    """Produce `count` records. Record n has the key n modulo KEYS, so the last KEYS records
    remain."""
    config = {"bootstrap.servers": address, "batch.size": 1 << 20, "linger.ms": 20}
    filler = b"x" * VALUE_BYTES
    async with Producer(config) as producer:
        for first in range(0, count, BATCH):
            for number in range(first, min(first + BATCH, count)):
                value = b"%012d" % number + filler[12:]
                sent = await producer.send("c", value, b"%09d" % (number % KEYS))
            if first % (100 * BATCH) == 0:
                await sent
        await producer.flush()


def test_what_was_written_last_is_left(tmp_path):
    count = int(GIGABYTES * 1e9 / VALUE_BYTES)
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        brokers.create_topic(
            broker.address,
            "c",
            cleanup_policy="compact",
            segment_bytes=256 << 20,
            min_cleanable_dirty_ratio=0.5,
        )
        log = broker.data / "c-0"
        started = time.monotonic()
        asyncio.run(fill(broker.address, count))
        print(f"{count} records written in {time.monotonic() - started:.0f} s", flush=True)
        # The active segment is not rolled at the end, so it stays dirty.
        peak = {"broker": 0.0, "cleaner": 0.0}
        cleaner_cpu: dict[int, float] = {}
        deadline = time.monotonic() + PATIENCE_S
        checkpoint = broker.data / CLEANED
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 10:
            assert time.monotonic() < deadline
            for pid, (cpu_s, resident_mb) in family(broker.pid).items():
                who = "broker" if pid == broker.pid else "cleaner"
                peak[who] = max(peak[who], resident_mb)
                if who == "cleaner":
                    cleaner_cpu[pid] = cpu_s
                    quiet_since = time.monotonic()
            time.sleep(0.2)  # interval between two samples
        cpu_s = family(broker.pid)[broker.pid][0]
        on_disk = sum(path.stat().st_size for path in log.glob("*.log"))
        print(
            f"cleaned after {time.monotonic() - started:.0f} s: {len(cleaner_cpu)} cleanings,"
            f" {sum(cleaner_cpu.values()):.0f} CPU seconds, {peak['cleaner']:.0f} MB; the broker"
            f" {cpu_s:.0f} CPU seconds, {peak['broker']:.0f} MB; {on_disk / 1e9:.2f} GB left,"
            f" checkpoint {checkpoint.read_text().split()[-1]}, active from {active(log)}"
        )
        found = asyncio.run(newest(broker.address, 12))
        assert len(found) == min(KEYS, count)
        expected = {b"%09d" % (n % KEYS): b"%012d" % n for n in range(max(0, count - KEYS), count)}
        assert found == expected
        assert on_disk < GIGABYTES * 1e9 * 0.75
        assert peak["broker"] < BROKER_MB
        assert peak["cleaner"] < CLEANER_MB
