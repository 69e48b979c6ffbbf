"""Round trips: sends and reads one record after the other, and measures the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kcli.command.command_runner import raise_first
from kcli.command.options import Refused
from kcli.perf.payloads import letters
from kcli.perf.tally import Sum, Tally
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
    from kcli.client.consumer.consumer import Consumer, ConsumerRecord
    from kserver.wire.batch import Headers

POLL_TIMEOUT_MS = 60_000
RECORDS_PER_REPORT = 1000
PARTITIONS = REPLICATION_FACTOR = 1


@dataclass(frozen=True, slots=True)
class Trip:
    """Sizes are in bytes; a key of 0 is none, a header's value of -1 is null."""

    topic: str
    records: int
    value_bytes: int
    key_bytes: int = 0
    headers: int = 0
    header_key_bytes: int = 0
    header_value_bytes: int = 0


class RoundTrips:
    """One run; `on_created` is called if the topic did not exist, `on_trip` for every thousandth
    trip, with its number and its duration in nanoseconds.
    """

    def __init__(
        self,
        trip: Trip,
        admin: AdminConfig,
        producer: ProducerConfig,
        consumer: ConsumerConfig,
        *,
        on_created: Callable[[], object],
        on_trip: Callable[[int, int], object],
    ) -> None:
        self._trip = trip
        self._admin_config = admin
        self._producer_config = producer
        self._consumer_config = consumer
        self._on_created = on_created
        self._on_trip = on_trip
        self._tally = Tally(0.0)
        self._end_s = 0.0

    @property
    def total(self) -> Sum:
        return self._tally.sum(self._end_s)

    async def all(self) -> None:
        """Make all trips. Raises Refused if a record does not come back as it was sent."""
        from kcli.client.consumer.consumer import Consumer
        from kcli.client.producer.producer import Producer
        from kcli.client.serialization import BYTES_IN, BYTES_OUT

        loop, trip, random = asyncio.get_running_loop(), self._trip, Random(0)
        await self._create_if_missing()
        async with (
            Consumer(self._consumer_config, **BYTES_IN) as consumer,
            Producer(self._producer_config, **BYTES_OUT) as producer,
        ):
            await self._seek_to_end(consumer)
            self._tally = Tally(loop.time())
            for number in range(trip.records):
                value = letters(trip.value_bytes, random)
                key = letters(trip.key_bytes, random) or None
                headers = _headers(trip, random)
                began_s = loop.time()
                await (await producer.send(trip.topic, value, key, headers=headers))
                records = await consumer.poll(POLL_TIMEOUT_MS)
                self._end_s = loop.time()
                _check(records, value, key, headers)
                took_ns = round((self._end_s - began_s) * 1e9)
                self._tally.add(took_ns // 1000, 1, trip.value_bytes)
                if number % RECORDS_PER_REPORT == 0:
                    self._on_trip(number, took_ns)

    async def _create_if_missing(self) -> None:
        from kcli.client.admin.admin import Admin, NewTopic

        async with Admin(self._admin_config) as admin:
            if self._trip.topic in {topic.name for topic in await admin.list_topics()}:
                return
            self._on_created()
            new = NewTopic(self._trip.topic, PARTITIONS, REPLICATION_FACTOR)
            raise_first(await admin.create_topics([new]))

    async def _seek_to_end(self, consumer: Consumer) -> None:
        """Seek to the end of all partitions, and determine the positions."""
        infos = await consumer.partitions_for(self._trip.topic)
        partitions = [TopicPartition(self._trip.topic, p.partition) for p in infos]
        consumer.assign(partitions)
        await consumer.seek_to_end()
        for partition in partitions:
            await consumer.position(partition)


def _headers(trip: Trip, random: Random) -> Headers:
    return tuple(
        (
            letters(trip.header_key_bytes, random).decode(),
            None if trip.header_value_bytes < 0 else letters(trip.header_value_bytes, random),
        )
        for _ in range(trip.headers)
    )


def _check(
    records: list[ConsumerRecord], value: bytes, key: bytes | None, headers: Headers
) -> None:
    """Check that exactly the sent record came back. Raises Refused, with Kafka's text."""
    if not records:
        raise Refused(f"poll() timed out before finding a result (timeout:[{POLL_TIMEOUT_MS}ms])")
    if len(records) != 1:
        raise Refused(f"Only one result was expected during this test. We found [{len(records)}]")
    (record,) = records
    for what, read, sent in (("value", record.value, value), ("key", record.key, key)):
        if read != sent:
            raise Refused(
                f"The message {what} read [{_text(read)}] did not match the message {what} sent "
                f"[{_text(sent)}]"
            )
    if record.headers != headers:
        raise Refused("The message headers read did not match the message headers sent")


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="replace")
