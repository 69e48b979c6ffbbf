"""RunningParts: parts that are added and removed while their owner runs; each part's `run` is a
task.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar


class Part(Protocol):
    async def run(self) -> None:
        """Run until cancelled."""


P = TypeVar("P", bound=Part)


class RunningParts(Generic[P]):
    """A part that is started before `run` is called runs from then on; one that is started after
    its end never runs. One that fails ends all.
    """

    def __init__(self) -> None:
        self._tasks: dict[P, asyncio.Task[None] | None] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def is_running(self) -> bool:
        return self._group is not None

    def start(self, part: P) -> None:
        self._tasks[part] = None if self._group is None else self._group.create_task(part.run())

    def stop(self, part: P) -> None:
        task = self._tasks.pop(part)
        if task is not None:
            task.cancel()

    def let_end(self, part: P) -> None:
        """Remove a part that was asked to end and will do so by itself, once its work is
        complete.
        """
        self._tasks.pop(part)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            for part in self._tasks:
                self._tasks[part] = self._group.create_task(part.run())
            try:
                await asyncio.Event().wait()
            finally:
                # Other tasks, which end later, may still start parts.
                self._group = None
