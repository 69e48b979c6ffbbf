"""Interface of a client, common to many libraries.

A client keeps its producers and its consumer open between calls, as programs do, so that its state
(metadata, producer ids, connections) must still work after a restart of the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

CREATE, APPEND = "create", "append"
"""Timestamp types."""

CONSUME_TIMEOUT_S = 30
PATIENCE_S = 20
MAX_REQUEST_BYTES = 8 << 20
"""More than any broker here accepts, so that the broker rejects a large request and not the
client."""
BATCH_BYTES = 1 << 20
LINGER_MS = 100
"""Long enough for the records of one call to share a batch."""


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Timestamp in ms; None leaves it to the producer, or means that the client does not return
    it."""
    partition: int = 0
    offset: int = -1
    timestamp_type: str | None = None
    """CREATE, APPEND, or None if the client does not return it."""


class Refused(Exception):
    """Raised if the broker refuses a request; `code` is the protocol's error code."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"error {code}: {text}")
        self.code = code


class Client(Protocol):
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
        patience_s: int = PATIENCE_S,
    ) -> list[int]:
        """Produce the records as one batch per partition; return their offsets. Raises Refused.

        A client that keeps retrying on a missing topic gives up after `patience_s`.
        """

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        """Return `count` records of assigned partitions, each from its start offset.

        Raises Refused, or TimeoutError if there are fewer records.
        """

    def offsets(self, topic: str, partition: int, times: Sequence[int]) -> list[int]:
        """Return the offset for each time, which may be EARLIEST or LATEST; -1 if all records are
        older."""

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None: ...

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int: ...

    def grow(self, topic: str, partitions: int) -> None: ...

    def config(self, topic: str) -> dict[str, str | None]: ...

    def delete(self, topic: str) -> None: ...

    def close(self) -> None: ...
