"""Producers that write continuously, a consumer that follows, and checks of their observations.

    async with Load(broker.address, topic, partitions) as load:
        await load.progress()           some more was acknowledged
        ...                             kill the broker, stop it, start it
    await load.check(broker.address)    every guarantee, checked with the log

Each record's key names its producer, partition and number, and its value follows from the key, so
that a record is recognized in any log. The guarantees:

- an acknowledged record is at the acknowledged offset, with its value
- each record of an idempotent producer is there once, in the order of sending
- records of a plain one with one request in flight first appear in that order
- offsets have no gaps
- the high watermark never goes back, is never below an acknowledged record, and a record that a
  consumer read stays at its offset
"""

from __future__ import annotations

import asyncio
import struct
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from kcli.client.config import ProducerConfig
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode, KafkaError
from kserver.peer import Peer
from kserver.wire.batch import batches
from tests.simulation.test_broker import fetch

PATIENCE_S = 60
ASK_AGAIN_S = 0.02
RATE = 300
"""Records a second for each producer: few enough to read and compare all of them in the end."""
SIZES, SHARES = ((1, 300), (300, 10_000), (10_000, 100_000)), (0.7, 0.25, 0.05)
"""Ranges of value sizes in bytes, and the share of each."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_KEY = struct.Struct(">HIQ")


class Name(NamedTuple):
    """The content of a record's key."""

    producer: int
    partition: int
    number: int


