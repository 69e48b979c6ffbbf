"""Files and directories that are removed some time after they were given up.

They bear another name by then, so that the next start removes what a crash left.  Kafka: the
delayed deletion of LogManager and UnifiedLog.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kserver.world.disk import Disk

log = logging.getLogger(__name__)


class Removals:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[float, str]] = []
        """When, by the loop's time, to remove which."""
        self._added = asyncio.Event()

    def add(self, delay_ms: int, path: str) -> None:
        self._due.append((asyncio.get_running_loop().time() + delay_ms / 1000, path))
        self._added.set()

    def moved(self, old: str, new: str) -> None:
        """A directory, with what is to be removed in it."""
        self._due = [
            (deadline, new + path.removeprefix(old) if path.startswith(f"{old}/") else path)
            for deadline, path in self._due
        ]

    async def remove_all(self, directory: str) -> None:
        """What is in there, though it is not due yet."""
        within = [path for _, path in self._due if path.startswith(f"{directory}/")]
        self._due = [entry for entry in self._due if entry[1] not in within]
        await self._disk.offload(partial(self._remove, within))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._added.clear()
            now = loop.time()
            due = [path for deadline, path in self._due if deadline <= now]
            self._due = [entry for entry in self._due if entry[0] > now]
            if due:
                await self._disk.offload(partial(self._remove, due))
            next_deadline = min((deadline for deadline, _ in self._due), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_deadline):
                    await self._added.wait()

    def _remove(self, paths: Sequence[str]) -> None:
        """In a thread.  What cannot be removed now is removed by the next start."""
        for path in paths:
            try:
                if self._disk.is_directory(path):
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove(path)
            except FileNotFoundError:
                pass  # its directory was deleted meanwhile
            except OSError as error:
                log.warning("removing %s failed: %s", path, error)
