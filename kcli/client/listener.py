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


class RebalanceListener:
    """Derive from it and override what is wanted."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are this consumer's from now on, besides those it has; maybe none are new."""
        return None

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These will be another's: the last moment to commit offsets of them."""
        return None

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These may be another's already: offsets of them can be committed no more."""
        return self.on_revoked(partitions)
