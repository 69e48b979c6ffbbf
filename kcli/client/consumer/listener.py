"""RebalanceListener: callbacks for assigned, revoked and lost partitions (KIP-415's
onPartitionsLost included).

    class Store(RebalanceListener):
        async def on_assigned(self, partitions):
            for partition in partitions:
                await consumer.seek(partition, await self.offset_of(partition))

It is called within `poll` and `close`: nothing is read until it returns, and it may seek, commit,
and ask for positions. The methods may be coroutines or plain functions; with `Blocking` only plain
functions, which are called in the thread that polls.
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
"""Names of these methods in other clients: Java's, kafka-python's and aiokafka's."""


class RebalanceListener:
    """Derive from it and override the methods needed."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in sorted(_METHODS_ELSEWHERE & vars(cls).keys()):
            raise TypeError(
                f"{cls.__name__}.{name} would never be called: here the methods of a listener are"
                " on_assigned, on_revoked and on_lost"
            )

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle new partitions, in addition to those assigned before; there may be none."""
        return None

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that will be another member's: the last moment to commit their
        offsets.
        """
        return None

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that may be another member's already: their offsets cannot be committed
        any more. Calls on_revoked by default.
        """
        return self.on_revoked(partitions)
