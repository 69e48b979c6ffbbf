"""Logs to test with: batches as a leader appends them, and a keeper that a test controls."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kserver.config.topic import TopicConfig
from kserver.errors import NoRoom, StorageError
from kserver.log.log import Log, LogHome
from kserver.log.recovery import NOTHING_STORED, StoredOffsets
from kserver.model import TopicPartition
from kserver.wire.batch import NewRecord, Record, batches, encode_batch, end_transaction_marker
from kserver.world.disk import Disk
from tests.support.clock import DAY_ONE_MS

PARTITION = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"


class Keeper:
    """A keeper that records the requests of logs, and does nothing by itself."""

    def __init__(self) -> None:
        self.wants_flush: dict[Log, None] = {}
        self.removals: list[str] = []
        self.lowered: list[int] = []
        """Each recovery point that had to be durable before a truncation."""
        self.failures: list[StorageError] = []
        self.refusals: list[NoRoom] = []
        """Refusals for lack of disk space."""

    def flush_soon(self, log: Log) -> None:
        self.wants_flush[log] = None

    def remove_later(self, log: Log, paths: Sequence[str]) -> None:
        self.removals += paths

    def disk_failed(self, log: Log, error: StorageError) -> None:
        self.failures.append(error)

    async def stop_cleaning(self, log: Log) -> None:
        pass

    def no_room(self, log: Log, error: NoRoom) -> None:
        self.refusals.append(error)

    async def recovery_point_lowered(self, log: Log) -> None:
        self.lowered.append(log.recovery_point)


def open_log(
    disk: Disk,
    config: TopicConfig | None = None,
    stored: StoredOffsets = NOTHING_STORED,
    *,
    keeper: Keeper | None = None,
    directory: str = DIRECTORY,
    now_ms: int = DAY_ONE_MS,
) -> Log:
    home = LogHome(disk, random.Random(0), keeper or Keeper(), 86_400_000)
    return Log.open(home, directory, PARTITION, config or TopicConfig(), now_ms, stored)


def batch(
    count: int = 1,
    *,
    timestamp: int = DAY_ONE_MS,
    size: int = 20,
    tag: bytes = b"",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> memoryview:
    """Return a batch of `count` records, a millisecond apart, with values of `size` bytes that
    begin with `tag`.
    """
    records: list[NewRecord] = [
        (timestamp + i, b"key", (tag + b"%d/" % i).ljust(size, b"."), ()) for i in range(count)
    ]
    return memoryview(
        bytearray(
            encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                transactional=transactional,
            )
        )
    )


def marker(producer_id: int, producer_epoch: int, *, commit: bool) -> memoryview:
    key, value = end_transaction_marker(commit, 0)
    return memoryview(
        bytearray(
            encode_batch(
                [(DAY_ONE_MS, key, value, ())],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=True,
                control=True,
            )
        )
    )


def read_all(log: Log, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Return every record, as a consumer that fetches `max_bytes` at a time sees them."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes, up_to=log.log_end_offset, at_least_one=True)
        assert found.data is not None, offset
        for one in batches(found.data.read()):
            records += [r for r in one.records() if r.offset >= offset]
            offset = one.next_offset
    return records
