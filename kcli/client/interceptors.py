"""Interceptors: hooks that see, and may change, every record that is sent or read (KIP-42).

    class Stamp(ProducerInterceptor):
        def on_send(self, record):
            return record._replace(headers=[*record.headers, ("host", b"a7")])

    Producer(config, interceptors=[Stamp()])

They run in order, each on the result of the one before. An interceptor that raises is logged and
skipped: it never stops a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kcli.client.producer.partition_queue import RecordMetadata
from kserver.wire.batch import Headers

if TYPE_CHECKING:
    from kcli.client.consumer.consumer import ConsumerRecord

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record before serialization; key and value are the serializers' input."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class ProducerInterceptor(Protocol):
    """Derive from it and override the methods needed."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record, perhaps changed, before serialization and partitioning."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Note that the record was delivered or has failed. After a failure only the topic is
        certain; the partition is -1 if none was chosen. It runs in the sender's loop, so it has to
        be quick.
        """


class ConsumerInterceptor(Protocol):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records that `poll` is about to return; positions are past all of them."""
        return records


def _call_interceptor(step: Callable[..., T], *values: object, otherwise: T) -> T:
    try:
        return step(*values)
    except Exception:
        _logger.exception("an interceptor failed")
        return otherwise


class ProducerInterceptors:
    """A producer's interceptors, combined into one."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = interceptors

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            record = _call_interceptor(interceptor.on_send, record, otherwise=record)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for interceptor in self._interceptors:
            _call_interceptor(interceptor.on_acknowledgement, metadata, error, otherwise=None)

    @contextmanager
    def report_errors(self, record: ProducerRecord) -> Iterator[None]:
        """Report an exception raised in the block as the record's outcome."""
        try:
            yield
        except Exception as error:
            self.on_acknowledgement(unsent_metadata(record), error)
            raise


def unsent_metadata(record: ProducerRecord) -> RecordMetadata:
    partition = -1 if record.partition is None else record.partition
    return RecordMetadata(record.topic, partition, -1, record.timestamp or -1)


def intercept_records(
    records: list[ConsumerRecord], interceptors: Sequence[ConsumerInterceptor]
) -> list[ConsumerRecord]:
    for interceptor in interceptors:
        records = _call_interceptor(interceptor.on_consume, records, otherwise=records)
    return records
