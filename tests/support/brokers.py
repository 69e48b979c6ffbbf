"""The brokers that clients are tested with: ours, or Apache's in its place.

    BROKERS=4.3.1 pytest tests/integration/clients      the same tests on Apache 4.3.1
    BROKERS="k 3.9.2 4.3.1" pytest tests/contract/api   on ours and on two of Apache's

A test that fails on Apache's broker is wrong itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kserver.errors import ErrorCode, ProtocolError
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import NewRecord, RecordBatch, batches, encode_batch
from kserver.wire.special_offsets import EARLIEST
from tests.support import apache_kafka
from tests.support.process import BrokerProcess
from tests.support.tools import free_port, require
from tests.support.wire_client import WireClient, milliseconds

OURS = "k"
KINDS = tuple(os.environ.get("BROKERS", OURS).split())
"""OURS, and versions of Apache Kafka."""
DAY_MS = 86_400_000

START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
CHANGE_TIMEOUT_S = 30
SHOWN_CHARACTERS = 5000
ASK_AGAIN_S = 0.05
LISTINGS = 20
"""Attempts to list a directory: compaction removes files between the listing and the reading."""
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options for a JVM that lives for seconds."""


class Broker(Protocol):
    address: str

    @property
    def data(self) -> Path: ...

    def start(self) -> Any: ...
    def stop(self) -> int: ...
    def kill(self) -> None: ...
    def restart(self) -> Any: ...


class ApacheBroker:
    """An Apache Kafka broker of `version`, with the interface of BrokerProcess. It runs in KRaft
    mode unless the settings have `zookeeper.connect`.
    """

    def __init__(
        self, directory: Path, version: str, settings: Mapping[str, object] | None = None
    ) -> None:
        self.directory = directory
        self.version = version
        self.settings = dict(settings or {})
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.controller_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def membership(self) -> list[str]:
        """The options that say to which cluster the broker belongs."""
        if "zookeeper.connect" in self.settings:
            return ["--zookeeper", str(self.settings["zookeeper.connect"])]
        return ["--quorum", f"1@127.0.0.1:{self.controller_port}"]

    def start(self) -> ApacheBroker:
        """Start the broker, and return once it serves. Raises RuntimeError with its output on
        failure.
        """
        require("java")
        self.directory.mkdir(parents=True, exist_ok=True)
        output = self.directory / "output.txt"
        words = [f"--override={key}={value}" for key, value in self.settings.items()]
        words += self.membership
        with open(output, "ab") as file:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, apache_kafka.__file__, "server", self.version),
                    *("--data", str(self.directory), "--port", str(self.port), *words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START},
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not serves(self.address):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                last = output.read_text()[-SHOWN_CHARACTERS:]
                raise RuntimeError(f"the broker did not start:\n{last}")
            time.sleep(ASK_AGAIN_S)  # the broker does not signal that it serves
        return self

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def restart(self) -> ApacheBroker:
        self.stop()
        return self.start()

    def __enter__(self) -> ApacheBroker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()


def running(
    kind: str, directory: Path, settings: Mapping[str, object] | None = None
) -> BrokerProcess | ApacheBroker:
    """Return a broker of one of KINDS, to be entered as a context.

    Unless set otherwise, it does not check for expired records. Tests write many with timestamps of
    1970, which would be deleted five minutes after the start.
    """
    settings = {"log.retention.check.interval.ms": DAY_MS} | dict(settings or {})
    if kind == OURS:
        return BrokerProcess(directory, settings)
    return ApacheBroker(directory, kind, settings)


@contextlib.contextmanager
def unharmed(broker: BrokerProcess | ApacheBroker) -> Iterator[None]:
    """Check that meanwhile our broker neither exits by itself nor logs an error."""
    lines = broker.output if isinstance(broker, BrokerProcess) else []
    before = len(lines)
    yield
    said = lines[before:]
    assert not any(" ERROR " in line or "Traceback" in line for line in said), "".join(said)
    assert broker.process is None or broker.process.poll() is None, "".join(said)


def serves(address: str) -> bool:
    """Return whether a broker responds at this address, and returns its address to clients."""
    try:
        with WireClient(address) as client:
            return bool(client.call(ApiKey.METADATA, 1, topics=[]).brokers)
    except (OSError, ProtocolError):
        # ProtocolError: a server of another kind had the port a moment ago.
        return False


