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
from kserver.txn.requests import WANTS_ID, EndTransaction, InitProducerId
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
        self._is_wanted = asyncio.Event()
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def next(self) -> ProducerId:
        """Return an id that was never used before.  Raises KafkaError with
        COORDINATOR_LOAD_IN_PROGRESS."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + MAX_WAIT_S
        while not self._current and not self._next:
            self._is_wanted.set()
            if loop.time() >= deadline_s:
                text = "the controller has not allocated producer ids yet"
                raise KafkaError(ErrorCode.coordinator_load_in_progress, text)
            self._waiting[given := loop.create_future()] = None
            await asyncio.wait((given,), timeout=deadline_s - loop.time())
            self._waiting.pop(given, None)
        if not self._current:
            self._current, self._next = self._next, NO_IDS
            self._least = len(self._current) // PREFETCH_SHARE
        id_, self._current = self._current[0], self._current[1:]
        if len(self._current) <= self._least and not self._next:
            self._is_wanted.set()
        return id_

    async def run(self) -> None:
        """Request blocks when needed, until cancelled."""
        said = ""
        while True:
            await self._is_wanted.wait()
            try:
                block = await self._allocate()
            except (KafkaError, OSError) as error:
                if said != str(error):
                    said = str(error)
                    log.warning("AllocateProducerIds request failed: %s", said)
                await asyncio.sleep(RETRY_S)
                continue
            said = ""
            self._is_wanted.clear()
            self._next = range(block.first, block.last + 1)
            for given in self._waiting:
                if not given.done():
                    given.set_result(None)


async def ask_with_id(
    transactions: CoordinatorRuntime[Any],
    producer_ids: ProducerIds,
    request: InitProducerId | EndTransaction,
) -> Any:
    """Ask the coordinator, and again with a new producer id if it returns WANTS_ID."""
    answer = await transactions.ask(request.transactional_id, request)
    if answer is WANTS_ID:
        request = replace(request, new_id=await producer_ids.next())
        answer = await transactions.ask(request.transactional_id, request)
    return answer
