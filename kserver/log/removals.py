"""Delayed removal of deleted files and directories.

They are renamed before, so that after a crash the next start removes them.  Kafka: the delayed
deletion of LogManager and UnifiedLog.
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
        """Loop time at which to remove each path."""
        self._added = asyncio.Event()

    def add(self, delay_ms: int, path: str) -> None:
        self._due.append((asyncio.get_running_loop().time() + delay_ms / 1000, path))
        self._added.set()

    def moved(self, old: str, new: str) -> None:
        """Update the paths in a directory that was renamed."""
        self._due = [
            (deadline, new + path.removeprefix(old) if path.startswith(f"{old}/") else path)
            for deadline, path in self._due
        ]

    async def remove_all(self, directory: str) -> None:
        """Remove the paths in this directory now, before they are due."""
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
        """Remove the paths, in a thread.  After an error, the next start removes them."""
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
