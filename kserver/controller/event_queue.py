"""What the controller has to do, one after the other: what is asked, and what happens.

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
    """What is done now, by Kafka's numbers; those that are left out never are here."""

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
"""Has something done in its turn, if this is the controller then."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Something to do in its turn, and who waits for it."""

    state: ControllerState
    run: Callable[[], Awaitable[Any]]
    answer: asyncio.Future[Any]
    asked_s: float


class EventQueue:
    def __init__(self, times_ms: Histogram) -> None:
        self._times_ms = times_ms
        """How long they wait."""
        # What is asked `in_turn` keeps within MAX_WAITING_OPERATIONS; what happens is a few at a
        # time, for a watch is called once.
        self._operations: asyncio.Queue[Operation] = asyncio.Queue()
        self._asked = 0
        self._stopped = False
        self.state = ControllerState.IDLE

    def put(self, state: ControllerState, run: Callable[[], Awaitable[object]]) -> None:
        """An event that nobody waits for."""
        loop = asyncio.get_running_loop()
        self._operations.put_nowait(Operation(state, run, loop.create_future(), loop.time()))

    async def in_turn(
        self,
        state: ControllerState,
        items: Sequence[object],
        run: Callable[[], Awaitable[list[T | KafkaError]]],
    ) -> list[T | KafkaError]:
        """What `run` gives in its turn, one result for each of the items."""
        if self._stopped:
            return [not_controller() for _ in items]
        if self._asked >= MAX_WAITING_OPERATIONS:
            text = f"{MAX_WAITING_OPERATIONS} operations are waiting for the controller."
            return [KafkaError(ErrorCode.request_timed_out, text) for _ in items]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[T | KafkaError]] = loop.create_future()
        self._operations.put_nowait(Operation(state, run, answer, loop.time()))
        self._asked += 1
        try:
            return await answer
        finally:
            self._asked -= 1

    async def one_in_turn(self, state: ControllerState, run: Callable[[], Awaitable[T]]) -> T:
        """What `run` gives in its turn.  Raises KafkaError: why `run` failed, as `outcome` says, or
        why it had no turn."""

        async def run_once() -> list[T | KafkaError]:
            return [await outcome(run())]

        (result,) = await self.in_turn(state, [run], run_once)
        if isinstance(result, KafkaError):
            raise result
        return result

    async def run(self) -> None:
        """Until it is cancelled; whoever waits then is cancelled too."""
        try:
            while True:
                await self._serve(await self._operations.get())
        finally:
            self._stopped = True
            while not self._operations.empty():
                self._operations.get_nowait().answer.cancel()

    @property
    def waiting(self) -> int:
        return self._operations.qsize()

    async def _serve(self, operation: Operation) -> None:
        waited_s = asyncio.get_running_loop().time() - operation.asked_s
        self._times_ms.add(1000 * waited_s)
        if operation.answer.done():
            return  # who asked has gone
        self.state = operation.state
        try:
            result = await operation.run()
            if not operation.answer.done():
                operation.answer.set_result(result)
        finally:
            self.state = ControllerState.IDLE
            operation.answer.cancel()
