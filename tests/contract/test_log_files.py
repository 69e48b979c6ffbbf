"""Test that log files are compatible with Kafka: files written by Apache's 4.3.1 are read here, and
Apache's kafka-dump-log accepts files written here.

`orders-0` is a partition as Apache's broker left it after a clean stop: five codecs, headers, three
transactions of which the second was aborted, an idempotent producer, a roll by time. Its topic had
index.interval.bytes=100, segment.index.bytes=4096, segment.bytes=1048576.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kserver.config.topic import TopicConfig
from kserver.log.log import Log, Origin
from kserver.log.recovery import StoredOffsets
from kserver.wire.batch import RecordBatch, batches, encode_batch
from kserver.wire.compression import Compression
from kserver.world.disk import OsDisk
from tests.support import apache_kafka
from tests.support.clock import DAY_ONE_MS
from tests.support.logs import batch, marker, open_log, read_all
from tests.support.tools import require

ORDERS = Path(__file__).parents[1] / "data/log/apache-4.3.1/orders-0"
CONFIG = TopicConfig(
    index_interval_bytes=100, segment_index_bytes=4096, segment_bytes=1 << 20, retention_ms=-1
)
END = 40
DUMP_LOG = [sys.executable, apache_kafka.__file__, "tool", "4.3.1", "kafka-dump-log.sh"]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    copy = tmp_path / "orders-0"
    shutil.copytree(ORDERS, copy)
    return copy


def open_orders(directory: Path, stored: StoredOffsets) -> Log:
    log = open_log(OsDisk(), CONFIG, stored, directory=str(directory))
    log.check()
    return log


def data_batches(log: Log) -> list[RecordBatch]:
    return [one for s in log.segments for one in batches(s.file.read_at(0, s.size))]


def test_apaches_log_opens_after_a_clean_stop(orders: Path) -> None:
    log = open_orders(orders, StoredOffsets(clean=True, recovery_point=END, high_watermark=END))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, END, END)
    assert [segment.base_offset for segment in log.segments] == [0, 28]
    assert str(log.topic_id) == "bb98181b-b10f-41de-9eff-7610ae179b87"
    records = read_all(log, max_bytes=100)
    assert [record.offset for record in records] == list(range(END))
    assert {one.compression for one in data_batches(log)} == set(Compression)
    assert (records[0].key, records[0].headers) == (b"none-0", ())
    assert (records[24].key, records[24].headers) == (b"zstd-4", ())
    assert records[23].headers == (("h", b"1"),)
    assert records[24].value == b"zstd value 4 " * 4
    assert [one[1:3] for one in log.aborted(0, END)] == [(29, 32)]
    assert log.producers.producers[1000].next_sequence == 3


def test_apaches_log_takes_appends(orders: Path) -> None:
    log = open_orders(orders, StoredOffsets(clean=True, recovery_point=END, high_watermark=END))
    done = log.append_as_leader(
        batch(2, producer_id=1000, producer_epoch=0, base_sequence=3), 1, DAY_ONE_MS
    )
    assert done.first_offset == END
    log.check()


def test_from_apaches_records_alone_all_its_other_files_are_written_again(orders: Path) -> None:
    for path in orders.iterdir():
        if path.suffix != ".log" and path.name != "partition.metadata":
            path.unlink()
    log = open_orders(orders, StoredOffsets())
    assert (log.log_end_offset, len(read_all(log))) == (END, END)
    asyncio.run(log.close())
    written = {path.name: path.read_bytes() for path in orders.iterdir()}
    assert written == {path.name: path.read_bytes() for path in ORDERS.iterdir()}


def test_after_a_crash_apaches_preallocated_indexes_are_trimmed(orders: Path) -> None:
    for name in ("00000000000000000028.index", "00000000000000000028.timeindex"):
        os.truncate(orders / name, 4092)
    with open(orders / "00000000000000000028.log", "ab") as file:
        file.write(bytes(50))
    log = open_orders(orders, StoredOffsets(recovery_point=28))
    assert log.log_end_offset == END
    asyncio.run(log.close())
    for path in ORDERS.iterdir():
        assert (orders / path.name).read_bytes() == path.read_bytes(), path.name


# Apache's tool on our files


def fill(log: Log) -> None:
    """Append batches of every codec, with transactions and epochs, over many segments."""
    random = Random(1)
    sequences = {7: 0, 8: 0}
    for number in range(300):
        codec = Compression(number % 5)
        count = random.randrange(1, 6)
        producer_id = random.choice([-1, 7, 8])
        fields: dict[str, Any] = {}
        if producer_id >= 0:
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequences[producer_id],
                "transactional": True,
            }
            sequences[producer_id] += count
        records = [
            (DAY_ONE_MS + random.randrange(10_000), b"key", b"value %d" % n * 9, (("h", None),))
            for n in range(count)
        ]
        data = memoryview(bytearray(encode_batch(records, compression=codec, **fields)))
        log.append_as_leader(data, number // 100, DAY_ONE_MS)
        if number % 20 == 19:
            for id in sequences:
                end = marker(id, 0, commit=random.random() < 0.5)
                log.append_as_leader(end, number // 100, DAY_ONE_MS, origin=Origin.coordinator)


def dump_log(files: list[Path], *options: str) -> str:
    environment = dict(os.environ, KAFKA_JVM_PERFORMANCE_OPTS="-XX:TieredStopAtLevel=1")
    done = subprocess.run(
        [*DUMP_LOG, "--files", ",".join(map(str, files)), *options],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    # For each file except the first, the tool warns that its first offset does not follow -1.
    quirk = r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n"
    assert not re.sub(quirk, "", done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("java")
    directory = tmp_path_factory.mktemp("ours")
    config = TopicConfig(segment_bytes=6000, index_interval_bytes=300, segment_index_bytes=1000)
    log = open_log(OsDisk(), config, directory=f"{directory}/t-0")
    fill(log)
    follower = open_log(OsDisk(), config, directory=f"{directory}/u-0")
    while follower.log_end_offset < log.log_end_offset:
        found = log.read(follower.log_end_offset, 3000, up_to=log.log_end_offset)
        data = memoryview(found.data.read())  # type: ignore[union-attr]
        follower.append_as_follower(data, DAY_ONE_MS)

    async def close() -> None:
        await follower.close()
        await log.close()

    asyncio.run(close())
    return directory


@pytest.mark.parametrize("log", ["t-0", "u-0"])
def test_apache_finds_every_batch_valid_and_every_index_entry_where_it_points(
    ours: Path, log: str
) -> None:
    files = sorted(ours.glob(f"{log}/*.log")) + sorted(ours.glob(f"{log}/*index"))
    assert len({path.suffix for path in files}) == 4
    told = dump_log(files, "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in told
    assert "invalid bytes" not in told
    ends = [int(one) for one in re.findall(r"baseOffset: \d+ lastOffset: (\d+)", told)]
    starts = [int(one) for one in re.findall(r"baseOffset: (\d+) lastOffset: \d+", told)]
    assert starts == [0, *(end + 1 for end in ends[:-1])]
    assert told.count("compresscodec: zstd") == 60


def test_apache_finds_the_indexes_sane_and_reads_the_other_files(ours: Path) -> None:
    indexes = [*sorted(ours.glob("t-0/*.index")), *sorted(ours.glob("t-0/*.timeindex"))]
    told = dump_log(indexes, "--index-sanity-check")
    assert told.count("passed sanity check.") == len(indexes)
    told = dump_log(sorted(ours.glob("t-0/*.snapshot")))
    assert "producerId: 7 producerEpoch: 0" in told
    told = dump_log(sorted(ours.glob("t-0/*.txnindex")))
    assert "producerId: 8" in told or "producerId: 7" in told
