"""A workload of a topic whose first records are deleted, by request or for its size, while it is
read.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import NoOffset
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from tests.support.history import Deletes, Polled, Seated, Struck
from tests.support.scene import partitions_of
from tests.support.workloads import REFUSALS, Workload, append, appending

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

TRIMMED, SIZED = "trimmed", "sized"
KEPT_BYTES = 3000
VALUE_BYTES = 40
DEADLY = frozenset(
    {
        "kill",
        "kill_all",
        "power",
        "power_and_kill_all",
        "failing_disk",
        "failing_log_dir",
        "new_disk",
        "foreign_write",
    }
)
MAX_RECORD_BYTES = 120
"""The greatest size of a batch of one record; records of larger batches take less each."""


class Trims(Workload):
    """`trimmed` is truncated by DeleteRecords, `sized` by its retention.bytes."""

    def __init__(self, random: Random) -> None:
        sized = {"retention.bytes": str(KEPT_BYTES), "segment.bytes": "700"}
        super().__init__(
            random,
            [
                NewTopic(TRIMMED, 2, config={"segment.bytes": random.choice(["700", "1000000"])}),
                NewTopic(SIZED, 1, config=sized),
            ],
        )
        self._asked: dict[TopicPartition, int] = {}
        """The highest offset in a request to delete records, by partition."""
        self._trimmed: dict[TopicPartition, int] = {}
        """The highest log start offset in a response, by partition."""
        self._passed: dict[TopicPartition, int] = {}
        """The offsets that the readers have reached."""

    def begin(self, swarm: Swarm) -> None:
        self._writing = [swarm.run(self.write, "p"), swarm.run(self.trim, "d")]
        for _ in range(2):
            swarm.run(self.keep_reading, "r")

    async def write(self, swarm: Swarm, name: str) -> None:
        number = 0
        async with appending(swarm, {}) as producer:
            while not swarm.is_over.is_set():
                number += 1
                target = swarm.random.choice(self.partitions)
                value = f"{name}:{number}:".ljust(VALUE_BYTES, "-")
                await append(swarm, producer, name, target, value)
                await asyncio.sleep(swarm.random.expovariate(8))
            await producer.flush()

    async def trim(self, swarm: Swarm, _: str) -> None:
        """Delete records up to an offset that a reader has passed, now and then."""
        config = AdminConfig.of(swarm.bootstrap)
        async with Admin(config, random=swarm.new_chance()) as admin:
            while not swarm.is_over.is_set():
                await asyncio.sleep(swarm.random.expovariate(0.5))
                target = swarm.random.choice(partitions_of(TRIMMED, 2))
                before = self._passed.get(target, 0) - swarm.random.randint(0, 5)
                if before <= self._asked.get(target, 0):
                    continue
                self._asked[target] = before
                swarm.note(Deletes(swarm.now_s, tuple(target), before))
                with contextlib.suppress(*REFUSALS):
                    found = (await admin.delete_records({target: before}))[target]
                    if not isinstance(found, KafkaError):
                        assert found >= before, f"{target} begins at {found}, not {before}"
                        self._trimmed[target] = max(found, self._trimmed.get(target, 0))

    async def keep_reading(self, swarm: Swarm, name: str) -> None:
        """Read, and start again now and then; if records are gone, from the log start offset."""
        config = ConsumerConfig.of(swarm.consumer | {"auto.offset.reset": "none"})
        seats = dict.fromkeys(self.partitions, 0)
        life = 0
        while True:
            life += 1
            with contextlib.suppress(*REFUSALS):
                async with Consumer(config, random=swarm.new_chance()) as consumer:
                    await self._read(swarm, f"{name}.{life}", consumer, seats)
            await asyncio.sleep(0.2)

    async def _read(
        self, swarm: Swarm, who: str, consumer: Consumer, seats: dict[TopicPartition, int]
    ) -> None:
        begin = await self._beginnings(swarm, consumer)
        for one in self.partitions:
            seats[one] = max(seats[one] - swarm.random.randint(0, 10), begin[one])
        consumer.assign(seats)
        for one, offset in seats.items():
            swarm.note(Seated(swarm.now_s, who, tuple(one), offset))
            await consumer.seek(one, offset)
        until_s, poll = swarm.now_s + swarm.random.uniform(2, 12), 0
        while swarm.now_s < until_s:
            poll += 1
            try:
                records = await consumer.poll(300)
            except NoOffset as error:
                begin = await self._beginnings(swarm, consumer)
                for one in error.partitions:
                    # A former leader that does not know the new one may return this.
                    offset = max(begin[one], seats[one])
                    swarm.note(Seated(swarm.now_s, who, tuple(one), offset))
                    await consumer.seek(one, offset)
                continue
            for record in records:
                where = TopicPartition(record.topic, record.partition)
                seats[where] = record.offset + 1
                self._passed[where] = max(record.offset + 1, self._passed.get(where, 0))
                value = record.value.decode()
                swarm.note(Polled(swarm.now_s, who, tuple(where), record.offset, value, poll))

    async def _beginnings(self, swarm: Swarm, consumer: Consumer) -> dict[TopicPartition, int]:
        begin = await consumer.beginning_offsets(self.partitions)
        for one, offset in begin.items():
            if one.topic == SIZED:
                swarm.note(Deletes(swarm.now_s, tuple(one), offset))
        return begin

    async def read_all(self, swarm: Swarm) -> None:
        await super().read_all(swarm)
        config = ConsumerConfig.of(swarm.consumer)
        async with Consumer(config, random=swarm.new_chance()) as consumer:
            self._begin = await self._beginnings(swarm, consumer)
            self._ends = await consumer.end_offsets(self.partitions)

    def judge(self, swarm: Swarm) -> None:
        """Check that no more is deleted than was requested, or than the size limit allows. Deleted
        records are back only if a broker died: a follower persists its log start offset once a
        minute, as Kafka's do.
        """
        has_died = any(isinstance(e, Struck) and e.what in DEADLY for e in swarm.history)
        for one in partitions_of(TRIMMED, 2):
            least = 0 if has_died else self._trimmed.get(one, 0)
            most, begin = self._asked.get(one, 0), self._begin[one]
            assert least <= begin <= most, f"{one} begins at {begin}, not from {least} to {most}"
        (sized,) = partitions_of(SIZED, 1)
        kept = self._ends[sized] - self._begin[sized]
        least = min(KEPT_BYTES // MAX_RECORD_BYTES, self._ends[sized])
        assert kept >= least, f"{sized} has {kept} of {self._ends[sized]} left"
