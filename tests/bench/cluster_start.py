"""`python -m tests.bench.cluster_start`: measure how long `k cluster-start` takes, and its memory.

Each of ROUNDS starts has a new directory. Memory is the proportional set size (PSS), which counts
memory shared between the four processes and the command that started them only once.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kcli.client import Blocking, Producer
from tests.support.tools import K

ROUNDS = 10
READY = re.compile(r"(zookeeper|broker \d+) ready on \S+, pid (\d+)")
COMPLETE = re.compile("cluster ready: (.*)")


def main() -> int:
    ready, first, memory = [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="k-bench-") as data:
            for times, value in zip((ready, first, memory), start(data), strict=True):
                times.append(value)
    print(f"from the command to `cluster ready`          {shown(ready, 's')}")
    print(f"to the first record that all replicas have   {shown(first, 's')}")
    print(f"memory of ZooKeeper and three brokers        {shown(memory, 'MB')}")
    return 0


def start(data: str) -> tuple[float, float, float]:
    """Return the seconds until the cluster is ready and until a record is acknowledged, and the
    memory in MB at that time."""
    began = time.monotonic()
    command = [*K, "cluster-start", "--port", "0", "--data", data]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        pids = []
        for line in process.stdout:
            if server := READY.match(line):
                pids.append(int(server[2]))
            if complete := COMPLETE.match(line):
                break
        ready_s = time.monotonic() - began
        config = {"bootstrap.servers": complete[1], "acks": "all"}
        with Blocking(Producer, config) as producer:
            producer.send("first", b"record").result()
        first_s = time.monotonic() - began
        memory = sum(map(pss_mb, pids))
        process.terminate()
        process.communicate()
    return ready_s, first_s, memory


def pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.M)
    assert found, text
    return int(found[1]) * 1024 / 1e6


def shown(values: list[float], unit: str) -> str:
    return f"median {statistics.median(values):.2f} {unit}, worst {max(values):.2f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