def served_versions(address: str) -> dict[int, range]:
    """Return the versions of each API that the broker at this address supports."""
    with WireClient(address) as client:
        answer = client.call(ApiKey.API_VERSIONS, 0)
    return {a.api_key: range(a.min_version, a.max_version + 1) for a in answer.api_keys}


def create_topic(address: str, name: str, partitions: int = 1, **config: object) -> str:
    """Create a topic, without the client under test, and wait until it accepts records.

    Keys of `config` have underscores for dots.  Returns the name.
    """
    configs = [{"name": k.replace("_", "."), "value": str(v)} for k, v in config.items()]
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": configs,
    }
    with WireClient(address) as client:
        (made,) = client.call(
            ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout=milliseconds(30_000)
        ).topics
        assert made.error_code is ErrorCode.none, (made.error_code, made.error_message)
        until(lambda: _is_led(client, name, partitions))
    return name


def await_coordinator(address: str, group: str) -> str:
    """Wait until the group's coordinator responds, and return the group.

    Apache's broker creates the offsets topic after its first responses. It returns NOT_COORDINATOR
    for a moment after naming itself; librdkafka passes this error to the caller of a commit.
    """

    def answers() -> bool:
        (found,) = client.call(
            ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[group], key_type=0
        ).coordinators
        asked = {"name": "no-such-topic", "partition_indexes": [0]}
        told = client.call(ApiKey.OFFSET_FETCH, 5, group_id=group, topics=[asked])
        return found.error_code is told.error_code is ErrorCode.none

    with WireClient(address) as client:
        until(answers)
    return group


def grow_topic(address: str, name: str, partitions: int) -> None:
    """Increase a topic's partitions to `partitions`, and wait until they accept records."""
    topic = {"name": name, "count": partitions, "assignments": None}
    with WireClient(address) as client:
        answer = client.call(
            ApiKey.CREATE_PARTITIONS,
            1,
            topics=[topic],
            timeout=milliseconds(30_000),
            validate_only=False,
        )
        (grown,) = answer.results
        assert grown.error_code is ErrorCode.none, (grown.error_code, grown.error_message)
        until(lambda: _is_led(client, name, partitions))


def append(
    address: str, topic: str, records: Sequence[NewRecord], partition: int = 0, **fields: Any
) -> int:
    """Append one batch, without the client under test, and return its first offset.

    `fields` as encode_batch takes them.
    """
    data = {"index": partition, "records": encode_batch(records, **fields)}
    topics = [{"name": topic, "partition_data": [data]}]
    with WireClient(address) as client:
        answer = client.call(
            ApiKey.PRODUCE, 8, acks=-1, timeout=milliseconds(30_000), topic_data=topics
        )
    (appended,) = answer.responses[0].partition_responses
    assert appended.error_code is ErrorCode.none, (appended.error_code, appended.error_message)
    offset: int = appended.base_offset
    return offset


def until(holds: Callable[[], bool], within_s: float = CHANGE_TIMEOUT_S) -> None:
    """Wait until `holds`. Apache's brokers learn of a change after the response to it; ours,
    before.
    """
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(ASK_AGAIN_S)


def _is_led(client: WireClient, name: str, partitions: int) -> bool:
    asked = [{"partition_index": p, "timestamp": EARLIEST} for p in range(partitions)]
    topics = [{"name": name, "partitions": asked}]
    (topic,) = client.call(ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=topics).topics
    return all(p.error_code is ErrorCode.none for p in topic.partitions)


def stored(broker: Broker, topic: str, partition: int = 0) -> list[RecordBatch]:
    """Return the batches in the broker's log files of the partition."""
    directory = broker.data / f"{topic}-{partition}"
    for _ in range(LISTINGS):
        with contextlib.suppress(FileNotFoundError):
            held = [file.read_bytes() for file in sorted(directory.glob("*.log"))]
            return list(itertools.chain.from_iterable(map(batches, held)))
    raise AssertionError(f"{directory}: files were removed while they were read, {LISTINGS} times")


def names(start: str) -> Iterator[str]:
    """Yield names of topics, each new."""
    return (f"{start}-{number}" for number in itertools.count(1))
