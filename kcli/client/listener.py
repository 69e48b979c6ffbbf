"""RebalanceListener: told when partitions come and go (KIP-415's onPartitionsLost included).

    class Store(RebalanceListener):
        async def on_assigned(self, partitions):
            for partition in partitions:
                await consumer.seek(partition, await self.offset_of(partition))

It is called within `poll` and `close`: nothing is read until it returns, and it may seek, commit,
and ask for positions.  A plain function does as well as a coroutine; with `Blocking` only that, and
it is called in the thread that polls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from kserver.model import TopicPartition

_METHODS_ELSEWHERE = {
    f"on{word}{what}"
    for word, ends in (
        ("Partitions", ("Assigned", "Revoked", "Lost")),
        ("_partitions_", ("assigned", "revoked", "lost")),
    )
    for what in ends
}
"""The names that other clients have: Java's, kafka-python's and aiokafka's."""


class RebalanceListener:
    """Derive from it and override what is wanted."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in sorted(_METHODS_ELSEWHERE & vars(cls).keys()):
            raise TypeError(
                f"{cls.__name__}.{name} would never be called: here the methods of a listener are"
                " on_assigned, on_revoked and on_lost"
            )

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are this consumer's from now on, besides those it has; maybe none are new."""
        return None

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These will be another's: the last moment to commit offsets of them."""
        return None

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These may be another's already: offsets of them can be committed no more."""
        return self.on_revoked(partitions)
