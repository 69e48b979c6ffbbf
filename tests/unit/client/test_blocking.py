from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from kcli.client.blocking import Blocking
from kcli.client.consumer.listener import RebalanceListener
from kserver.model import TopicPartition

T0 = TopicPartition("t", 0)


class Client:
    """What any client of ours looks like from outside."""

    limit = 7

    def __init__(self, name: str, *, fails: bool = False) -> None:
        self.name = name
        self.fails = fails
        self.closed = False
        self.loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Client:
        if self.fails:
            raise ValueError("cannot start")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def add(self, a: int, b: int = 0) -> int:
        await asyncio.sleep(0)
        return a + b

    def where(self) -> str:
        assert asyncio.get_running_loop() is self.loop
        return threading.current_thread().name

    @contextlib.asynccontextmanager
    async def transaction(self, steps: list[str], *, swallows: bool = False) -> AsyncIterator[str]:
        steps.append(f"begin in {self.where()}")
        try:
            yield self.name
        except ValueError:
            steps.append("abort")
            if not swallows:
                raise
        else:
            steps.append(f"commit in {self.where()}")

    async def later(self, error: Exception | None = None) -> asyncio.Future[str]:
        future: asyncio.Future[str] = self.loop.create_future()
        if error is None:
            self.loop.call_soon(future.set_result, "done")
        else:
            self.loop.call_soon(future.set_exception, error)
        return future


def test_what_is_awaited_there_returns_here():
    with Blocking(Client, "c") as client:
        assert client.add(1, b=2) == 3
        assert client.name == "c"
        assert client.limit == 7


def test_everything_runs_in_the_loops_thread():
    with Blocking(Client, "c") as client:
        assert client.where() == "k-client"
        assert client.where() != threading.current_thread().name


def test_a_future_can_be_waited_for_from_here():
    with Blocking(Client, "c") as client:
        later = client.later()
        assert isinstance(later, concurrent.futures.Future)
        assert later.result(10) == "done"
        with pytest.raises(KeyError):
            client.later(KeyError("k")).result(10)


def test_work_on_the_client_itself_is_one_call():
    async def work(client: Client) -> list[int]:
        return [await client.add(n, n) for n in range(3)]

    with Blocking(Client, "c") as client:
        assert client.run(work) == [0, 2, 4]


def test_what_is_entered_there_is_entered_here():
    with Blocking(Client, "c") as client:
        there = client.where()
        steps: list[str] = []
        with client.transaction(steps) as value:
            assert value == "c"
            assert steps == [f"begin in {there}"]
        assert steps[1:] == [f"commit in {there}"]

        with pytest.raises(ValueError, match="no"), client.transaction(steps):
            raise ValueError("no")
        assert steps[-1] == "abort"
        with client.transaction(steps, swallows=True):
            raise ValueError("no")
        assert client.add(1) == 1


def test_errors_come_through_and_the_client_goes_on():
    with Blocking(Client, "c") as client:
        with pytest.raises(TypeError):
            client.add()
        with pytest.raises(AttributeError):
            client.no_such_thing()
        assert client.add(1) == 1


def test_it_is_closed_at_the_end_and_its_thread_is_gone():
    with Blocking(Client, "c") as client:
        inner = client.run(lambda c: asyncio.sleep(0, c))
        thread = client._thread
    assert inner.closed
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="outside its with statement"):
        client.add(1)


def test_a_client_that_cannot_start_leaves_no_thread():
    before = threading.active_count()
    with pytest.raises(ValueError, match="cannot start"), Blocking(Client, "c", fails=True):
        pass
    assert threading.active_count() == before


class Moving(Client):
    """Tells a listener of partitions within `poll`, and within closing."""

    listener: RebalanceListener | None = None

    def subscribe(self, topics: list[str], *, listener: RebalanceListener) -> None:
        self.listener = listener

    async def poll(self) -> int:
        await self.listener.on_assigned([T0])
        return 1

    async def __aexit__(self, *_: object) -> None:
        await self.listener.on_lost([T0])


class Noting(RebalanceListener):
    def __init__(self, client) -> None:
        self.client = client
        self.heard: list[tuple[str, str, int]] = []

    def on_assigned(self, partitions):
        self.heard.append(("+", threading.current_thread().name, self.client.add(1, 2)))

    def on_revoked(self, partitions):
        self.heard.append(("-", threading.current_thread().name, 0))


def test_a_listener_is_called_in_the_thread_that_waits_and_may_call_back():
    me = threading.current_thread().name
    with Blocking(Moving, "c") as client:
        noting = Noting(client)
        client.subscribe(["t"], listener=noting)
        assert client.poll() == 1
    assert noting.heard == [("+", me, 3), ("-", me, 0)]


def test_what_a_listener_raises_is_raised_by_the_call_that_it_belongs_to():
    class Failing(RebalanceListener):
        def on_assigned(self, partitions):
            raise ValueError("mine")

    class Later(RebalanceListener):
        async def on_assigned(self, partitions):
            raise AssertionError("is not run")

    with Blocking(Moving, "c") as client:
        client.subscribe(["t"], listener=Failing())
        with pytest.raises(ValueError, match="mine"):
            client.poll()
        client.subscribe(["t"], listener=Later())
        with pytest.raises(TypeError, match="not be a coroutine function"):
            client.poll()
