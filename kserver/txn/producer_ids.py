"""Producer ids, unique in the cluster: taken from a znode in blocks of a thousand.

A block is written with the version that was read, so no two brokers get the same one.  What is
left of a block when the broker stops is never used.  (Kafka: ZkProducerIdManager.)
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from kserver import znodes
from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, ProducerId
from kserver.txn.requests import WANTS_ID, EndTransaction, InitProducerId
from kserver.world.session import until_connected
from kserver.world.zookeeper import BadVersion, NodeExists, NoNode, ZooKeeper

BLOCK_SIZE = 1000
LAST_PRODUCER_ID: ProducerId = (1 << 63) - 1


class ProducerIds:
    def __init__(self, zookeeper: ZooKeeper, broker_id: BrokerId) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._next: ProducerId = 0
        self._end: ProducerId = 0
        self._taking: asyncio.Future[None] | None = None

    async def next(self) -> ProducerId:
        """An id that nobody had before; waits for ZooKeeper once in a thousand times.

        SessionExpired while a new session is coming; KafkaError when no ids are left.
        """
        while self._next == self._end:
            if self._taking is None:
                await self._take_block()
            else:
                await asyncio.wait((self._taking,))
        self._next += 1
        return self._next - 1

    async def _take_block(self) -> None:
        """One at a time; when it fails, the next who waits tries."""
        self._taking = asyncio.get_running_loop().create_future()
        try:
            block = await until_connected(self._write_block)
            self._next, self._end = block.first, block.last + 1
        finally:
            self._taking.set_result(None)
            self._taking = None

    async def _write_block(self) -> znodes.ProducerIdBlock:
        path = znodes.PRODUCER_ID_BLOCK
        while True:
            try:
                last, stat = await self._zookeeper.get(path)
            except NoNode:
                last, stat = b"", None
            block = self._block_after(last)
            data = znodes.encode_producer_id_block(block)
            try:
                if stat is None:
                    await self._zookeeper.create(path, data)
                else:
                    await self._zookeeper.set(path, data, stat.version)
                return block
            except (NodeExists, BadVersion):
                pass  # another broker was quicker

    def _block_after(self, last: bytes) -> znodes.ProducerIdBlock:
        """The next one; `last` is empty where Kafka made the znode and nobody asked yet."""
        first = znodes.decode_producer_id_block(last).last + 1 if last else 0
        if first > LAST_PRODUCER_ID - BLOCK_SIZE:
            raise KafkaError(ErrorCode.unknown_server_error, "Have exhausted all producerIds.")
        return znodes.ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)


async def ask_with_id(
    transactions: CoordinatorRuntime[Any],
    producer_ids: ProducerIds,
    request: InitProducerId | EndTransaction,
) -> Any:
    """Ask the coordinator, and again with a new producer id where it wants one."""
    answer = await transactions.ask(request.transactional_id, request)
    if answer is WANTS_ID:
        request = replace(request, new_id=await producer_ids.next())
        answer = await transactions.ask(request.transactional_id, request)
    return answer
