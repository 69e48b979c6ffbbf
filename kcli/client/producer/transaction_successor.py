"""TransactionSuccessor: ends transactions that producers elsewhere left open for it.

    handover = await producer.hand_over_transaction()      # there, and the producer may be closed
    async with TransactionSuccessor(config) as successor:    # here, with the contents of `handover`
        await successor.commit(handover)

So one process decides on the records of many, such as the driver of a job on those of its tasks. A
producer that initializes the transactional.id before that aborts the transaction, and it cannot be
ended here any more: ProducerFenced. Ending one again in the same way, after a lost response,
changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Self

from kcli.client.cluster import Cluster
from kcli.client.config import ProducerConfig
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.producer.partition_queue import PartitionQueue, Rules
from kcli.client.producer.transaction_manager import TransactionManager
from kcli.client.producer.transactions import TransactionHandover
from kserver.model import TopicPartition

Offsets = Mapping[TopicPartition, CommittedOffset]


class TransactionSuccessor:
    """Open while the `async with` lasts.  Every call takes at most max.block.ms."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._cluster = Cluster(ProducerConfig.resolve(client))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._cluster.close()

    async def commit(
        self, handover: TransactionHandover, offsets: Offsets | None = None, group: str = ""
    ) -> None:
        """Commit the transaction, with these offsets of a group if any."""
        async with self._take_over(handover) as transaction_manager:
            if offsets:
                await transaction_manager.send_offsets(offsets, GroupMetadata(group))
            await transaction_manager.commit()

    async def abort(self, handover: TransactionHandover) -> None:
        async with self._take_over(handover) as transaction_manager:
            await transaction_manager.abort()

    @contextlib.asynccontextmanager
    async def _take_over(self, handover: TransactionHandover) -> AsyncIterator[TransactionManager]:
        config = ProducerConfig.of({**self._client, "transactional.id": handover.transactional_id})
        transaction_manager = TransactionManager(
            config, self._cluster, Rules(transactional=True), _NoBatches()
        )
        transaction_manager.take_over(handover)
        task = asyncio.create_task(transaction_manager.run())
        try:
            yield transaction_manager
        finally:
            task.cancel()
            await asyncio.wait([task])


class _NoBatches:
    """A sender without batches: all were delivered before the handover."""

    async def flush(self) -> None: ...

    async def drain(self, queues: Iterable[PartitionQueue]) -> None: ...

    def give_up_unsent(self, error: Exception) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def enqueue(self, queue: PartitionQueue) -> None: ...
