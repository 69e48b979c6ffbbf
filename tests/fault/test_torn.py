"""Test recovery of log files that were truncated or corrupted on purpose after a broker was killed.

Most tests open a single log in this process, on copies of files that a broker process wrote. A few
start a whole broker.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import re
import shutil
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode
from kserver.log import checkpoint
from kserver.log.checkpoint import RECOVERY_POINTS
from kserver.log.recovery import CLEAN_SHUTDOWN, NOTHING_STORED, DamagedLog, StoredOffsets
from kserver.model import TopicPartition
from kserver.wire.batch import Record, RecordBatch, batches
from kserver.wire.compression import Compression
from kserver.world.disk import OsDisk
from tests.contract.api.calls import Topic, fetch, produce, topic_id
from tests.contract.api.calls import batch as make_batch
from tests.support.brokers import create_topic
from tests.support.clock import DAY_ONE_MS
from tests.support.logs import batch, open_log, read_all
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

BATCHES = 24
SEGMENT_BYTES = 800
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
DISK = OsDisk()
ON_DISK = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40
)


class Written(NamedTuple):
    """Files that a broker left when it was killed."""

    data: Path
    directory: Path
    """Directory of the partition."""
    batches: list[RecordBatch]
    records: list[Record]

    @property
    def last(self) -> Path:
        return sorted(self.directory.glob("*.log"))[-1]

    @property
    def last_batches(self) -> list[tuple[int, RecordBatch]]:
        """Positions and batches of the last segment."""
        found = list(batches(self.last.read_bytes()))
        positions = itertools.accumulate((one.size for one in found), initial=0)
        return list(zip(positions, found, strict=False))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    random = Random(0)
    with BrokerProcess(tmp_path_factory.mktemp("written")) as broker:
        name = create_topic(
            broker.address, "t", segment_bytes=SEGMENT_BYTES, index_interval_bytes=1
        )
        with WireClient(broker.address) as client:
            topic = Topic(name, topic_id(client, name))
            for n in range(BATCHES):
                values = [
                    b"%d" % n * random.randrange(1, 30) for _ in range(random.randrange(1, 4))
                ]
                packed = make_batch(
                    *values,
                    compression=Compression(n % 5),
                    **(IDEMPOTENT if n == 0 else {}),
                )
                assert produce(client, 9, topic, packed).error_code.value == 0
        broker.kill()
        directory = broker.data / "t-0"
        files = sorted(directory.glob("*.log"))
        assert len(files) >= 3
        found = [one for file in files for one in batches(file.read_bytes())]
        assert len(found) == BATCHES
        records = [record for one in found for record in one.records()]
        yield Written(broker.data, directory, found, records)


@pytest.fixture
def copy(written, tmp_path):
    """Return a function that copies the partition's directory at each call."""
    numbers = itertools.count()

    def make():
        return Path(shutil.copytree(written.directory, tmp_path / str(next(numbers)) / "t-0"))

    return make


def opened(directory, stored=NOTHING_STORED):
    config = TopicConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=1)
    return open_log(DISK, config, stored, directory=str(directory))


def holds(log, records):
    """Assert that the log has exactly these records and accepts an append."""
    end = len(records)
    assert log.log_end_offset == end
    assert read_all(log) == records
    assert log.append_as_leader(batch(1), 0, DAY_ONE_MS).first_offset == end


@pytest.mark.parametrize("known", ["nothing", "all before it"])
def test_a_tear_at_any_byte_of_the_last_batch_costs_that_batch_alone(written, copy, known):
    position, last = written.last_batches[-1]
    recovery_point = last.base_offset if known == "all before it" else 0
    for end in range(position, position + last.size + 1):
        directory = copy()
        with open(directory / written.last.name, "r+b") as file:
            file.truncate(end)
        log = opened(directory, StoredOffsets(recovery_point=recovery_point))
        is_whole = end == position + last.size
        holds(log, written.records if is_whole else written.records[: last.base_offset])


@ON_DISK
@given(data=st.data())
def test_a_last_file_that_ends_anywhere_keeps_its_whole_batches(written, copy, data):
    end = data.draw(st.integers(0, written.last.stat().st_size))
    directory = copy()
    with open(directory / written.last.name, "r+b") as file:
        file.truncate(end)
    kept = [one.base_offset for position, one in written.last_batches if position + one.size > end]
    holds(opened(directory), written.records[: min(kept, default=len(written.records))])


@ON_DISK
@given(garbage=st.binary(min_size=1, max_size=300), repeat=st.sampled_from((1, 100)))
@example(garbage=b"\0", repeat=1)
@example(garbage=b"\0", repeat=4096)
@example(garbage=b"\xff", repeat=61)
def test_garbage_behind_the_last_batch_is_cut_off(written, copy, garbage, repeat):
    directory = copy()
    with open(directory / written.last.name, "ab") as file:
        file.write(garbage * repeat)
    holds(opened(directory), written.records)


@pytest.mark.parametrize("number", [0, -2, -1])
def test_an_old_batch_behind_the_last_one_is_not_taken_for_a_new_one(written, copy, number):
    directory = copy()
    with open(directory / written.last.name, "ab") as file:
        file.write(written.batches[number].buffer)
    holds(opened(directory), written.records)


