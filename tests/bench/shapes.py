"""Shapes of the messages of a row: values of 200 bytes, with or without keys and headers."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

MESSAGE_BYTES = 200
COUNT = 1000
"""Distinct messages of a shape, sent in a cycle."""
BATCH_BYTES = 1_000_000
LINGER_MS = 5
"""librdkafka's defaults, used for every client; Java's batches of 16 KB do not suit Python
clients."""


class Message(NamedTuple):
    value: bytes
    key: bytes | None
    headers: list[tuple[str, bytes]]


class Shape(NamedTuple):
    about: str
    keyed: bool = False
    headers: int = 0
    compression: str = "none"
    at_once: int = 0
    """Records per batch, and so per request; 0 for as many as accumulate."""
    acks: str = "all"

    @property
    def batch_bytes(self) -> int:
        """Size limit that holds exactly `at_once` records, as this project's client counts
        bytes."""
        return 61 + self.at_once * (12 + MESSAGE_BYTES) if self.at_once else BATCH_BYTES

    def messages(self) -> list[Message]:
        """Return the messages, the same each time. Values consist of 500 words, so lz4 halves
        them."""
        random = Random(1)
        words = [random.randbytes(random.randint(1, 5)).hex() for _ in range(500)]
        return [
            Message(
                " ".join(random.choices(words, k=MESSAGE_BYTES // 2))[:MESSAGE_BYTES].encode(),
                b"key-%05d" % number if self.keyed else None,
                [(f"header-{i}", b"content-%d" % i) for i in range(self.headers)],
            )
            for number in range(COUNT)
        ]


SHAPES = {
    "plain": Shape("messages of 200 bytes"),
    "keyed": Shape("the same with keys of 9 bytes, 1000 different ones", keyed=True),
    "headers": Shape("the same with two headers", headers=2),
    "lz4": Shape("the same, compressed with lz4", compression="lz4"),
    "paper-1": Shape("the same, one a request, not acknowledged", at_once=1, acks="0"),
    "paper-50": Shape("the same in batches of 50, not acknowledged", at_once=50, acks="0"),
}
