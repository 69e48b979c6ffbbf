"""The controller's claim: the broker whose session holds /controller is the controller.

    vacant    claimed in one write that also raises /controller_epoch: above its value and above the
              latest epoch that this broker received
    held      watched: `on_change` is called once the znode changes or is deleted; `depose` deletes
              it if its holder is proven gone

(Kafka: KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from kserver import znodes
from kserver.controller.claimed_store import ClaimedStore
from kserver.errors import UnreadableZnode
from kserver.model import BrokerId
from kserver.world.clock import Clock
from kserver.world.session import until_connected
from kserver.world.zookeeper import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    SetData,
    WatchEvent,
    ZooKeeper,
)

log = logging.getLogger(__name__)


class CurrentController(NamedTuple):
    broker: BrokerId
    claim: int
    """Version of /controller_epoch after its claim."""


class ControllerClaim:
    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        broker_id: BrokerId,
        store: ClaimedStore,
        on_change: Callable[[], None],
        last_epoch: Callable[[], int],
    ) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._id = broker_id
        self._store = store
        self._on_change = on_change
        self._last_epoch = last_epoch

    async def attempt(self) -> bool:
        """Return whether this session is the controller's; then the store has its epoch.  Raises
        SessionExpired."""
        self._store.session = self._zookeeper.session_id
        while not await self.is_held():
            try:
                await until_connected(self._try)
            except (NodeExists, BadVersion):
                if await self._holder() is not None and not await self.is_held():
                    return False
        self._store.epoch, self._store.epoch_version = await self._read_epoch()
        return True

    async def _read_epoch(self) -> tuple[int, int]:
        """Return the epoch of the claim that this session holds, and its znode's version.

        If another client has deleted the znode or overwritten it with nonsense, write it again.
        """
        path = znodes.CONTROLLER_EPOCH
        while True:
            znode = await until_connected(partial(self._store.find, path))
            try:
                if znode is not None:
                    return znodes.decode_controller_epoch(znode[0]), znode[1].version
            except UnreadableZnode as error:
                log.error("%s; writing it again", error)
            data = znodes.encode_controller_epoch(max(self._last_epoch(), self._store.epoch) + 1)
            with suppress(BadVersion, NoNode, NodeExists):  # changed again, or a lost try succeeded
                if znode is None:
                    await until_connected(partial(self._zookeeper.create, path, data))
                else:
                    version = znode[1].version
                    await until_connected(partial(self._zookeeper.set, path, data, version))

    async def is_held(self) -> bool:
        """Return whether this session holds /controller, and watch it."""
        return await self._holder() == self._zookeeper.session_id

    async def _holder(self) -> int | None:
        """Return the session that holds /controller."""
        exists = partial(self._zookeeper.exists, znodes.CONTROLLER, self._changed)
        stat = await until_connected(exists)
        return None if stat is None else stat.ephemeral_owner

    async def holder(self) -> CurrentController | None:
        """Return the current holder; None if there is none, if it is unreadable, or if it changes
        during the reads, in which case `on_change` is called."""
        before = await until_connected(partial(self._store.find, znodes.CONTROLLER_EPOCH))
        controller = await until_connected(partial(self._store.find, znodes.CONTROLLER))
        after = await until_connected(partial(self._store.find, znodes.CONTROLLER_EPOCH))
        if before is None or controller is None or after is None or before[1] != after[1]:
            return None
        try:
            return CurrentController(znodes.decode_controller(controller[0]), after[1].version)
        except UnreadableZnode as error:
            log.error("%s; the controller is unknown until this znode changes", error)
            return None

    async def depose(self, claim: int) -> bool:
        """Delete /controller unless it was claimed again; return whether this call deleted it."""
        ops: list[Op] = [Check(znodes.CONTROLLER_EPOCH, claim), Delete(znodes.CONTROLLER)]
        with suppress(BadVersion, NoNode, SessionExpired):
            await until_connected(partial(self._zookeeper.multi, ops))
            return True
        return False

    def _changed(self, _event: WatchEvent) -> None:
        self._on_change()

    async def _try(self) -> None:
        znode = await self._store.find(znodes.CONTROLLER_EPOCH)
        epoch = self._last_epoch()
        if znode is None:
            data = znodes.encode_controller_epoch(epoch)
            await self._zookeeper.create(znodes.CONTROLLER_EPOCH, data)
            version = 0
        else:
            version = znode[1].version
            try:
                # If the epoch was set back by hand, brokers would fence the next controller.
                epoch = max(epoch, znodes.decode_controller_epoch(znode[0]))
            except UnreadableZnode as error:
                log.error(
                    "%s; controller epochs continue from %d, the latest received", error, epoch
                )
        controller = znodes.encode_controller(self._id, self._clock.now_ms())
        data = znodes.encode_controller_epoch(epoch + 1)
        await self._zookeeper.multi(
            [
                Create(znodes.CONTROLLER, controller, ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, data, version),
            ]
        )
