"""What the controller has to do, one after the other: what is asked, and what happens.

(Kafka: ControllerEventManager.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kserver.controller.store import not_controller
from kserver.errors import ErrorCode, KafkaError

T = TypeVar("T")

MAX_WAITING_OPERATIONS = 1000


@dataclass(frozen=True, slots=True)
class Operation:
    """Something to do in its turn, and who waits for it."""

    run: Callable[[], Awaitable[Any]]
    answer: asyncio.Future[Any]


class EventQueue:
    def __init__(self) -> None:
        # `in_turn` keeps it within MAX_WAITING_OPERATIONS.
        self._operations: asyncio.Queue[Operation] = asyncio.Queue()
        self._stopped = False

    def put(self, run: Callable[[], Awaitable[object]]) -> None:
        """An event that nobody waits for."""
        answer = asyncio.get_running_loop().create_future()
        self._operations.put_nowait(Operation(run, answer))

    async def in_turn(
        self, items: Sequence[object], run: Callable[[], Awaitable[list[T | KafkaError]]]
    ) -> list[T | KafkaError]:
        """What `run` gives in its turn, one result for each of the items."""
        if self._stopped:
            return [not_controller() for _ in items]
        if self._operations.qsize() >= MAX_WAITING_OPERATIONS:
            text = f"{MAX_WAITING_OPERATIONS} operations are waiting for the controller."
            return [KafkaError(ErrorCode.request_timed_out, text) for _ in items]
        answer: asyncio.Future[list[T | KafkaError]] = asyncio.get_running_loop().create_future()
        self._operations.put_nowait(Operation(run, answer))
        return await answer

    async def run(self) -> None:
        """Until it is cancelled; whoever waits then is cancelled too."""
        try:
            while True:
                await self._serve(await self._operations.get())
        finally:
            self._stopped = True
            while not self._operations.empty():
                self._operations.get_nowait().answer.cancel()

    async def _serve(self, operation: Operation) -> None:
        if operation.answer.done():
            return  # who asked has gone
        try:
            result = await operation.run()
            if not operation.answer.done():
                operation.answer.set_result(result)
        finally:
            operation.answer.cancel()
