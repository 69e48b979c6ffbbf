"""Helpers for ZooKeeper sessions: survive lost connections, hold an ephemeral node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kserver.world.zookeeper import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    SessionExpired,
    ZooKeeper,
)

T = TypeVar("T")

RECONNECT_BACKOFF_S = 0.1
CLAIM_RETRY_S = 0.25
TICK_S = 3.0
"""Seconds: a session lives for up to its timeout and one tick of the server, which is 2 or 3 s."""


async def until_connected(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `call`, called again after each ConnectionLost for as long as it takes.

    A lost call may have taken effect, so it has to be repeatable.
    """
    while True:
        try:
            return await call()
        except ConnectionLost:
            await asyncio.sleep(RECONNECT_BACKOFF_S)


async def in_any_session(call: Callable[[], Awaitable[T]]) -> T:
    """Do the same as `until_connected`, and repeat the call after the end of a session in the
    next.
    """
    while True:
        try:
            return await until_connected(call)
        except SessionExpired:
            await asyncio.sleep(RECONNECT_BACKOFF_S)


async def until_lost(zookeeper: ZooKeeper, path: str, for_s: float) -> None:
    """Return once ZooKeeper has not responded to requests about `path` for `for_s` seconds."""
    loop = asyncio.get_running_loop()
    answered_s = loop.time()
    while loop.time() < answered_s + for_s:
        try:
            async with asyncio.timeout_at(answered_s + for_s):
                await zookeeper.exists(path)
        except (ConnectionLost, SessionExpired, TimeoutError):
            await asyncio.sleep(RECONNECT_BACKOFF_S)
        else:
            answered_s = loop.time()
            await asyncio.sleep(for_s / 4)


async def claim(
    zookeeper: ZooKeeper, path: str, attempt: Callable[[], Awaitable[object]], timeout_ms: int
) -> None:
    """Hold the ephemeral `path`, which `attempt` creates, alone or together with other writes.

    While another session holds it, retry until a dead session of `timeout_ms` must have ended: it
    may be our own from before a crash. Raises NodeExists after that.
    """
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000 + TICK_S
    while True:
        try:
            await until_connected(attempt)
            return
        except (NodeExists, BadVersion):
            holder = await until_connected(lambda: zookeeper.exists(path))
        if holder is not None:
            if holder.ephemeral_owner == zookeeper.session_id:
                # The first attempt succeeded, and its response was lost with the connection.
                return
            if asyncio.get_running_loop().time() >= deadline:
                raise NodeExists(path)
            await asyncio.sleep(CLAIM_RETRY_S)
