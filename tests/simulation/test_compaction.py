"""A compacted log under random writes, transactions, cleanings and crashes, beside a dictionary.

Whatever happened, who reads the log from its start has what the dictionary has; what has survived
is what was written, at its offset; producers go on where they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import pytest

from kserver.log.log import Log, Origin
from kserver.log.producer_state import ProducerStateEntry
from kserver.model import TopicPartition
from kserver.wire.batch import NewRecord, Record, batches, encode_batch
from kserver.wire.compression import Compression
from tests.support.logs import marker
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.unit.log.test_manager import Host

SEEDS = seeds(12)
TP = TopicPartition("t", 0)
KEYS = [b"k%d" % n for n in range(5)] + [b"a key of over fifteen bytes %d" % n for n in range(5)]
RETENTION_MS = 5000
WRITERS, TRANSACTIONAL = range(3), range(10, 13)
CODECS = (Compression.none, Compression.none, Compression.gzip, Compression.lz4)


class Written(NamedTuple):
    record: Record
    producer_id: int
    transactional: bool


class End(NamedTuple):
    producer_id: int
    commit: bool


class Compacted:
    """The log of a host, all that was written to it, and what is left of that after a crash."""

    def __init__(self, loop: SimLoop) -> None:
        self.random = loop.random
        keys_at_once = self.random.choice((2, 6, 1000))
        self.host = Host(
            loop,
            "log.cleaner.backoff.ms=200",
            f"log.cleaner.dedupe.buffer.size={160 * keys_at_once}",
            f"log.cleaner.io.buffer.size={self.random.choice((100, 700, 1 << 20))}",
            cleanup_policy=("compact",),
            segment_bytes=self.random.choice((700, 2000, 5000)),
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=RETENTION_MS,
            file_delete_delay_ms=1000,
        )
        self.written: dict[int, Written] = {}
        self.ends: dict[int, End] = {}
        self.cleanings = 0

    @property
    def log(self) -> Log:
        return self.host.manager.logs[TP]

    async def start(self) -> None:
        manager = await self.host.start()
        if TP not in manager.logs:
            manager.create(TP, UUID(int=1), self.host.topic)
            # Of a log that no checkpoint names any gap is taken for compaction's.
            await asyncio.sleep(1)
        end = self.log.log_end_offset
        self.written = {o: w for o, w in self.written.items() if o < end}
        self.ends = {o: e for o, e in self.ends.items() if o < end}
        self.log.commit_all()

    async def crash(self) -> None:
        self.cleanings += self.host.manager.cleaner.cleanings
        await self.random.choice((self.host.kill, self.host.lose_power, self.host.stop))()
        await self.start()

    def write(self, producer_id: int = -1, *, transactional: bool = False) -> None:
        now_ms = self.host.clock.now_ms()
        records: list[NewRecord] = [
            (
                now_ms + n,
                self.random.choice(KEYS),
                None if self.random.random() < 0.2 else self.random.randbytes(20).hex().encode(),
                (("h", b"x"),) if self.random.random() < 0.1 else (),
            )
            for n in range(self.random.randint(1, 4))
        ]
        known = self.log.producers.producers.get(producer_id)
        sequence = (known.next_sequence if known else 0) if producer_id >= 0 else -1
        data = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
            compression=self.random.choice(CODECS),
        )
        first = self.log.append_as_leader(memoryview(bytearray(data)), 0, now_ms).first_offset
        for n, (timestamp, key, value, headers) in enumerate(records):
            record = Record(first + n, timestamp, key, value, tuple(headers))
            self.written[first + n] = Written(record, producer_id, transactional)
        self.log.commit_all()

    def end(self, producer_id: int, commit: bool) -> None:
        data = marker(producer_id, 0, commit=commit)
        done = self.log.append_as_leader(
            data, 0, self.host.clock.now_ms(), origin=Origin.coordinator
        )
        self.ends[done.first_offset] = End(producer_id, commit)
        self.log.commit_all()

    def producer(self, producer_id: int) -> ProducerStateEntry | None:
        return self.log.producers.producers.get(producer_id)

    def is_open(self, producer_id: int) -> bool:
        known = self.producer(producer_id)
        return known is not None and known.transaction_start >= 0

    async def step(self) -> None:
        kind = self.random.random()
        if kind < 0.35:
            self.write(self.random.choice((-1, *WRITERS)))
        elif kind < 0.7:
            producer_id = self.random.choice(TRANSACTIONAL)
            if self.is_open(producer_id) and self.random.random() < 0.5:
                self.end(producer_id, self.random.random() < 0.5)
            else:
                self.write(producer_id, transactional=True)
        elif kind < 0.75:
            await self.log.flush()
        elif kind < 0.97:
            await asyncio.sleep(self.random.expovariate(2))
        else:
            await self.crash()
            self.check()

    def decided(self) -> dict[int, Record]:
        """The records that count, by offset: those of aborted or open transactions do not."""
        decided = {o: w.record for o, w in self.written.items() if not w.transactional}
        open_: dict[int, list[Record]] = {}
        for offset in sorted(self.written.keys() | self.ends.keys()):
            if (end := self.ends.get(offset)) is not None:
                for record in open_.pop(end.producer_id, []):
                    if end.commit:
                        decided[record.offset] = record
            elif self.written[offset].transactional:
                one = self.written[offset]
                open_.setdefault(one.producer_id, []).append(one.record)
        return decided

    def survivors(self) -> list[Record]:
        """Data records, as they lie there; those of aborted transactions may be among them."""
        records: list[Record] = []
        for segment in self.log.segments:
            for one in batches(segment.file.read_at(0, segment.size)):
                assert one.is_valid_crc()
                if not one.is_control:
                    records += one.records()
        return records

    def check(self) -> None:
        self.log.check()
        survivors, decided = self.survivors(), self.decided()
        for record in survivors:
            assert record == self.written[record.offset].record
        assert state(r for r in survivors if r.offset in decided) == state(decided.values())
        last_of: dict[int, int] = {}
        for offset, one in self.written.items():
            last_of[one.producer_id] = offset
        for producer_id, last_offset in last_of.items():
            if producer_id >= 0:
                known = self.producer(producer_id)
                assert known is not None
                assert known.batches[-1].last_offset == last_offset
        self.check_aborted(survivors, decided)

    def check_aborted(self, survivors: list[Record], decided: Mapping[int, Record]) -> None:
        """What the index tells read_committed consumers hides exactly what was aborted."""
        log = self.log
        stable = log.last_stable_offset
        aborted = log.aborted(0, stable)
        for record in survivors:
            if record.offset >= stable or not self.written[record.offset].transactional:
                continue
            producer_id = self.written[record.offset].producer_id
            hidden = any(
                a.producer_id == producer_id and a.first_offset <= record.offset <= a.last_offset
                for a in aborted
            )
            assert hidden == (record.offset not in decided), record.offset

    async def clean_all(self) -> None:
        """All but a last record is cleaned, after what was cleaned before has become old."""
        await asyncio.sleep(RETENTION_MS / 1000 + 1)
        self.log.roll(self.host.clock.now_ms())
        await self.log.flush()
        async with asyncio.timeout(300):
            while self.log.cleaned_to != self.log.segments[-1].base_offset:
                await asyncio.sleep(0.1)
        self.check()


def state(records) -> dict[bytes | None, bytes]:
    """What somebody has who applies the records in order."""
    newest: dict[bytes | None, bytes] = {}
    for record in sorted(records):
        if record.value is None:
            newest.pop(record.key, None)
        else:
            newest[record.key] = record.value
    return newest


async def compacted(loop: SimLoop) -> int:
    one = Compacted(loop)
    await one.start()
    for _ in range(250):
        await one.step()
    for producer_id in TRANSACTIONAL:
        if one.is_open(producer_id):
            one.end(producer_id, loop.random.random() < 0.5)
    await one.clean_all()
    for _ in range(3):
        one.write()
        await one.clean_all()
    await one.crash()
    one.check()
    survivors = [r for r in one.survivors() if r.offset < (one.log.cleaned_to or 0)]
    keys = [record.key for record in survivors]
    decided = one.decided()
    assert all(record.offset in decided for record in survivors), "an aborted record survived"
    assert len(keys) == len(set(keys)), "an old record survived"
    newest = max(one.written)
    old = [r for r in survivors if r.value is None and r.offset < newest - 8]
    assert not old, "a tombstone outlived its retention"
    assert not one.host.manager.cleaner.uncleanable
    cleanings = one.cleanings + one.host.manager.cleaner.cleanings
    await one.host.stop()
    return cleanings


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_from_the_start_has_what_was_written_last(seed):
    assert simulate(compacted, seed) > 0