SPOILT = {
    "removed": None,
    "empty": lambda data: b"",
    "cut within an entry": lambda data: data[:-3] if len(data) > 3 else b"\1",
    "cut between entries": lambda data: data[: len(data) // 48 * 24],
    "zeros": lambda data: bytes(len(data)),
    "of ones": lambda data: b"\xff" * len(data),
    "of another size": lambda data: data + b"stray",
}


@pytest.mark.parametrize("known", ["nothing", "all but the last file", "a clean stop"])
@pytest.mark.parametrize("way", SPOILT)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
def test_what_can_be_derived_from_the_records_may_be_spoilt(written, copy, suffix, way, known):
    directory = copy()
    stored = NOTHING_STORED
    if known == "a clean stop":
        log = opened(directory)
        asyncio.run(log.close())
        stored = StoredOffsets(True, log.log_end_offset)
    elif known == "all but the last file":
        stored = StoredOffsets(recovery_point=int(written.last.stem))
    paths = [path for path in directory.iterdir() if path.name.endswith(suffix)]
    assert paths
    for path in paths:
        if SPOILT[way] is None:
            path.unlink()
        else:
            path.write_bytes(SPOILT[way](path.read_bytes()))
    log = opened(directory, stored)
    holds(log, written.records)
    if known == "nothing":
        log.check()


@pytest.mark.parametrize("part", ["file", "recovered"])
@ON_DISK
@given(data=st.data())
def test_a_flipped_bit_is_found_and_never_passed_on(written, copy, part, data):
    """Below the recovery point the log is refused; above it the log is truncated at the damage.

    Two fields are not covered by a batch's CRC: its base offset and its leader epoch. Damage there
    can hide that a batch was appended later, but never changes its records.
    """
    _, last = written.last_batches[-1]
    size = written.last.stat().st_size
    at = data.draw(st.integers(0, size - 1))
    directory = copy()
    flip(directory / written.last.name, at, data.draw(st.integers(0, 7)))
    known = part == "recovered"
    recovery_point = last.next_offset if known else 0
    try:
        log = opened(directory, StoredOffsets(recovery_point=recovery_point))
    except DamagedLog as error:
        reason = str(error)
        damaged, found_at = DAMAGED.search(reason).groups()
        damages = known and damaged == str(directory / written.last.name)
        # A wrong epoch, which no CRC covers, is detected at the batch after it.
        starts = [start for start, _ in written.last_batches]
        hit = bisect.bisect(starts, at) - 1
        assert damages, reason
        assert int(found_at) in starts[hit : hit + 2], reason
        return
    values = [record.value for record in read_all(log)]
    assert values == [record.value for record in written.records][: len(values)]
    if known:
        assert len(values) == len(written.records)


DAMAGED = re.compile(r"(\S+) is damaged at position (\d+)")


def flip(path, position, bit=4):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes((byte ^ 1 << bit,)))


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_broker_starts_on_a_torn_tail(written, tmp_path, part):
    data = shutil.copytree(written.data, tmp_path / "data")
    position, last = written.last_batches[-1]
    with open(data / "t-0" / written.last.name, "r+b") as file:
        file.truncate(position + int(last.size * part))
    with BrokerProcess(tmp_path) as broker:
        assert any("truncated from" in line and written.last.name in line for line in broker.output)
        with WireClient(broker.address) as client:
            topic = Topic("t", topic_id(client, "t"))
            assert read_from(client, topic) == written.records[: last.base_offset]
            added = produce(client, 9, topic, make_batch(b"on"))
            assert added.base_offset == last.base_offset


def read_from(client, topic):
    records = []
    while True:
        answer = fetch(client, 12, topic, len(records))
        if not answer.records:
            return records
        for one in batches(answer.records):
            records += [r for r in one.records() if r.offset >= len(records)]


def test_a_bit_that_flipped_in_what_was_flushed_is_told_with_a_remedy(tmp_path):
    """No crash explains the damage, so the broker does not repair it; the advice in its message
    works."""
    settings = {
        "log.flush.interval.messages": 1,
        "log.flush.offset.checkpoint.interval.ms": 10,
    }
    broker = BrokerProcess(tmp_path, settings)
    count = 20
    with broker:
        name = create_topic(broker.address, "t")
        with WireClient(broker.address) as client:
            topic = Topic(name, topic_id(client, name))
            for n in range(count):
                produce(client, 9, topic, make_batch(b"%d" % n * 100))
            # Wait until the recovery point covers all records, so that the damage lies below it.
            checkpoint_path = broker.data / RECOVERY_POINTS
            while offsets(checkpoint_path).get(TopicPartition("t", 0)) != count:
                time.sleep(0.01)
        broker.kill()
        (file,) = broker.data.glob("t-0/*.log")
        # Flip a bit in the records of the batch at offset 12.
        found = list(batches(file.read_bytes()))
        position = sum(one.size for one in found[:12])
        flip(file, position + 70)
        broker.start()
        (reason,) = [line for line in broker.output if "t-0: log is damaged" in line]
        assert f"{file} is damaged at position {position}:" in reason
        with WireClient(broker.address) as client:
            refused = produce(client, 9, topic, make_batch(b"no"))
            assert refused.error_code is ErrorCode.kafka_storage_error
        assert broker.stop() == 0
        assert not any("Traceback" in line for line in broker.output)

        # Follow the advice of the message: the records before the damage are readable again.
        advice = f"set this partition's offset in {RECOVERY_POINTS} to 12 and remove"
        assert advice in reason
        lines = checkpoint_path.read_text()
        checkpoint_path.write_text(lines.replace(f"t 0 {count}", "t 0 12"))
        (broker.data / CLEAN_SHUTDOWN).unlink()
        broker.start()
        with WireClient(broker.address) as client:
            assert [record.value for record in read_from(client, topic)] == [
                b"%d" % n * 100 for n in range(12)
            ]


def offsets(path):
    return checkpoint.decode_offsets(path.read_bytes(), str(path)) if path.exists() else {}
