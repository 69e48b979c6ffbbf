"""A workload of a topic that keeps the last value of each key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kcli.client.admin.admin import NewTopic
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from tests.support.history import Done
from tests.support.workloads import REFUSALS, Workload, appending

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

TOPIC = "compacted"
KEYS = 6
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "2000",
}

Value = bytes | None


class Found(NamedTuple):
    offset: int
    key: bytes
    value: Value


class Compacts(Workload):
    """Writes every key again and again, or deletes it with a tombstone."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, [NewTopic(TOPIC, 2, config=SETTINGS)])
        self._sent: dict[TopicPartition, set[tuple[bytes, Value]]] = {
            p: set() for p in self.partitions
        }
        self._acknowledged: dict[TopicPartition, dict[int, tuple[bytes, Value]]] = {
            p: {} for p in self.partitions
        }
        self._last: dict[TopicPartition, list[Found]] = {}
        """All records at the end."""

    def begin(self, swarm: Swarm) -> None:
        self._writing = [swarm.run(self.write, "p")]
        swarm.run(self.keep_reading, "r")

    async def write(self, swarm: Swarm, name: str) -> None:
        number = 0
        async with appending(swarm, {}) as producer:
            while not swarm.is_over.is_set():
                number += 1
                key = swarm.random.randrange(KEYS)
                value = None if swarm.random.random() < 0.2 else b"%s:%d" % (name.encode(), number)
                await self._write(swarm, producer, self.partitions[key % 2], b"%d" % key, value)
                await asyncio.sleep(swarm.random.expovariate(8))
            await producer.flush()

    async def _write(
        self, swarm: Swarm, producer: Producer, target: TopicPartition, key: bytes, value: Value
    ) -> None:
        self._sent[target].add((key, value))

        def done(outcome: asyncio.Future[Any]) -> None:
            if not outcome.cancelled() and outcome.exception() is None:
                self._acknowledged[target][outcome.result().offset] = (key, value)
                swarm.note(Done(swarm.now_s, TOPIC))

        outcome = await producer.send(TOPIC, value, key, partition=target.partition)
        outcome.add_done_callback(done)

    def has_done_since(self, swarm: Swarm, since: int) -> bool:
        return any(
            isinstance(event, Done) and event.topic == TOPIC for event in swarm.history[since:]
        )

    async def keep_reading(self, swarm: Swarm, _: str) -> None:
        """Read from the beginning, and start again now and then."""
        while True:
            goes_on = self._goes_on_until(swarm, swarm.now_s + swarm.random.uniform(1, 6))
            with contextlib.suppress(*REFUSALS):
                await self._read(swarm, goes_on)
            await asyncio.sleep(0.2)

    @staticmethod
    def _goes_on_until(swarm: Swarm, until_s: float) -> Callable[[], bool]:
        return lambda: swarm.now_s < until_s

    async def read_all(self, swarm: Swarm) -> None:
        config = ConsumerConfig.of(swarm.consumer)
        async with Consumer(config, random=swarm.new_chance()) as consumer:
            ends = await consumer.end_offsets(self.partitions)
        at = dict.fromkeys(self.partitions, 0)
        self._last = await self._read(swarm, lambda: at != ends, at)

    async def _read(
        self,
        swarm: Swarm,
        goes_on: Callable[[], bool],
        at: dict[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, list[Found]]:
        """Return the records that a reader finds; check each with those that were written."""
        found: dict[TopicPartition, list[Found]] = {p: [] for p in self.partitions}
        config = ConsumerConfig.of(swarm.consumer)
        async with Consumer(config, random=swarm.new_chance()) as consumer:
            consumer.assign(self.partitions)
            while goes_on():
                for record in await consumer.poll(200):
                    where = TopicPartition(record.topic, record.partition)
                    self._take(where, found[where], Found(record.offset, record.key, record.value))
                if at is not None:
                    at |= {p: await consumer.position(p) for p in self.partitions}
        return found

    def _take(self, where: TopicPartition, before: list[Found], one: Found) -> None:
        """Raises AssertionError if a record is not the one written at its offset."""
        wanted = self._acknowledged[where].get(one.offset, (one.key, one.value))
        assert (one.key, one.value) == wanted, f"{where} has {one}, not {wanted}"
        assert (one.key, one.value) in self._sent[where], f"nobody wrote {one} to {where}"
        assert not before or before[-1].offset < one.offset, f"{where} has {one} after {before[-1]}"
        before.append(one)

    def judge(self, swarm: Swarm) -> None:
        """Check that the last value of each key is there; a tombstone may be gone with all before
        it.
        """
        for partition, acknowledged in self._acknowledged.items():
            wanted, found = _lasting(acknowledged), {f.key: f for f in self._last[partition]}
            for key, (offset, value) in wanted.items():
                one = found.get(key)
                if one is None:
                    assert value is None, f"{partition} has lost {key!r}: {value!r} at {offset}"
                else:
                    told = f"{partition} has {one}, not {value!r} at {offset}"
                    assert (one.offset, one.value) == (offset, value), told


def _lasting(acknowledged: dict[int, tuple[bytes, Value]]) -> dict[bytes, tuple[int, Value]]:
    return {key: (offset, value) for offset, (key, value) in sorted(acknowledged.items())}
