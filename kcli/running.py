"""A command's work against a cluster: the event loop, the time limit, and how refusals end.

Commands that print failures in Kafka's words catch `EXPECTED`, print `reason(error)` and return
`status_of(error)`; what a command lets pass, `kcli.main` reports.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from kcli import error_texts
from kcli.client.errors import ClientError, ClusterUnreachable, TimedOut
from kcli.options import Refused, client_properties
from kcli.output import complain
from kserver.errors import ConfigError, KafkaError, ProtocolError

if TYPE_CHECKING:
    from kcli.client.config import AdminConfig

T = TypeVar("T")

EXPECTED = (Refused, ConfigError, KafkaError, ProtocolError, ClientError)
"""What may end a command without its being a bug."""

FAILED, TIMED_OUT = 1, 124
COLLECT_EVERY = 100_000


def run(work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
    """Do the work to its end.

    TimeoutError where --timeout ends it first.  SIGTERM ends it as Ctrl-C does: what is open is
    closed first, then SystemExit carries the status that a shell knows for it.
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
        try:
            async with asyncio.timeout(timeout_s) as limit:
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


def admin_config(given: SimpleNamespace, **defaults: str) -> AdminConfig:
    """From --command-config and --bootstrap-server; unknown keys are named on standard error."""
    from kcli.client.config import AdminConfig

    config = AdminConfig.of(client_properties(given, **defaults))
    for warning in config.warnings:
        complain(warning)
    return config
