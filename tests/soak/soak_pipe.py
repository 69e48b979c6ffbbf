"""Test 10 GB of lines through `k console-producer` and `k console-consumer`: the bytes and their
order are the same, and memory does not grow."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.process import BrokerProcess
from tests.support.tools import K

GIGABYTES = float(os.environ.get("GIGABYTES", "10"))
LINE = b"%012d" + b"x" * 187 + b"\n"
LINES_AT_ONCE = 50_000
READ_BYTES = 1 << 20
POINTS = 20
PRODUCER_MB, CONSUMER_MB, BROKER_MB = 200, 200, 150


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


class Curve:
    """Memory of a command and of the broker, sampled at `POINTS` equal steps of the data."""

    def __init__(self, command: int, broker: int, whole: float) -> None:
        self.points: list[tuple[float, float]] = []
        self._pids = command, broker
        self._every = whole / POINTS
        self._next = 0.0

    def at(self, amount: float) -> None:
        if amount >= self._next:
            self._next += self._every
            first, second = map(resident_mb, self._pids)
            self.points.append((first, second))
            print(f"{amount / 1e9:6.2f} GB: {first:.0f} MB, broker {second:.0f} MB", flush=True)


def test_a_long_pipe_arrives_whole_in_constant_memory(tmp_path):
    rounds = max(1, int(GIGABYTES * 1e9 / 200 / LINES_AT_ONCE))
    size = rounds * LINES_AT_ONCE * 200
    sent, arrived = hashlib.blake2b(), hashlib.blake2b()
    with BrokerProcess(tmp_path, {"log.retention.bytes": -1}) as broker:
        to = ["--bootstrap-server", broker.address, "--topic", "t"]
        subprocess.run([*K, "topics", *to, "--create", "--partitions", "1"], check=True)
        with subprocess.Popen([*K, "console-producer", *to], stdin=subprocess.PIPE) as sending:
            producer = Curve(sending.pid, broker.pid, size)
            for number in range(rounds):
                # Each block contains its number, so no block can be confused with another.
                block = LINE % number + LINE % 0 * (LINES_AT_ONCE - 1)
                sent.update(block)
                sending.stdin.write(block)
                producer.at(number * len(block))
            sending.stdin.close()
            assert sending.wait() == 0
        words = [*K, "console-consumer", *to, "--from-beginning", "--exit-at-end"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as reading:
            consumer = Curve(reading.pid, broker.pid, size)
            received = 0
            while data := reading.stdout.read(READ_BYTES):
                arrived.update(data)
                received += len(data)
                consumer.at(received)
            assert reading.wait() == 0
    shutil.rmtree(broker.data)
    assert (received, arrived.hexdigest()) == (size, sent.hexdigest())
    for curve, limit in ((producer, PRODUCER_MB), (consumer, CONSUMER_MB)):
        assert max(command for command, _ in curve.points) < limit
        assert max(its_broker for _, its_broker in curve.points) < BROKER_MB
