"""Clients on machines of their own, with simulated brokers, and the history of their
observations.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from kcli.client.errors import TimedOut
from kserver.model import TopicPartition
from tests.support.history import Event
from tests.support.loop import SimLoop, host
from tests.support.simulated import PORT, SimulatedBroker

CONSUMER = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "request.timeout.ms": "3000",
    "default.api.timeout.ms": "5000",
}
PRODUCER = {
    "batch.size": "200",
    "request.timeout.ms": "2000",
    "max.block.ms": "5000",
    "delivery.timeout.ms": "60000",
    "transaction.timeout.ms": "8000",
}


class Scene:
    """Simulated brokers, and the history of their clients' observations. In transactions, clients
    write to the partitions `outputs`.
    """

    def __init__(
        self,
        loop: SimLoop,
        brokers: Sequence[SimulatedBroker],
        outputs: Sequence[TopicPartition] = (),
    ) -> None:
        self.loop = loop
        self.brokers = brokers
        self.outputs = outputs
        self.history: list[Event] = []
        self.clients: dict[str, asyncio.Task[None]] = {}
        self.killed: dict[str, asyncio.Task[None]] = {}
        self.replaced: set[str] = set()
        """Names of the clients that end once they learn that another took over."""
        self._names = 0
        self._sent = 0

    @property
    def bootstrap(self) -> dict[str, str]:
        return {"bootstrap.servers": ",".join(f"{one.name}:{PORT}" for one in self.brokers)}

    def now_ms(self) -> int:
        return self.brokers[0].clock.now_ms()

    @property
    def random(self) -> Random:
        return self.loop.random

    @property
    def now_s(self) -> float:
        return self.loop.time()

    @property
    def consumer(self) -> dict[str, str]:
        return {**self.bootstrap, **CONSUMER}

    @property
    def producer(self) -> dict[str, str]:
        return {**self.bootstrap, **PRODUCER}

    def new_chance(self) -> Random:
        return Random(self.random.random())

    def next_number(self) -> int:
        """Return the next record's number, which increases with each record."""
        self._sent += 1
        return self._sent

    def note(self, event: Event) -> None:
        self.history.append(event)
        self.loop.trace.add(event)

    def run(self, client: Callable[[Any, str], Any], name: str) -> str:
        """Run the client on a machine of its own, and return its name."""
        self._names += 1
        name = f"{name}{self._names}"
        with host(name):
            self.clients[name] = self.loop.create_task(client(self, name))
        return name

    def cut(self, name: str) -> None:
        """Cut the client from all brokers."""
        for broker in self.brokers:
            self.loop.network.cut(name, broker.name)

    def heal(self, name: str) -> None:
        for broker in self.brokers:
            self.loop.network.heal(name, broker.name)

    def kill(self, name: str) -> None:
        """Cut the client off for ever, whatever it still does."""
        self.cut(name)
        self.killed[name] = self.clients.pop(name)
        self.killed[name].cancel()

    async def stop(self) -> None:
        for name in (*self.clients, *self.killed):
            self.heal(name)
        for task in self.clients.values():
            task.cancel()
        ended = [*self.clients.values(), *self.killed.values()]
        if ended:
            await asyncio.wait(ended)
        for task in ended:
            if not task.cancelled():
                task.result()


async def insist(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat the call until it succeeds: after a timeout the call goes on, and a repetition waits
    for it.
    """
    while True:
        with contextlib.suppress(TimedOut):
            return await call()


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]
