"""Znodes as the controller writes them: not at all once another took its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kserver import znodes
from kserver.cluster_config.znode_store import ZnodeStore
from kserver.world.zookeeper import (
    NO_SESSION,
    BadVersion,
    Check,
    ConnectionLost,
    NoNode,
    Op,
    SessionExpired,
    ZooKeeper,
)


class ClaimedStore(ZnodeStore):
    """Every write is conditional on the version of /controller_epoch that the claim made."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        super().__init__(zookeeper)
        self.session = NO_SESSION
        """The one that claimed, or last tried to."""
        self.epoch = 0
        """The controller epoch that the claim began, and the znode's version of it."""
        self.epoch_version = 0
        self.on_conflict: Callable[[BadVersion | NoNode], None] = lambda _: None
        """Called when a write finds that another client has changed or deleted a znode, before the
        error is raised: whoever asked for the write may turn it into a response."""

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
                if await self._is_written_after_all(ops):
                    return
            except (BadVersion, NoNode) as error:
                self.on_conflict(error)
                raise
