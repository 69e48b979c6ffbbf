"""Producer ids, unique in the cluster, from blocks that the controller allocates.

    left of the block    a requested id
    more than a tenth    is returned at once
    a tenth or less      is returned at once, and the next block is requested if it is missing
    nothing              comes from the next block; if that does not arrive within MAX_WAIT_S,
                         COORDINATOR_LOAD_IN_PROGRESS, on which producers retry

Requests to the controller are retried until one succeeds.  (Kafka: RPCProducerIdManager.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ProducerId
from kserver.txn.requests import NEEDS_ID, EndTransaction, InitProducerId
from kserver.znodes import ProducerIdBlock

log = logging.getLogger(__name__)

PREFETCH_SHARE = 10
"""The next block is requested when no more than one id in this many is left."""
MAX_WAIT_S = 1.0
RETRY_S = 0.05

NO_IDS = range(0)


class ProducerIds:
    """`allocate` requests a block from the controller; raises KafkaError or OSError on failure."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._current = NO_IDS
        self._least = 0
        """Number of ids left at which the next block is requested."""
        self._next = NO_IDS
        self._needs_block = asyncio.Event()
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def next(self) -> ProducerId:
        """Return an id that was never used before.  Raises KafkaError with
        COORDINATOR_LOAD_IN_PROGRESS."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + MAX_WAIT_S
        while not self._current and not self._next:
            self._needs_block.set()
            if loop.time() >= deadline_s:
                text = "the controller has not allocated producer ids yet"
                raise KafkaError(ErrorCode.coordinator_load_in_progress, text)
            self._waiting[arrival := loop.create_future()] = None
            await asyncio.wait((arrival,), timeout=deadline_s - loop.time())
            self._waiting.pop(arrival, None)
        if not self._current:
            self._current, self._next = self._next, NO_IDS
            self._least = len(self._current) // PREFETCH_SHARE
        id_, self._current = self._current[0], self._current[1:]
        if len(self._current) <= self._least and not self._next:
            self._needs_block.set()
        return id_

    async def run(self) -> None:
        """Request blocks when needed, until cancelled."""
        last_error = ""
        while True:
            await self._needs_block.wait()
            try:
                block = await self._allocate()
            except (KafkaError, OSError) as error:
                if last_error != str(error):
                    last_error = str(error)
                    log.warning("AllocateProducerIds request failed: %s", last_error)
                await asyncio.sleep(RETRY_S)
                continue
            last_error = ""
            self._needs_block.clear()
            self._next = range(block.first, block.last + 1)
            for arrival in self._waiting:
                if not arrival.done():
                    arrival.set_result(None)


async def ask_with_id(
    transactions: CoordinatorRuntime[Any],
    producer_ids: ProducerIds,
    request: InitProducerId | EndTransaction,
) -> Any:
    """Ask the coordinator, and again with a new producer id if it returns NEEDS_ID."""
    response = await transactions.ask(request.transactional_id, request)
    if response is NEEDS_ID:
        request = replace(request, new_id=await producer_ids.next())
        response = await transactions.ask(request.transactional_id, request)
    return response
