"""Znode writes of the controller, which fail once another controller was elected."""

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
    """Makes each write conditional on the version of /controller_epoch after the claim."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        super().__init__(zookeeper)
        self.session = NO_SESSION
        """Session that holds the claim, or that last tried to get it."""
        self.epoch = 0
        """Controller epoch of the claim, and the version of its znode."""
        self.epoch_version = 0
        self.on_conflict: Callable[[BadVersion | NoNode], None] = lambda _: None
        """Called when a write finds that another client changed or deleted a znode, before the
        error is raised: the caller of the write may turn the error into a response."""

    async def _write_at_once(self, ops: Sequence[Op]) -> None:
        """Raises SessionExpired, or BadVersion if another controller was elected."""
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
