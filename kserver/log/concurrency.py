"""Run coroutines concurrently, and raise the first error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def run_all(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all concurrently, and raise the first of their errors."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], most: int) -> None:
    """Run `work` on every item, on `most` at a time."""
    iterator = iter(items)

    async def worker() -> None:
        for item in iterator:
            await work(item)

    await run_all([worker() for _ in range(most)])


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
