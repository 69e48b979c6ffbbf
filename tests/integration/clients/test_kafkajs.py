"""kafkajs, the client of most Node programs."""

import functools
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.clients.client import EARLIEST, LATEST, Record
from tests.integration.clients.promises import (
    ODD,
    Administers,
    Produces,
    Survives,
    write,
    written,
)
from tests.integration.clients.steps import Program, SteppedClient
from tests.support.brokers import create_topic
from tests.support.tools import require

DIRECTORY = Path(__file__).with_name("node")


@pytest.fixture(scope="module")
def open_client():
    node = require("node")
    lock, installed = (
        DIRECTORY / "package-lock.json",
        DIRECTORY / "node_modules" / ".package-lock.json",
    )
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        command = [require("npm"), "ci", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=DIRECTORY, check=True)
    program = Program([node, "client.mjs"], cwd=DIRECTORY)
    yield functools.partial(SteppedClient, program)
    program.close()


class TestKafkajs(Produces, Administers, Survives):
    # The codecs that need no compiler.
    codecs = ("none", "gzip", "snappy")
    # Its headers are a map from names to texts or bytes, which it does not keep in order.
    sendable = tuple(r for r in ODD if len(r.headers) <= 1)

    def read(self, client, broker, topic, count):
        # It consumes in groups alone.
        records = written(broker, topic)
        assert len(records) == count
        return [r.value for r in records]

    def test_offsets_are_found_for_times(self, client, broker, name):
        topic = create_topic(broker.address, name)
        now_ms = int(time.time() * 1000)
        write(broker, topic, [Record(b"x", timestamp=now_ms + 10 * n) for n in range(10)])
        times = [EARLIEST, LATEST, now_ms - 1, now_ms + 35, now_ms + 90, now_ms + 91]
        # For a time that no record has reached it tells the end.
        assert client.offsets(topic, 0, times) == [0, 10, 0, 4, 9, 10]
