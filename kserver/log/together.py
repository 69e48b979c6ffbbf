"""Work side by side, of which the first error is the error of all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any


async def together(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all; of their errors the first is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
