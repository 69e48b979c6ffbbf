"""confluent-kafka: librdkafka in Python."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from kserver.wire.special_offsets import EARLIEST, LATEST
from tests.integration.clients.client import (
    APPEND,
    BATCH_BYTES,
    CONSUME_TIMEOUT_S,
    CREATE,
    LINGER_MS,
    MAX_REQUEST_BYTES,
    PATIENCE_S,
    Record,
    Refused,
)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise Refused(error.args[0].code(), str(error)) from error


class ConfluentClient:
    def __init__(self, address: str) -> None:
        self._servers = {
            "bootstrap.servers": address,
            "log_level": 0,  # while a broker restarts, every attempt to connect would log a line
            "reconnect.backoff.max.ms": 200,
        }
        self._producer = functools.cache(self._open_producer)
        self._consumer = functools.cache(self._open_consumer)
        self._admin = AdminClient(self._servers)

    def _open_producer(self, codec: str, idempotent: bool, patience_s: int) -> Producer:
        return Producer(
            self._servers
            | {
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": LINGER_MS,
                "batch.size": BATCH_BYTES,
                "message.max.bytes": MAX_REQUEST_BYTES,
                "topic.metadata.propagation.max.ms": 1000 * patience_s,
                "topic.metadata.refresh.fast.interval.ms": 20,
            }
        )

    def _open_consumer(self) -> Consumer:
        return Consumer(
            self._servers
            | {
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            }
        )

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
        patience_s: int = PATIENCE_S,
    ) -> list[int]:
        producer = self._producer(codec, idempotent, patience_s)
        reports: dict[int, tuple[Any, Message]] = {}

        def report(index: int) -> Callable[[Any, Message], None]:
            return lambda error, message: reports.setdefault(index, (error, message)) and None

        for index, record in enumerate(records):
            timed = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                headers=list(record.headers),
                on_delivery=report(index),
                **timed,
            )
        assert producer.flush(CONSUME_TIMEOUT_S) == 0
        offsets = []
        for index in range(len(records)):
            error, message = reports[index]
            if error is not None:
                raise Refused(_code(error), str(error))
            offsets.append(message.offset())
        return offsets

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in starts.items()])
        records: list[Record] = []
        deadline = time.monotonic() + CONSUME_TIMEOUT_S
        while len(records) < count:
            for message in consumer.consume(count - len(records), timeout=0.5):
                if message.error():
                    raise Refused(_code(message.error()), str(message.error()))
                records.append(_record(message))
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(records)} of {count} records")
        consumer.unassign()
        return records

    def offsets(self, topic: str, partition: int, times: Sequence[int]) -> list[int]:
        specs = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest()}
        found = []
        for time_ms in times:
            spec = specs.get(time_ms) or OffsetSpec.for_timestamp(time_ms)
            asked = self._admin.list_offsets({TopicPartition(topic, partition): spec})
            with refusals():
                found += [future.result().offset for future in asked.values()]
        return found

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self._wait(self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config))]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=10).topics)

    def partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(timeout=10).topics[topic].partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self._wait(self._admin.create_partitions([NewPartitions(topic, partitions)]))

    def config(self, topic: str) -> dict[str, str | None]:
        asked = self._admin.describe_configs([ConfigResource("topic", topic)])
        with refusals():
            (entries,) = [future.result() for future in asked.values()]
        return {entry.name: entry.value for entry in entries.values()}

    def delete(self, topic: str) -> None:
        self._wait(self._admin.delete_topics([topic]))

    def _wait(self, futures: Mapping[Any, Any]) -> None:
        with refusals():
            for future in futures.values():
                future.result()

    def close(self) -> None:
        if self._consumer.cache_info().currsize:
            self._consumer().close()


FOUND_OUT_LOCALLY = {-140: 1, -188: 3, -190: 3}
"""librdkafka's own codes for an offset out of range, an unknown topic and an unknown partition."""


def _code(error: Any) -> int:
    code: int = error.code()
    return FOUND_OUT_LOCALLY.get(code, code)


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    types = {TIMESTAMP_NOT_AVAILABLE: None, TIMESTAMP_CREATE_TIME: CREATE}
    return Record(
        message.value(),
        message.key(),
        tuple((name, value) for name, value in message.headers() or ()),
        timestamp,
        message.partition(),
        message.offset(),
        types.get(kind, APPEND),
    )
