"""RecordAppender: applies interceptors, serializers and partitioner before the accumulator.
Producers without any of them do not use it: it costs a microsecond or two per record.

    on_send  ->  serializers  ->  partitioner  ->  accumulator
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from kcli.client.class_loader import instance_of
from kcli.client.config import ProducerConfig
from kcli.client.interceptors import (
    ProducerInterceptor,
    ProducerInterceptors,
    ProducerRecord,
    unsent_metadata,
)
from kcli.client.producer.accumulator import Accumulator
from kcli.client.producer.partition_queue import OnDelivery, RecordMetadata
from kcli.client.producer.partitioner import DEFAULT, PARTITIONERS, Partitioner
from kcli.client.serialization import SERIALIZERS, Serializer, pass_through
from kserver.wire.batch import Headers


class Plugins:
    """Plug-ins of a producer, from its arguments or its configuration."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        def serializer(key: str, name: str | None) -> Serializer:
            return pass_through if name is None else instance_of(key, name, SERIALIZERS)

        self.key_serializer = key_serializer or serializer("key.serializer", config.key_serializer)
        self.value_serializer = value_serializer or serializer(
            "value.serializer", config.value_serializer
        )
        name = config.partitioner_class
        if partitioner is None and name is not None and name not in DEFAULT:
            partitioner = instance_of("partitioner.class", name, PARTITIONERS)
        self.partitioner = partitioner
        self.interceptors = [
            *(instance_of("interceptor.classes", name, {}) for name in config.interceptor_classes),
            *interceptors,
        ]

    def __bool__(self) -> bool:
        return (
            self.key_serializer is not pass_through
            or self.value_serializer is not pass_through
            or self.partitioner is not None
            or bool(self.interceptors)
        )


class RecordAppender:
    def __init__(self, accumulator: Accumulator, plugins: Plugins) -> None:
        self._accumulator = accumulator
        self._plugins = plugins
        self.interceptors = ProducerInterceptors(plugins.interceptors)

    def offer(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> bool:
        """Append a record like Accumulator.offer. Also raises errors of serializers and
        partitioners.

        After a refusal because the memory is full, interceptors see the record again next time.
        """
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)
        accumulator = self._accumulator
        if not (accumulator.knows(topic) and accumulator.has_room):
            return False
        return self.take(self.prepare(record), on_delivery)

    def prepare(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record after interceptors and serializers."""
        plugins = self._plugins
        record = self.interceptors.on_send(record)
        with self.interceptors.report_errors(record):
            _, value, key, *_ = record
            return record._replace(
                key=None if key is None else plugins.key_serializer(key),
                value=None if value is None else plugins.value_serializer(value),
            )

    def take(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> bool:
        """Append a prepared record; False as for `offer`."""
        with self.interceptors.report_errors(record):
            if not self._accumulator.knows(record.topic):
                return False
            if record.partition is None and self._plugins.partitioner is not None:
                record = record._replace(partition=self._choose(record))
            topic, value, key, partition, timestamp, headers = record
            if self._plugins.interceptors:
                on_delivery = functools.partial(self._delivered, record, on_delivery)
            return self._accumulator.offer(
                topic, value, key, partition, timestamp, headers, on_delivery
            )

    def _choose(self, record: ProducerRecord) -> int | None:
        assert self._plugins.partitioner is not None
        queues = self._accumulator.queues(record.topic)
        every = range(len(queues))
        available = [number for number in every if queues[number].leader is not None]
        return self._plugins.partitioner(record.topic, record.key, len(queues), available or every)

    def _delivered(
        self,
        record: ProducerRecord,
        on_delivery: OnDelivery | None,
        error: Exception | None,
        metadata: RecordMetadata | None,
    ) -> None:
        self.interceptors.on_acknowledgement(metadata or unsent_metadata(record), error)
        if on_delivery is not None:
            on_delivery(error, metadata)
