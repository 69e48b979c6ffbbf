"""Znodes that cannot be read: left out with an error line, and read again once they are changed.

A script, a restored backup or a hand at zookeeper-shell may leave one.  No broker stops for it: the
next controller would read it too, and stop as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kserver.errors import UnreadableZnode
from kserver.world.session import until_connected
from kserver.world.zookeeper import NoAuth, NoNode, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)


class UnreadableZnodes:
    """`again` is called when one of them has changed, and has whatever is missing read again.  It
    is also to be read again after each lost connection, for the watches are lost with it."""

    def __init__(self, zookeeper: ZooKeeper, again: Callable[[], None]) -> None:
        self._zookeeper = zookeeper
        self._again = again
        self._named: dict[str, bytes | None] = {}
        """What each held when it was last named in the log."""

    async def leave_out(self, error: UnreadableZnode, consequence: str) -> None:
        """`consequence` says what is left out, or stays as it was.  SessionExpired."""
        path = error.path
        if path not in self._named or self._named[path] != error.data:
            self._named[path] = error.data
            log.error(
                "%s; %s until the znode is repaired: repair it, for example with k zookeeper-shell",
                error,
                consequence,
            )
        try:
            data, _ = await until_connected(partial(self._zookeeper.get, path, self._changed))
        except NoAuth:
            return  # no watch tells when it may be read
        except NoNode:
            self._again()
            return
        if data != error.data:
            self._again()

    def _changed(self, event: WatchEvent) -> None:
        self._named.pop(event.path, None)
        self._again()
