"""A command's work against a cluster: the event loop, the time limit, and how refusals end.

Commands that print failures in Kafka's words catch `EXPECTED`, print `reason(error)` and return
`status_of(error)`; what a command lets pass, `kcli.main` reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from kcli import error_texts
from kcli.client.errors import ClientError, ClusterUnreachable, TimedOut
from kcli.options import Refused, client_properties
from kcli.output import complain, transient
from kcli.statuses import FAILED, TIMED_OUT
from kserver.errors import ConfigError, KafkaError, ProtocolError

if TYPE_CHECKING:
    from kcli.client.config import AdminConfig
    from kcli.client.settings import Settings

T = TypeVar("T")
C = TypeVar("C", bound="Settings")

EXPECTED = (Refused, ConfigError, KafkaError, ProtocolError, ClientError)
"""What may end a command without its being a bug."""

CLUSTER = "the cluster"
"""What a command awaits that asks and is answered."""
COLLECT_EVERY = 100_000
NOTICE_AFTER_S, NOTICE_EVERY_S = 1.5, 0.5


def run(work: Coroutine[Any, Any, T], timeout_s: float | None, awaited: str = "") -> T:
    """Do the work to its end.

    TimeoutError where --timeout ends it first.  SIGTERM ends it as Ctrl-C does: what is open is
    closed first, then SystemExit carries the status that a shell knows for it.  `awaited` is what
    a person at the terminal is told to be waiting for, if it takes long.
    """
    terminated = False

    async def bounded() -> T:
        task = asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        # Records live for a moment, many thousands at a time, and no cycle holds them: looking for
        # cycles at every 700 new objects costs a fifth of what a consumer does.
        gc.set_threshold(COLLECT_EVERY)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        waiting = _Waiting(awaited) if awaited else contextlib.nullcontext()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                with waiting:
                    return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"not done within {timeout_s:g} s") from error

    try:
        return asyncio.run(bounded())
    except asyncio.CancelledError:
        assert terminated
        raise SystemExit(128 + signal.SIGTERM) from None


class _Waiting:
    """A line on the terminal of standard error, from the moment that the wait is long."""

    def __init__(self, awaited: str) -> None:
        self.awaited = awaited
        self.loop = asyncio.get_running_loop()
        self.started = self.loop.time()
        self.timer = self.loop.call_later(NOTICE_AFTER_S, self._tell)

    def _tell(self) -> None:
        transient(f"waiting for {self.awaited}, {self.loop.time() - self.started:.0f} s")
        self.timer = self.loop.call_later(NOTICE_EVERY_S, self._tell)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *ended: object) -> None:
        self.timer.cancel()
        transient("")


def reason(error: Exception) -> str:
    """Why, for a person: the broker's own text without the code's name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return error_texts.text(error) if isinstance(error, KafkaError) else str(error)


def status_of(error: Exception) -> int:
    return TIMED_OUT if isinstance(error, ClusterUnreachable | TimedOut) else FAILED


def granted(result: T | KafkaError) -> T:
    """One item's result, or its refusal raised."""
    if isinstance(result, KafkaError):
        raise result
    return result


def raise_first(results: Mapping[Any, object]) -> None:
    """Raise the first refusal there is."""
    for result in results.values():
        granted(result)


def warned(config: C) -> C:
    """The same, after its unknown keys and older names were told on standard error."""
    for warning in config.warnings:
        complain(warning)
    return config


def admin_config(given: SimpleNamespace, **defaults: str) -> AdminConfig:
    """From --command-config and --bootstrap-server."""
    from kcli.client.config import AdminConfig

    return warned(AdminConfig.of(client_properties(given, **defaults)))
