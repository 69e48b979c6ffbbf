"""Test logs that our broker compacted with Apache's kafka-dump-log and with clients in four
languages."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kserver.log.checkpoint import CLEANED
from kserver.wire.batch import batches
from kserver.wire.compression import Compression
from tests.conformance.test_dump_log import apache
from tests.integration.clients.client import Record
from tests.support import brokers

CLIENTS = ("confluent", "java-4.3.1", "franz", "kafka-python")
KEYS, ROUNDS, PRODUCER = 40, 30, 4711
HALF = KEYS // 2
RECORDS = ROUNDS * (KEYS + 1)
SETTINGS = {"log.cleaner.backoff.ms": 100, "log.index.interval.bytes": 512}
PATIENCE_S = 60


@pytest.fixture(scope="module")
def compacted(tmp_path_factory):
    """A compacted topic, whose idempotent producer is still known.

    Only the last record of each key is left, except in the active segment.
    """
    directory = tmp_path_factory.mktemp("compacted")
    with brokers.running(brokers.OURS, directory, SETTINGS) as broker:
        brokers.create_topic(
            broker.address,
            "c",
            cleanup_policy="compact",
            segment_bytes=4000,
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=86_400_000,
        )
        now_ms = int(time.time() * 1000)
        sequence = 0
        for number in range(ROUNDS):
            rows = [
                (now_ms, b"k%d" % key, None if key % 10 == 9 else b"%d" % number * 50, ())
                for key in range(KEYS)
            ]
            rows.insert(1, (now_ms, b"only in round %d" % number, b"", ()))
            codec = Compression(number % len(Compression))
            who = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}
            brokers.append(broker.address, "c", rows[:HALF], compression=codec, **who)
            sequence += HALF
            brokers.append(broker.address, "c", rows[HALF:], compression=codec)
        checkpoint = broker.data / CLEANED
        log = broker.data / "c-0"
        deadline = time.monotonic() + PATIENCE_S
        while not (checkpoint.exists() and f"c 0 {active(log)}" in checkpoint.read_text()):
            assert time.monotonic() < deadline, checkpoint.exists() and checkpoint.read_text()
            time.sleep(0.05)  # files of another process
        yield broker, log


def active(log: Path) -> int:
    return max(int(name.removesuffix(".log")) for name in os.listdir(log) if name.endswith(".log"))


def files(log: Path, suffix: str) -> list[str]:
    return sorted(str(path) for path in log.glob(f"*{suffix}"))


def test_apache_reads_all_that_is_left_and_finds_its_indexes_true(compacted):
    _, log = compacted
    stored = [b for path in files(log, ".log") for b in batches(Path(path).read_bytes())]
    assert any(one.count < one.last_offset_delta + 1 for one in stored), "nothing was compacted"
    assert any(one.delete_horizon_ms is not None for one in stored)
    out = apache("4.3.1", "--deep-iteration", "--files", ",".join(files(log, ".log")))
    assert out.count("isvalid: true") == len(stored)
    assert out.count("| offset: ") == sum(one.count for one in stored)
    assert "isvalid: false" not in out
    indexes = ",".join(files(log, ".index") + files(log, ".timeindex"))
    sane = apache("4.3.1", "--index-sanity-check", "--files", indexes)
    assert sane.count("passed sanity check.") + sane.count("is empty.") == indexes.count(",") + 1
    true = apache("4.3.1", "--verify-index-only", "--files", indexes)
    said = [line for line in true.splitlines() if line]
    assert all(line.startswith("Dumping ") or line.endswith(" is empty.") for line in said)


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_reads_across_the_gaps(compacted, catalogue, name):
    broker, log = compacted
    left = [
        record
        for path in files(log, ".log")
        for one in batches(Path(path).read_bytes())
        for record in one.records()
    ]
    assert len(left) < RECORDS
    found = catalogue.open(name, broker.address).consume("c", {0: 0}, len(left))
    assert [(r.offset, r.key, r.value) for r in found] == [(r.offset, r.key, r.value) for r in left]
    newest = {r.key: r.value for r in found}
    assert newest == {
        b"k%d" % key: None if key % 10 == 9 else b"%d" % (ROUNDS - 1) * 50 for key in range(KEYS)
    } | {b"only in round %d" % number: b"" for number in range(ROUNDS)}


def test_a_producer_whose_records_went_goes_on_after_a_kill(compacted, catalogue):
    broker, _ = compacted
    broker.kill()
    broker.start()
    row = (int(time.time() * 1000), b"new", b"value", ())
    who = {"producer_id": PRODUCER, "producer_epoch": 0}
    with pytest.raises(AssertionError, match="out_of_order_sequence_number"):
        brokers.append(broker.address, "c", [row], base_sequence=7, **who)
    sequence = ROUNDS * HALF
    assert brokers.append(broker.address, "c", [row], base_sequence=sequence, **who) == RECORDS
    last = Record(b"value", b"new")
    found = catalogue.open("confluent", broker.address).consume("c", {0: RECORDS}, 1)
    assert [(r.value, r.key) for r in found] == [(last.value, last.key)]
