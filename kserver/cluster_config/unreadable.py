"""Unreadable znodes: ignored with an error line, and read again once they change.

They may come from a script, a restored backup, or a manual change with zookeeper-shell.  No broker
stops because of one: the next controller would read it too, and stop as well.
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
    """Znodes whose data could not be parsed.  `again` is called when one of them has changed, and
    reads them again.  Call it after each reconnect too, as watches are lost with the connection.
    """

    def __init__(self, zookeeper: ZooKeeper, again: Callable[[], None]) -> None:
        self._zookeeper = zookeeper
        self._again = again
        self._named: dict[str, bytes | None] = {}
        """Data of each znode when it was last logged, by path."""

    async def leave_out(self, error: UnreadableZnode, consequence: str) -> None:
        """Log and watch an unreadable znode.  `consequence` is what is ignored or keeps its value.
        Raises SessionExpired."""
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
            return  # no watch is possible without access
        except NoNode:
            self._again()
            return
        if data != error.data:
            self._again()

    def _changed(self, event: WatchEvent) -> None:
        self._named.pop(event.path, None)
        self._again()
