"""A workload of records with timestamps, and of requests for offsets by timestamp."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kcli.client.admin.admin import NewTopic
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kserver.model import TopicPartition
from tests.support.history import Polled, Recovered, Result, Sent
from tests.support.workloads import REFUSALS, Workload, append, appending

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

SPREAD_MS = 3000
"""The greatest age of a record's timestamp when it is sent: timestamps do not only rise."""


class Answer(NamedTuple):
    since: int
    """The number of events in the history at the request."""
    partition: TopicPartition
    time_ms: int
    offset: int | None


class Times(Workload):
    """A workload in which each value ends with its record's timestamp."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, [NewTopic("timed", 2, config={"segment.bytes": "1000"})])
        self._answers: list[Answer] = []

    def begin(self, swarm: Swarm) -> None:
        self._writing = [swarm.run(self.write, "p"), swarm.run(self.ask, "t")]

    async def write(self, swarm: Swarm, name: str) -> None:
        number = 0
        async with appending(swarm, {}) as producer:
            while not swarm.is_over.is_set():
                number += 1
                target = swarm.random.choice(self.partitions)
                time_ms = swarm.now_ms() - swarm.random.randint(0, SPREAD_MS)
                value = f"{name}:{number}@{time_ms}"
                await append(swarm, producer, name, target, value, timestamp=time_ms)
                await asyncio.sleep(swarm.random.expovariate(5))
            await producer.flush()

    async def ask(self, swarm: Swarm, _: str) -> None:
        began_ms = swarm.now_ms()
        config = ConsumerConfig.of(swarm.consumer)
        async with Consumer(config, random=swarm.new_chance()) as consumer:
            while not swarm.is_over.is_set():
                # The latest times are those that no record has yet.
                time_ms = swarm.random.randint(began_ms - SPREAD_MS, swarm.now_ms())
                since = len(swarm.history)
                with contextlib.suppress(*REFUSALS):
                    found = await consumer.offsets_for_times(
                        dict.fromkeys(self.partitions, time_ms)
                    )
                    for partition, listed in found.items():
                        offset = None if listed is None else listed.offset
                        self._answers.append(Answer(since, partition, time_ms, offset))
                await asyncio.sleep(swarm.random.expovariate(3))

    def judge(self, swarm: Swarm) -> None:
        """Check that a response is the first record at the end that is not older than the time.
        After recovery, a response without a record is wrong if the client knew of one when it sent
        the request. Before it, a former leader that is cut off knows less.
        """
        times: dict[TopicPartition, dict[int, int]] = {p: {} for p in self.partitions}
        known_at: dict[tuple[TopicPartition, int], int] = {}
        recovered = next(at for at, e in enumerate(swarm.history) if isinstance(e, Recovered))
        for at, event in enumerate(swarm.history):
            if not isinstance(event, Polled | Sent):
                continue
            partition = TopicPartition(*event.partition)
            if partition not in times or (
                isinstance(event, Sent) and event.result is not Result.OK
            ):
                continue
            times[partition][event.offset] = int(event.value.rpartition("@")[2])
            known_at.setdefault((partition, event.offset), at)
        for answer in self._answers:
            there = times[answer.partition]
            first = min((o for o, t in there.items() if t >= answer.time_ms), default=None)
            if answer.offset is not None:
                assert answer.offset == first, f"{answer}: it is {first}"
            elif first is not None and answer.since > recovered:
                assert known_at[answer.partition, first] >= answer.since, f"{answer}: it is {first}"
