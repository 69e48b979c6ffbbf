"""10 GB of lines through `k console-producer`: every one arrives, in memory that does not grow."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from kcli.client.admin import Admin
from kcli.client.config import AdminConfig
from kserver.model import TopicPartition
from tests.support.process import BrokerProcess

GIGABYTES = float(os.environ.get("GIGABYTES", "10"))
LINE = b"x" * 199 + b"\n"
LINES_AT_ONCE = 50_000
PRODUCER_MB, BROKER_MB = 200, 150
K = [sys.executable, "-c", "from kcli.main import main; main()"]
LATEST = -1
# The log is cut behind what was written, so that the disk need not hold it all.
SETTINGS = {
    "log.segment.bytes": 256 << 20,
    "log.retention.bytes": 1 << 30,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


async def end_offset(address: str) -> int:
    async with Admin(AdminConfig.of({"bootstrap.servers": address})) as admin:
        ((_, listed),) = (await admin.list_offsets({TopicPartition("t", 0): LATEST})).items()
        return listed.offset


def test_a_long_pipe_arrives_whole_in_constant_memory(tmp_path):
    rounds = int(GIGABYTES * 1e9 / len(LINE) / LINES_AT_ONCE)
    curve = []
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        words = [*K, "console-producer", "--bootstrap-server", broker.address, "--topic", "t"]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as sending:
            for number in range(rounds):
                sending.stdin.write(LINE * LINES_AT_ONCE)
                if number % max(rounds // 20, 1) == 0:
                    curve.append((resident_mb(sending.pid), resident_mb(broker.pid)))
            sending.stdin.close()
            assert sending.wait() == 0
        arrived = asyncio.run(end_offset(broker.address))
    for producer, its_broker in curve:
        print(f"producer {producer:.0f} MB, broker {its_broker:.0f} MB")
    assert arrived == rounds * LINES_AT_ONCE
    assert max(producer for producer, _ in curve) < PRODUCER_MB
    assert max(its_broker for _, its_broker in curve) < BROKER_MB
