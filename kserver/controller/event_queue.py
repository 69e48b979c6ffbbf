"""The controller's event queue: requests and events, handled one after the other.

(Kafka: ControllerEventManager, ControllerState.)
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kserver.cluster_config.znode_store import not_controller, outcome
from kserver.errors import ErrorCode, KafkaError
from kserver.metrics.meters import Histogram

T = TypeVar("T")

MAX_WAITING_OPERATIONS = 1000


class ControllerState(enum.IntEnum):
    """Current activity of the controller, with Kafka's numbers; missing ones do not occur here."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    UPDATE_FEATURES = 17


Put: TypeAlias = Callable[[ControllerState, Callable[[], Awaitable[None]]], None]
"""Queues an event, which is dropped if this broker is not the controller by then."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A queued function, and the future of its result."""

    state: ControllerState
    run: Callable[[], Awaitable[Any]]
    response: asyncio.Future[Any]
    enqueued_s: float


class EventQueue:
    def __init__(self, times_ms: Histogram) -> None:
        self._times_ms = times_ms
        """Histogram of the time operations waited, in ms."""
        # `in_turn` limits requests to MAX_WAITING_OPERATIONS.  Events need no limit: they are few,
        # as a watch fires once.
        self._operations: asyncio.Queue[Operation] = asyncio.Queue()
        self._size = 0
        self._stopped = False
        self.state = ControllerState.IDLE

    def put(self, state: ControllerState, run: Callable[[], Awaitable[object]]) -> None:
        """Queue an event whose result is not awaited."""
        loop = asyncio.get_running_loop()
        self._operations.put_nowait(Operation(state, run, loop.create_future(), loop.time()))

    async def in_turn(
        self,
        state: ControllerState,
        items: Sequence[object],
        run: Callable[[], Awaitable[list[T | KafkaError]]],
    ) -> list[T | KafkaError]:
        """Run `run` in its turn; return its results, one for each item."""
        if self._stopped:
            return [not_controller() for _ in items]
        if self._size >= MAX_WAITING_OPERATIONS:
            text = f"{MAX_WAITING_OPERATIONS} operations are waiting for the controller."
            return [KafkaError(ErrorCode.request_timed_out, text) for _ in items]
        loop = asyncio.get_running_loop()
        response: asyncio.Future[list[T | KafkaError]] = loop.create_future()
        self._operations.put_nowait(Operation(state, run, response, loop.time()))
        self._size += 1
        try:
            return await response
        finally:
            self._size -= 1

    async def one_in_turn(self, state: ControllerState, run: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `run` in its turn.  Raises the KafkaError that `outcome` returns if
        `run` failed, or one if the queue is full or stopped."""

        async def run_once() -> list[T | KafkaError]:
            return [await outcome(run())]

        (result,) = await self.in_turn(state, [run], run_once)
        if isinstance(result, KafkaError):
            raise result
        return result

    async def run(self) -> None:
        """Run operations until cancelled, then cancel those that wait."""
        try:
            while True:
                await self._serve(await self._operations.get())
        finally:
            self._stopped = True
            while not self._operations.empty():
                self._operations.get_nowait().response.cancel()

    @property
    def waiting(self) -> int:
        return self._operations.qsize()

    async def _serve(self, operation: Operation) -> None:
        waited_s = asyncio.get_running_loop().time() - operation.enqueued_s
        self._times_ms.add(1000 * waited_s)
        if operation.response.done():
            return  # the request was cancelled
        self.state = operation.state
        try:
            result = await operation.run()
            if not operation.response.done():
                operation.response.set_result(result)
        finally:
            self.state = ControllerState.IDLE
            operation.response.cancel()
