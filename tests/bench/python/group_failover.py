"""A group of librdkafka consumers and a steady producer, in one process.

    python -m tests.bench.python.group_failover ADDRESSES TOPIC GROUP MEMBERS

Each member commits the offsets of the records it has read, and waits for the commit. Whenever all
members have advanced, prints the send time of the newest record that every member has reached and
committed, and the current time, both in seconds of the machine's monotonic clock.

When standard input ends, the producer stops and the members read the rest. The last line is JSON:
the number of acknowledged records (`written`), of those that no member read (`skipped`), and of
records that were read again (`doubled`).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter

from confluent_kafka import Consumer, KafkaException, Message, Producer

PAUSE_S = 0.05
"""Interval between records of one partition."""
BATCH, POLL_S = 100, 0.1
FINISH_S = 60


class Load:
    def __init__(self, addresses: str, topic: str, group: str, members: int) -> None:
        self.topic = topic
        self.written: set[tuple[int, int]] = set()
        self.read: Counter[tuple[int, int]] = Counter()
        self.is_ending, self.is_over = threading.Event(), threading.Event()
        self._turn = threading.Lock()
        self._committed_s = [0.0] * members
        self._printed_s = 0.0
        self._producer = Producer(
            {"bootstrap.servers": addresses, "enable.idempotence": True, "linger.ms": 0}
        )
        self._settings = {
            "bootstrap.servers": addresses,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
        self._partitions = len(self._producer.list_topics(topic, FINISH_S).topics[topic].partitions)
        self._threads = [threading.Thread(target=self._consume, args=(n,)) for n in range(members)]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        while not self.is_ending.is_set():
            for partition in range(self._partitions):
                sent = repr(time.monotonic())
                self._producer.produce(
                    self.topic, sent, partition=partition, on_delivery=self._acknowledged
                )
            self._producer.poll(0)
            self.is_ending.wait(PAUSE_S)
        self._producer.flush(FINISH_S)
        deadline = time.monotonic() + FINISH_S
        while self.written - self.read.keys() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self.is_over.set()
        for thread in self._threads:
            thread.join()
        figures = {
            "written": len(self.written),
            "skipped": len(self.written - self.read.keys()),
            "doubled": sum(self.read.values()) - len(self.read),
        }
        print(json.dumps(figures), flush=True)

    def _acknowledged(self, error: object, message: Message) -> None:
        if error is None:
            self.written.add((message.partition(), message.offset()))

    def _consume(self, number: int) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self.topic])
        while not self.is_over.is_set():
            records = [m for m in consumer.consume(BATCH, POLL_S) if m.error() is None]
            if not records:
                continue
            with self._turn:
                self.read.update((m.partition(), m.offset()) for m in records)
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                continue  # the group rebalances, or its coordinator is not available
            self._note(number, max(float(m.value()) for m in records))
        consumer.close()

    def _note(self, number: int, sent_s: float) -> None:
        with self._turn:
            self._committed_s[number] = max(self._committed_s[number], sent_s)
            if (least := min(self._committed_s)) > self._printed_s:
                self._printed_s = least
                print(least, time.monotonic(), flush=True)


if __name__ == "__main__":
    *where, members = sys.argv[1:]
    load = Load(*where, int(members))
    threading.Thread(target=lambda: (sys.stdin.read(), load.is_ending.set()), daemon=True).start()
    load.run()
