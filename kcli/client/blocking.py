"""Blocking wrapper of the clients: an event loop runs in its own thread, and each call waits for
it.

    with Blocking(Consumer, config) as consumer:
        consumer.assign([TopicPartition("greetings", 0)])
        for record in consumer.poll(1000):
            ...

`Blocking` has all attributes of the wrapped client. Coroutines block and return their result,
futures become `concurrent.futures.Future`, and asynchronous context managers, such as a
transaction, are entered by a plain `with`. A call costs some 50 us for the two changes of thread,
so work on many records belongs into one `run`:

    def write(producer):
        async def send_all():
            for value in values:
                while not producer.try_send("greetings", value):
                    await producer.ready("greetings")
        return send_all()

    producer.run(write)

A RebalanceListener is called in the thread that waits for the call it belongs to, such as `poll`,
and may use the consumer there.

No other module of the client uses threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from kcli.client.consumer.listener import RebalanceListener
from kserver.model import TopicPartition

T = TypeVar("T")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])

Callback: TypeAlias = Callable[[], None]
_callbacks: ContextVar[queue.SimpleQueue[Callback | None]] = ContextVar("callbacks")
"""Callbacks for the thread that waits for the current call to run; None: the call has ended."""


class Blocking(Generic[C]):
    """`make(*values, **keywords)` creates the client, in the loop's thread, when `with` begins."""

    def __init__(self, make: Callable[..., C], *values: Any, **keywords: Any) -> None:
        self._make = make
        self._values = values
        self._keywords = keywords
        self._client: C | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="k-client", daemon=True)

    def __enter__(self) -> Self:
        async def enter() -> None:
            self._client = self._make(*self._values, **self._keywords)
            await self._client.__aenter__()

        self._thread.start()
        try:
            self._wait(enter())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._wait(self._require_client().__aexit__(kind, error, traceback))
        finally:
            self._stop()

    def run(self, work: Callable[[C], Awaitable[T]]) -> T:
        """Await `work(client)` in the loop's thread and return its result."""

        async def in_loop() -> T:
            return await work(self._require_client())

        return self._wait(in_loop())

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._require_client(), name)
        if not callable(attribute):
            return attribute

        def call(*values: Any, **keywords: Any) -> Any:
            arguments = [_wrap_listener(value) for value in values]
            keyword_arguments = {key: _wrap_listener(value) for key, value in keywords.items()}

            async def in_loop() -> Any:
                result = attribute(*arguments, **keyword_arguments)
                if inspect.iscoroutine(result):
                    result = await result
                return _for_threads(result) if isinstance(result, asyncio.Future) else result

            result = self._wait(in_loop())
            if isinstance(result, AbstractAsyncContextManager) and result is not self._client:
                return self._enter_in_loop(result)
            return result

        return call

    @contextlib.contextmanager
    def _enter_in_loop(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Return a manager for `with` that is entered and left in the loop's thread, such as a
        transaction.
        """
        value = self._wait(manager.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self._wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._wait(manager.__aexit__(None, None, None))

    def _require_client(self) -> C:
        if self._client is None:
            raise RuntimeError("used outside its with statement")
        return self._client

    def _wait(self, work: Awaitable[T]) -> T:
        callbacks: queue.SimpleQueue[Callback | None] = queue.SimpleQueue()

        async def run() -> T:
            _callbacks.set(callbacks)
            return await work

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        future.add_done_callback(lambda _: callbacks.put(None))
        try:
            while (callback := callbacks.get()) is not None:
                callback()
            return future.result()
        except BaseException:
            # The waiting thread was interrupted: cancel the work in the loop too.
            future.cancel()
            raise

    def _stop(self) -> None:
        self._client = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _for_threads(future: asyncio.Future[T]) -> concurrent.futures.Future[T]:
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def settle(done: asyncio.Future[T]) -> None:
        if done.cancelled():
            result.cancel()
        elif error := done.exception():
            result.set_exception(error)
        else:
            result.set_result(done.result())

    future.add_done_callback(settle)
    return result


def _wrap_listener(value: Any) -> Any:
    """Wrap a listener so that the loop can call it; return other values as they are."""
    return _ListenerProxy(value) if isinstance(value, RebalanceListener) else value


class _ListenerProxy(RebalanceListener):
    """Calls a listener in the thread that waits for the client's call, and awaits the result."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await _call_in_waiting_thread(self._listener.on_assigned, partitions)

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await _call_in_waiting_thread(self._listener.on_revoked, partitions)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await _call_in_waiting_thread(self._listener.on_lost, partitions)


async def _call_in_waiting_thread(
    listen: Callable[[Sequence[TopicPartition]], Awaitable[None] | None],
    partitions: Sequence[TopicPartition],
) -> None:
    outcome: concurrent.futures.Future[None] = concurrent.futures.Future()

    def callback() -> None:
        try:
            if inspect.iscoroutine(coroutine := listen(partitions)):
                coroutine.close()
                raise TypeError(
                    "the listener of a Blocking consumer must not be a coroutine function"
                )
        except Exception as error:  # raised by the caller's poll
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    _callbacks.get().put(callback)
    await asyncio.wrap_future(outcome)