@dataclass
class History:
    """The results that one producer received."""

    kind: str
    once: bool
    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Sent records by partition."""
    acked: dict[Name, int] = field(default_factory=dict)
    """The offsets of acknowledged records."""
    failures: list[str] = field(default_factory=list)


class Seen(NamedTuple):
    offset: int
    key: bytes
    digest: int
    """Digest of the value."""


def value_of(key: bytes, size: int) -> bytes:
    """Return a value of that size, unique to the key; it is compressible, but not to nothing."""
    start = struct.pack(">I", zlib.crc32(key)) + key
    return (start * (size // len(start) + 1))[:size]


def is_value_of(key: bytes, value: bytes) -> bool:
    return value == value_of(key, len(value))


class Load:
    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        *,
        seed: int = 0,
        librdkafka: bool = True,
    ) -> None:
        self.histories: list[History] = []
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._random = Random(seed)
        self._librdkafka = librdkafka
        self._stopping = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._watermarks = [0] * partitions
        """The highest high watermark that a consumer received, by partition."""
        self._acked_ends = [0] * partitions
        """The least high watermarks that follow from acknowledgements, by partition."""
        self._seen: list[list[Seen]] = [[] for _ in range(partitions)]

    @property
    def acked(self) -> int:
        return sum(len(history.acked) for history in self.histories)

    async def __aenter__(self) -> Self:
        make = asyncio.create_task
        for number, codec in enumerate(CODECS):
            once = number % 2 == 0
            self._tasks.append(make(self._produce(self._new("k", codec, once), codec, once)))
        if self._librdkafka:
            for codec, once in (("lz4", True), ("zstd", False)):
                history = self._new("librdkafka", codec, once)
                self._tasks.append(make(asyncio.to_thread(self._librd, history, codec, once)))
        self._tasks += [make(self._follow(partition)) for partition in range(self._partitions)]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and error is None:
                raise result

    async def progress(self, records: int = 100) -> None:
        """Wait until this many more records were acknowledged, of every producer at least one."""
        before = [len(history.acked) for history in self.histories]
        aim = sum(before) + records
        async with asyncio.timeout(PATIENCE_S):
            while self.acked < aim or any(
                len(history.acked) == count
                for history, count in zip(self.histories, before, strict=True)
            ):
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(ASK_AGAIN_S)

    def _new(self, client: str, codec: str, once: bool) -> History:
        kind = f"{client} {codec} {'idempotent' if once else 'plain'}"
        self.histories.append(History(kind, once))
        return self.histories[-1]

    def _next(self, history: History, random: Random) -> tuple[Name, bytes, bytes]:
        partition = random.randrange(self._partitions)
        name = Name(self.histories.index(history), partition, history.sent[partition])
        history.sent[partition] += 1
        key = _KEY.pack(*name)
        low, high = random.choices(SIZES, SHARES)[0]
        return name, key, value_of(key, random.randint(low, high))

    async def _produce(self, history: History, codec: str, once: bool) -> None:
        """Run our own producer."""
        config = ProducerConfig.of(
            {
                "bootstrap.servers": self._address,
                "acks": "all",
                "compression.type": codec,
                "enable.idempotence": str(once).lower(),
                "max.in.flight.requests.per.connection": "5" if once else "1",
                "linger.ms": "2",
                "request.timeout.ms": "5000",
                "delivery.timeout.ms": str(2 * PATIENCE_S * 1000),
                "retry.backoff.ms": "20",
                "retry.backoff.max.ms": "100",
                "reconnect.backoff.ms": "10",
                "reconnect.backoff.max.ms": "50",
            }
        )
        random = Random(self._random.random())
        async with Producer(config) as producer:
            while not self._stopping.is_set():
                name, key, value = self._next(history, random)

                def told(error: Exception | None, metadata: Any, name: Name = name) -> None:
                    if error is not None:
                        history.failures.append(f"{name}: {error!r}")
                    else:
                        self._acked(history, name, metadata.offset)

                while not producer.try_send(
                    self._topic, value, key, partition=name.partition, on_delivery=told
                ):
                    await producer.ready(self._topic)
                await asyncio.sleep(1 / RATE)

    def _librd(self, history: History, codec: str, once: bool) -> None:
        """Run librdkafka's producer, in a thread."""
        from confluent_kafka import Producer as LibrdkafkaProducer

        producer = LibrdkafkaProducer(
            {
                "bootstrap.servers": self._address,
                "acks": "all",
                "compression.type": codec,
                "enable.idempotence": once,
                "max.in.flight.requests.per.connection": 5 if once else 1,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": 2 * PATIENCE_S * 1000,
                "socket.timeout.ms": 5_000,
                "log_level": 0,
            }
        )
        random = Random(self._random.random())
        while not self._stopping.is_set():
            name, key, value = self._next(history, random)

            def told(error: Any, message: Any, name: Name = name) -> None:
                if error is not None:
                    history.failures.append(f"{name}: {error}")
                else:
                    self._acked(history, name, message.offset())

            producer.produce(self._topic, value, key, name.partition, on_delivery=told)
            producer.poll(1 / RATE)
        producer.flush(PATIENCE_S)

    async def _follow(self, partition: int) -> None:
        """Read from the start; check that nothing that was received goes back."""
        seen = self._seen[partition]
        peer: Peer | None = None
        while not self._stopping.is_set():
            acked = self._acked_ends[partition]
            try:
                if peer is None:
                    peer = await self._connect()
                answer = await fetch(peer, self._topic, partition, len(seen), max_wait_ms=200)
            except (OSError, KafkaError):
                # The broker is down; it may even have accepted the connection and failed.
                peer = None
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            assert answer.error_code is ErrorCode.none, (answer.error_code, partition, len(seen))
            assert answer.high_watermark >= self._watermarks[partition]
            assert answer.high_watermark >= acked
            self._watermarks[partition] = answer.high_watermark
            seen += _records(answer.records, len(seen))
        if peer is not None:
            peer.close()

    def _acked(self, history: History, name: Name, offset: int) -> None:
        history.acked[name] = offset
        self._acked_ends[name.partition] = max(self._acked_ends[name.partition], offset + 1)

    async def _connect(self) -> Peer:
        host, _, port = self._address.rpartition(":")
        return await Peer.connect(host, int(port))

    async def check(self) -> None:
        """Check the log, all of which is read, with all observations. Every send has ended."""
        logs = [await self._read_all(partition) for partition in range(self._partitions)]
        found: dict[Name, list[int]] = defaultdict(list)
        for partition, records in enumerate(logs):
            assert len(records) >= self._watermarks[partition]
            followed = self._seen[partition]
            assert records[: len(followed)] == followed, f"partition {partition} was rewritten"
            for record in records:
                name = Name(*_KEY.unpack(record.key))
                assert name.partition == partition, (name, partition)
                found[name].append(record.offset)
        for number, history in enumerate(self.histories):
            assert not history.failures, (history.kind, history.failures[:3])
            for name, offset in history.acked.items():
                # The offset is -1 if only an earlier attempt, whose response was lost, could have
                # returned it.
                is_there = offset in found[name] or (offset < 0 and found[name])
                assert is_there, f"{history.kind} lost {name}, acked at {offset}"
            assert len(history.acked) == sum(history.sent.values()), history.kind
            for partition, sent in history.sent.items():
                offsets = [found[Name(number, partition, n)][0] for n in range(sent)]
                assert offsets == sorted(offsets), f"{history.kind} has another order"
            if history.once:
                twice = [name for name in history.acked if len(found[name]) > 1]
                assert not twice, f"{history.kind} wrote {twice[:3]} more than once"

    async def _read_all(self, partition: int) -> list[Seen]:
        peer = await self._connect()
        records: list[Seen] = []
        while True:
            answer = await fetch(peer, self._topic, partition, len(records))
            assert answer.error_code is ErrorCode.none, answer
            if not answer.records:
                assert answer.high_watermark == len(records)
                break
            records += _records(answer.records, len(records))
        peer.close()
        return records


def _records(data: bytes, offset: int) -> Iterable[Seen]:
    """Yield the records from `offset` on; check that offsets have no gaps and that each value
    matches its key.
    """
    for batch in batches(data):
        assert batch.is_valid_crc(), batch.base_offset
        for record in batch.records():
            if record.offset < offset:
                continue
            assert record.offset == offset, f"offset {record.offset} where {offset} should follow"
            assert record.key is not None
            assert record.value is not None
            assert is_value_of(record.key, record.value), Name(*_KEY.unpack(record.key))
            yield Seen(offset, record.key, zlib.crc32(record.value))
            offset += 1
