"""A formatter of consumed records, and its error; `formatters.py` has Kafka's formatters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kcli.client.consumer.consumer import FetchedBatch, Record


class Unprintable(Exception):
    """A deserializer cannot read a record; the text has the reason."""


class Formatter(Protocol):
    def lines(self, batch: FetchedBatch) -> bytes:
        """Format all records of a batch. Raises Unprintable."""

    def line(self, batch: FetchedBatch, record: Record) -> bytes:
        """Format one record of a batch. Raises Unprintable."""
