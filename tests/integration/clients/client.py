"""What the promises ask of a client: one small interface before many libraries.

A client keeps its producers and its consumer open between calls, as programs do, so that what it
has learned (metadata, producer ids, connections) must still serve it after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

CREATE, APPEND = "create", "append"
"""Timestamp types."""

CONSUME_TIMEOUT_S = 30
PATIENCE_S = 20
MAX_REQUEST_BYTES = 8 << 20
"""More than any broker here takes: the broker is to refuse, not the client."""
BATCH_BYTES = 1 << 20
LINGER_MS = 100
"""Long enough for the records of one call to share a batch."""


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Milliseconds; None leaves it to the producer, or says that the client does not tell it."""
    partition: int = 0
    offset: int = -1
    timestamp_type: str | None = None
    """CREATE, APPEND, or None where the client does not tell."""


class Refused(Exception):
    """The broker said no: `code` is the protocol's error code."""

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
        """Offsets of the records, which go out as one batch a partition; raises Refused.

        A client that looks for a missing topic again and again gives up after `patience_s`.
        """

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        """`count` records of assigned partitions, from an offset each; raises Refused, or
        TimeoutError when there are fewer."""

    def offsets(self, topic: str, partition: int, times: Sequence[int]) -> list[int]:
        """The offset for each time, EARLIEST or LATEST; -1 where no record has reached it."""

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None: ...

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int: ...

    def grow(self, topic: str, partitions: int) -> None: ...

    def config(self, topic: str) -> dict[str, str | None]: ...

    def delete(self, topic: str) -> None: ...

    def close(self) -> None: ...
