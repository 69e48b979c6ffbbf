"""Throttling of a conversation whose client exceeded its quota (KIP-219).

No requests are dispatched meanwhile; pending responses are still sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kserver.network.conversation import Conversation


class Throttle:
    """Holds a conversation until the longest of several waits ends, then calls `go_on`."""

    __slots__ = ("_conversation", "_go_on", "_loop", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversation: Conversation,
        go_on: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._conversation = conversation
        self._go_on = go_on
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, for_ms: int) -> float:
        """Hold the conversation for `for_ms`; return the loop time at which that ends."""
        self._conversation.throttled = True
        until_s = self._loop.time() + for_ms / 1000
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return self._timer.when()
            self._timer.cancel()
        self._timer = self._loop.call_at(until_s, self._ended)
        return until_s

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ended(self) -> None:
        self._timer = None
        self._conversation.throttled = False
        self._go_on()
