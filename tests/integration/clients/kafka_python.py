"""kafka-python: the protocol in pure Python."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

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

# While a broker restarts, every attempt to connect would log a line.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

REQUEST_TIMED_OUT = 7


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(getattr(error, "errno", REQUEST_TIMED_OUT), str(error)) from error


class KafkaPythonClient:
    def __init__(self, address: str) -> None:
        self._address = address
        self._producers: dict[tuple[str, bool, int], KafkaProducer] = {}

    @functools.cached_property
    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self._address)

    @functools.cached_property
    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self._address,
            auto_offset_reset="none",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
            reconnect_backoff_max_ms=200,
        )

    def _producer(self, codec: str, idempotent: bool, patience_s: int) -> KafkaProducer:
        key = (codec, idempotent, patience_s)
        if key not in self._producers:
            self._producers[key] = KafkaProducer(
                bootstrap_servers=self._address,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=LINGER_MS,
                batch_size=BATCH_BYTES,
                max_request_size=MAX_REQUEST_BYTES,
                max_block_ms=1000 * patience_s,
                reconnect_backoff_max_ms=200,
            )
        return self._producers[key]

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
        with refusals():
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush()
            return [future.get(CONSUME_TIMEOUT_S).offset for future in futures]

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        consumer = self._consumer
        consumer.assign([TopicPartition(topic, p) for p in starts])
        for partition, offset in starts.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        records: list[Record] = []
        deadline = time.monotonic() + CONSUME_TIMEOUT_S
        while len(records) < count:
            with refusals():
                polled = consumer.poll(timeout_ms=500, max_records=count - len(records))
            for found in polled.values():
                records += [
                    Record(
                        one.value,
                        one.key,
                        tuple(one.headers),
                        one.timestamp,
                        one.partition,
                        one.offset,
                        (CREATE, APPEND)[one.timestamp_type],
                    )
                    for one in found
                ]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(records)} of {count} records")
        return records

    def offsets(self, topic: str, partition: int, times: Sequence[int]) -> list[int]:
        where = TopicPartition(topic, partition)
        offsets = []
        with refusals():
            for time_ms in times:
                if time_ms == EARLIEST:
                    offsets.append(self._consumer.beginning_offsets([where])[where])
                elif time_ms == LATEST:
                    offsets.append(self._consumer.end_offsets([where])[where])
                else:
                    found = self._consumer.offsets_for_times({where: time_ms})[where]
                    offsets.append(-1 if found is None else found.offset)
        return offsets

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        options = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config)}
        with refusals():
            self._admin.create_topics({topic: options})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions(self, topic: str) -> int:
        (described,) = self._admin.describe_topics([topic])
        return len(described["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        with refusals():
            self._admin.create_partitions({topic: partitions})

    def config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with refusals():
            described = self._admin.describe_configs([resource], config_filter="all")
        return {key: entry["value"] for key, entry in described["topic"][topic].items()}

    def delete(self, topic: str) -> None:
        with refusals():
            self._admin.delete_topics([topic])

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close(timeout=5)
        for opened in {"_consumer", "_admin"} & vars(self).keys():
            getattr(self, opened).close()
