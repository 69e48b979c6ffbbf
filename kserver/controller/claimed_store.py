"""Znodes as the controller reads and writes them: it writes nothing once another took its place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from kserver import znodes
from kserver.world.session import RECONNECT_BACKOFF_S, until_connected
from kserver.world.zookeeper import (
    NO_SESSION,
    Check,
    ConnectionLost,
    Create,
    NoNode,
    Op,
    SessionExpired,
    SetData,
    Stat,
    ZooKeeper,
)

T = TypeVar("T")

OPS_PER_WRITE = 1000
"""A partition takes two of up to 350 bytes; ZooKeeper refuses requests of 1 MB."""
CALLS_AT_ONCE = 100


class ClaimedStore:
    """Every write is conditional on the version of /controller_epoch that the claim made."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.session = NO_SESSION
        """The one that claimed, or last tried to."""
        self.epoch_version = 0

    async def write(self, ops: Sequence[Op]) -> None:
        """At once if they are not too many, else in order."""
        for at in range(0, len(ops), OPS_PER_WRITE):
            await self._write_at_once(ops[at : at + OPS_PER_WRITE])

    async def _write_at_once(self, ops: Sequence[Op]) -> None:
        """SessionExpired, or BadVersion when another controller was elected since."""
        guard = Check(znodes.CONTROLLER_EPOCH, self.epoch_version)
        while True:
            if self._zookeeper.session_id != self.session:
                raise SessionExpired(znodes.CONTROLLER)
            try:
                await self._zookeeper.multi([guard, *ops])
                return
            except ConnectionLost:
                await asyncio.sleep(RECONNECT_BACKOFF_S)
                # It may have been written for all that; then writing it again would fail.
                if await until_connected(partial(self._is_written, ops[0])):
                    return

    async def _is_written(self, op: Op) -> bool:
        found = await self.find(op.path)
        if isinstance(op, Create | SetData):
            return found is not None and found[0] == op.data
        return found is None

    async def find(self, path: str) -> tuple[bytes, Stat] | None:
        try:
            return await self._zookeeper.get(path)
        except NoNode:
            return None

    async def children(self, path: str) -> list[str] | None:
        try:
            return await self._zookeeper.children(path)
        except NoNode:
            return None


async def together(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Their results in order, CALLS_AT_ONCE of them under way at a time."""
    results: list[T] = []
    for at in range(0, len(calls), CALLS_AT_ONCE):
        results += await asyncio.gather(*(call() for call in calls[at : at + CALLS_AT_ONCE]))
    return results
