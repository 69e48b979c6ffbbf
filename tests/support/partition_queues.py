"""An accumulator and its queues without the sender around them."""

from __future__ import annotations

from random import Random

from kcli.client.producer.accumulator import Accumulator, AccumulatorLimits
from kcli.client.producer.partition_queue import PartitionQueue, ProducerBatch, Rules


class Bench:
    """An accumulator whose clock stands still unless moved, and its callbacks' arguments."""

    def __init__(self, partitions: int = 1, seed: int = 1, **limits) -> None:
        self.now = 0.0
        self.now_ms = 1000
        self.opened: list[ProducerBatch] = []
        self.full: list[PartitionQueue] = []
        self.stamps = 0
        rules = {
            name: limits.pop(name) for name in ("idempotent", "max_in_flight") if name in limits
        }
        self.rules = Rules(**rules, producer_id=7, producer_epoch=0)
        self.accumulator = Accumulator(
            AccumulatorLimits(**limits),
            self.rules,
            now=lambda: self.now,
            now_ms=lambda: self.now_ms,
            random=Random(seed),
            on_open=self.opened.append,
            on_full=self.full.append,
            on_stamp=self._stamped,
        )
        self.accumulator.grow("t", partitions)
        for queue in self.accumulator.queues("t"):
            queue.leader = 0

    def _stamped(self) -> None:
        self.stamps += 1

    def queue(self, partition: int = 0) -> PartitionQueue:
        return self.accumulator.queues("t")[partition]

    def offer(self, value: bytes | None = b"v", key: bytes | None = None, **rest) -> bool:
        return self.accumulator.offer("t", value, key, **rest)

    def begin(self) -> Bench:
        """Append a first batch: until then all others wait."""
        self.offer(b"first")
        batch = self.take()
        assert batch is not None
        self.queue().complete(batch, appended=True)
        self.accumulator.finish(batch)
        return self

    def take(self, partition: int = 0) -> ProducerBatch | None:
        queue = self.queue(partition)
        if queue.open is not None:
            self.accumulator.due(queue.open)
        batch = queue.next_batch(self.now)
        if batch is not None:
            self.accumulator.take(batch)
        return batch


def values(batch: ProducerBatch) -> list[bytes | None]:
    return [value for _, _, value, _ in batch.records]
