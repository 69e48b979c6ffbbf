"""Records that are written and read in the background while brokers start and stop.

with SteadyLoad(client_settings, "topic", partitions=8) as load:
    ...
    load.advance()
load.check()

An idempotent producer with acks=all writes the numbers 0, 1, 2, ... to each partition, and a group
reads them.

The producer is librdkafka's.  If a leader moves away before it has acknowledged a batch that is
replicated, and the next batch reaches the new leader first, librdkafka begins another producer
epoch and sends the first batch again, as if it were new (librdkafka's issue 4953).  So numbers may
be repeated if it had more than one epoch, and none may be if it had one.
"""

from __future__ import annotations

import ctypes
import json
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.librdkafka_deadlock import DeadlockWatch

PACE_S = 0.02
"""Seconds between the records of a partition."""
PATIENCE_S = 120
MIN_ACKNOWLEDGED = 20
SESSION_MS = 10_000
"""Time after which another reader takes over from a deadlocked one."""


class SteadyLoad:
    def __init__(self, client: dict[str, Any], topic: str, partitions: int) -> None:
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._sent = 0
        """Records sent to each partition."""
        self._acknowledged = 0
        self._latencies_s: list[float] = []
        self.errors: list[str] = []
        """Errors of its clients that ended a write or a read."""
        self._epochs: int | None = None
        """Producer epochs that were begun, by the producer's last statistics."""
        self._read: dict[int, int] = defaultdict(int)
        """The number after the last one read, by partition."""
        self._stop = threading.Event()
        self._producer = Producer(
            client
            | {
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": PATIENCE_S * 1000,
                "retry.backoff.ms": 50,
                "statistics.interval.ms": 500,
                "stats_cb": self._count_epochs,
            }
        )
        self._deadlocks = DeadlockWatch()
        self._writer = threading.Thread(target=self._write)
        self._reader = self._new_reader()

    def __enter__(self) -> Self:
        self._writer.start()
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._writer.join()
        self._reader.join()

    def advance(self) -> None:
        """Return once records that are written from now on are acknowledged and read."""
        acknowledged = self._acknowledged + MIN_ACKNOWLEDGED * self._partitions
        read = self._sent + 1
        deadline = time.monotonic() + PATIENCE_S
        while self._acknowledged < acknowledged or min(self._next_read()) < read:
            assert not self.errors, self.errors
            if self._deadlocks.is_new():
                # The deadlocked reader has left the group; it cannot be closed, or be waited for.
                print("librdkafka is deadlocked: another reader takes over")
                self._reader = self._new_reader()
                self._reader.start()
            assert time.monotonic() < deadline, (
                f"{self._acknowledged} of {acknowledged} acknowledged, read up to"
                f" {self._next_read()} of {read}"
            )
            time.sleep(PACE_S)

    def take_latencies_s(self) -> list[float]:
        """Return the seconds from sending to acknowledgement, of the records acknowledged since the
        last call."""
        latencies_s, self._latencies_s = self._latencies_s, []
        return latencies_s

    def check(self) -> None:
        """Check after the end: each number is there once, in order, and no client had an error.

        If the producer had several epochs, numbers may be repeated.
        """
        assert not self.errors, self.errors
        assert self._epochs is not None, "no statistics"
        assert self._acknowledged == self._sent * self._partitions > 0
        for partition in range(self._partitions):
            stored = self._stored(partition)
            first = list(dict.fromkeys(stored)) if self._epochs > 1 else stored
            if first != list(range(self._sent)):
                raise AssertionError(f"partition {partition}: {self._difference(stored)}")

    def _difference(self, stored: list[int]) -> str:
        """Return what is wrong with the numbers of a partition."""
        missing = sorted(set(range(self._sent)) - set(stored))
        doubled = [number for number, count in Counter(stored).items() if count > 1]
        before = [(one, next_) for one, next_ in pairwise(stored) if next_ != one + 1]
        return (
            f"{len(stored)} records, not {self._sent}; {self._epochs} epochs; missing"
            f" {missing[:20]}, doubled {doubled[:20]}, not followed by the next {before[:20]}"
        )

    def _next_read(self) -> list[int]:
        return [self._read[partition] for partition in range(self._partitions)]

    def _write(self) -> None:
        def told(error: Any, message: Any) -> None:
            if error is None:
                self._acknowledged += 1
                self._latencies_s.append(message.latency())
            else:
                self.errors.append(f"producer: {error}")

        while not self._stop.is_set():
            for partition in range(self._partitions):
                value = str(self._sent).encode()
                self._producer.produce(self._topic, value, partition=partition, on_delivery=told)
            self._sent += 1
            self._producer.poll(PACE_S)
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.errors.append(f"producer: {left} records were never answered")
        self._epochs, deadline = None, time.monotonic() + PATIENCE_S
        while self._epochs is None and time.monotonic() < deadline:
            self._producer.poll(PACE_S)

    def _count_epochs(self, statistics: str) -> None:
        # epoch_cnt counts the ids that brokers allocated. librdkafka raises the epoch of an id on
        # its own, and does not count that (rd_kafka_idemp_drain_done).
        eos = json.loads(statistics)["eos"]
        self._epochs = eos["epoch_cnt"] + eos["producer_epoch"]

    def _new_reader(self) -> threading.Thread:
        return threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        consumer = Consumer(
            self._client
            | {
                "group.id": f"{self._topic}-readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": SESSION_MS,
            }
        )
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            message = consumer.poll(PACE_S)
            if threading.current_thread() is not self._reader:
                # Keep a reference: collecting it would close it.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))
                return
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(f"consumer: {message.error()}")
                continue
            number, partition = int(message.value()), message.partition()
            # After a rebalance some records are read again, but none may be skipped.
            if number > self._read[partition]:
                self.errors.append(f"consumer: {partition} jumped to {number}")
            self._read[partition] = max(self._read[partition], number + 1)
        consumer.close()

    def _stored(self, partition: int) -> list[int]:
        consumer = Consumer(self._client | {"group.id": "none"})
        consumer.assign([TopicPartition(self._topic, partition, 0)])
        found: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        try:
            _, end = consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=PATIENCE_S
            )
            while len(found) < end and time.monotonic() < deadline:
                for message in consumer.consume(1000, 1):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    found.append(int(message.value()))
        finally:
            consumer.close()
        return found
