"""A coordinator's runtime on an unchanged broker, with a shard that only counts.

here = Host(loop)
await here.start()
assert await here.ask(Add("a")) == 1
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pytest

from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.coordinator.shard import NOTHING, Now, Outcome, Ticket
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import ClusterMetadata
from kserver.model import NO_PRODUCER_ID, ProducerId
from tests.simulation.test_broker import create
from tests.support.loop import SimLoop, host
from tests.support.simulated import SimulatedBroker

TOPIC = "counts"
KEYS = ["a", "b", "c"]
SETTINGS: dict[str, object] = {"log.index.size.max.bytes": 4096}
FLUSHED: dict[str, object] = {"log.flush.before.ack": "true"}
TIMEOUT_MS = 5000


@dataclass(frozen=True)
class Add:
    key: str
    number: int = 1
    note: str = ""
    """Text that makes its record large."""


@dataclass(frozen=True)
class Read:
    key: str


@dataclass(frozen=True)
class Wait:
    """A request that is answered `for_ms` after the last request that waits for this key."""

    key: str
    for_ms: int


@dataclass(frozen=True)
class Forget:
    """Answer all requests that wait for this key, at once."""

    key: str


@dataclass(frozen=True)
class Again:
    """A request that is answered once it is counted, and has the effect of one more addition."""

    key: str
    times: int


@dataclass(frozen=True)
class Refused:
    """A request that gets a final error: raised, or in an outcome."""

    key: str
    now: bool = True


@dataclass(frozen=True)
class Added:
    key: str
    total: int
    note: str = ""


class Counter:
    """A shard that adds up, by key."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.images: list[ClusterMetadata] = []
        self.times_loaded = 0
        self.expired_at_ms: list[int] = []
        self.next_deadline_ms: int | None = None
        self._waiting: list[Ticket] = []

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Outcome:
        total = self.totals.get(request.key, 0)
        match request:
            case Add(number=0):
                raise KafkaError(ErrorCode.invalid_request)
            case Refused(now=True):
                raise KafkaError(ErrorCode.producer_fenced)
            case Refused():
                return Outcome(responses=[(ticket, KafkaError(ErrorCode.invalid_txn_state))])
            case Add():
                total += request.number
                added = Added(request.key, total, request.note)
                return Outcome([added], [(ticket, total)], only_events=True)
            case Again(times=times):
                effects = [Again(request.key, times - 1)] if times > 1 else []
                return Outcome([Added(request.key, total + 1)], [(ticket, total + 1)], effects)
            case Read():
                return Outcome(responses=[(ticket, total)])
            case Forget():
                self.next_deadline_ms = None
                waited, self._waiting = self._waiting, []
                return Outcome(responses=[(ticket, "forgotten") for ticket in [*waited, ticket]])
        self._waiting.append(ticket)
        self.next_deadline_ms = now.ms + request.for_ms
        return NOTHING

    def expire(self, now: Now) -> Outcome:
        if self.next_deadline_ms is None or now.ms < self.next_deadline_ms:
            return NOTHING
        self.next_deadline_ms = None
        self.expired_at_ms.append(now.ms)
        waited, self._waiting = self._waiting, []
        return Outcome(responses=[(ticket, "waited") for ticket in waited])

    def loaded(self, now: Now) -> Outcome:
        self.times_loaded += 1
        return NOTHING

    def image_changed(self, image: ClusterMetadata, now: Now) -> Outcome:
        self.images.append(image)
        return NOTHING

    def replay(self, event: Any, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        self.totals[event.key] = event.total

    def replay_end(self, producer_id: ProducerId, committed: bool) -> None:
        pass

    def encode(self, event: Any) -> tuple[bytes, bytes | None]:
        return event.key.encode(), f"{event.total} {event.note}".encode()

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        assert value is not None
        total, _, note = value.decode().partition(" ")
        return Added(key.decode(), int(total), note)


class Host:
    """A broker with one more coordinator."""

    runtime: CoordinatorRuntime[Counter]

    def __init__(self, loop: SimLoop, settings: dict[str, object] | None = None) -> None:
        self.loop = loop
        self.broker = SimulatedBroker(loop, SETTINGS | (settings or {}))
        self.timeout_ms = TIMEOUT_MS
        self.leads = loop.create_future()
        """Whether ZooKeeper has this broker as the leader, once it responds."""
        self.leads.set_result(True)
        self.checks = 0
        self.made: list[Counter] = []
        self.kind = Counter
        self._loading: asyncio.Task[None] | None = None

    async def start(self, **topic: object) -> None:
        await self.broker.start()
        if not self.made:
            peer = await self.broker.connect()
            await create(peer, TOPIC, 1, **topic)
            peer.close()
        self.runtime = CoordinatorRuntime(
            TOPIC,
            self._make,
            loop=self.loop,
            clock=self.broker.clock,
            metadata=self.parts.metadata,
            replicas=self.parts.replicas,
            knows_roles=lambda: True,
            is_current=self._is_current,
            purgatory=self.parts.purgatory,
            timeout_ms=lambda: self.timeout_ms,
            perform=lambda effect: self.runtime.ask(effect.key, effect),
        )
        self.runtime.apply(self.parts.metadata.current)
        with host(self.broker.name):
            self._loading = self.loop.create_task(self.runtime.run())

    @property
    def parts(self) -> Any:
        assert self.broker.broker is not None
        return self.broker.broker._parts

    @property
    def partition(self) -> Any:
        return self.parts.replicas.get(TOPIC, 0)

    def _is_current(self, _: Any) -> asyncio.Future[bool]:
        self.checks += 1
        return self.leads

    def _make(self, _: int) -> Counter:
        self.made.append(self.kind())
        return self.made[-1]

    def code(self, request: Any) -> ErrorCode | None:
        """Return the error with which a request is refused at once."""
        try:
            self.runtime.ask(request.key, request)
        except KafkaError as error:
            return error.code
        return None

    async def ask(self, request: Any) -> Any:
        """Retry as a client does, until there is a response."""
        while True:
            with contextlib.suppress(KafkaError):
                return await self.runtime.ask(request.key, request)
            await asyncio.sleep(0.01)

    async def end(self, how: str) -> None:
        assert self._loading is not None
        if how == "stop":
            self.runtime.close()
        self._loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._loading
        match how:
            case "stop":
                await self.broker.stop()
            case "kill":
                await self.broker.kill()
            case "power cut":
                await self.broker.cut_power(self.loop.random.choice([0.0, None]))


async def refusal(future: asyncio.Future[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await future
    return refused.value.code
