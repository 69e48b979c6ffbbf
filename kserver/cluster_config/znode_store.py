"""Reads and writes of znodes that any broker may do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kserver import znodes
from kserver.errors import ErrorCode, KafkaError, StorageError, UnreadableZnode
from kserver.world.session import RECONNECT_BACKOFF_S, in_any_session, until_connected
from kserver.world.zookeeper import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    NoAuth,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    SetData,
    Stat,
    ZooKeeper,
    ZooKeeperError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

OPS_PER_WRITE = 1000
"""A partition takes two operations of up to 350 bytes; ZooKeeper rejects requests of 1 MB."""
CALLS_AT_ONCE = 100


class ZnodeStore:
    """Writes are retried after a lost connection or an expired session."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def write(self, ops: Sequence[Op]) -> None:
        """Write atomically if there are at most OPS_PER_WRITE operations, else in several steps in
        order."""
        for at in range(0, len(ops), OPS_PER_WRITE):
            await self._write_at_once(ops[at : at + OPS_PER_WRITE])

    async def _write_at_once(self, ops: Sequence[Op]) -> None:
        while True:
            try:
                await self._zookeeper.multi(ops)
                return
            except (ConnectionLost, SessionExpired):
                if await self._is_written_after_all(ops):
                    return

    async def _is_written_after_all(self, ops: Sequence[Op]) -> bool:
        """Return whether the write succeeded, once reconnected.  Writing it again would fail
        then."""
        await asyncio.sleep(RECONNECT_BACKOFF_S)
        return await in_any_session(partial(self._is_written, ops[0]))

    async def _is_written(self, op: Op) -> bool:
        znode = await self.find(op.path)
        if isinstance(op, Create | SetData):
            return znode is not None and znode[0] == op.data
        return znode is None

    async def find(self, path: str) -> tuple[bytes, Stat] | None:
        """Return data and stat; None if it does not exist.  Raises UnreadableZnode if its ACL
        denies access."""
        try:
            return await self._zookeeper.get(path)
        except NoNode:
            return None
        except NoAuth as error:
            raise UnreadableZnode(path, None, error) from error

    async def sync(self) -> None:
        """Return once the server that this client is connected to knows all that was written before
        this call, in any session.  It may lag behind the leader of the ensemble."""
        # As a write, it passes through the leader, also if it is refused.
        with suppress(NoNode, NoAuth):
            await in_any_session(partial(self._zookeeper.multi, [Check(znodes.TOPICS)]))

    async def children(self, path: str) -> list[str] | None:
        try:
            return await self._zookeeper.children(path)
        except NoNode:
            return None


async def make_persistent(zookeeper: ZooKeeper) -> None:
    """Create the znodes that every cluster has, if they are missing."""

    async def make_missing() -> None:
        missing: dict[str, Create] = {}
        for path in znodes.PERSISTENT_PATHS:
            while path and path not in missing and await zookeeper.exists(path) is None:
                missing[path] = Create(path)
                path = path.rpartition("/")[0]
        if missing:
            await zookeeper.multi([missing[path] for path in sorted(missing)])

    while True:
        try:
            return await until_connected(make_missing)
        except NodeExists:
            pass  # another broker creates them at the same time


async def outcome(call: Awaitable[T]) -> T | KafkaError:
    """Return the result of a call, or its error for the client."""
    try:
        return await call
    except KafkaError as error:
        return error
    except StorageError as error:
        return KafkaError(ErrorCode.kafka_storage_error, str(error))
    except (BadVersion, SessionExpired):
        return not_controller()
    except ZooKeeperError as error:
        log.warning("%s was changed concurrently", error)
        return KafkaError(ErrorCode.unknown_server_error, str(error))


async def error_of(write: Awaitable[object]) -> KafkaError | None:
    """Return the error of a write, as in `outcome`; None if it succeeded."""
    error = await outcome(write)
    return error if isinstance(error, KafkaError) else None


def not_controller() -> KafkaError:
    text = "This is not the correct controller for this cluster."
    return KafkaError(ErrorCode.not_controller, text)


async def gather(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the results in order, with at most CALLS_AT_ONCE calls running at a time."""
    results: list[T] = []
    for at in range(0, len(calls), CALLS_AT_ONCE):
        results += await asyncio.gather(*(call() for call in calls[at : at + CALLS_AT_ONCE]))
    return results
