"""Who is the controller: the broker whose session holds /controller.

    vacant    claimed, and /controller_epoch raised with it, in one write
    held      watched: once the znode changes or is gone, `on_change` is called; `depose` deletes
              it, when its holder is proven gone

(Kafka: KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from kserver import znodes
from kserver.controller.store import ClaimedStore
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


class Holder(NamedTuple):
    broker: BrokerId
    claim: int
    """The version of /controller_epoch that its claim made."""


class ControllerClaim:
    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        broker_id: BrokerId,
        store: ClaimedStore,
        on_change: Callable[[], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._id = broker_id
        self._store = store
        self._on_change = on_change

    async def attempt(self) -> bool:
        """Whether this session is the controller's; the store has its epoch then.
        SessionExpired."""
        self._store.session = self._zookeeper.session_id
        while not await self.is_held():
            try:
                await until_connected(self._try)
            except (NodeExists, BadVersion):
                if await self._holder() is not None and not await self.is_held():
                    return False
        data, stat = await until_connected(partial(self._zookeeper.get, znodes.CONTROLLER_EPOCH))
        self._store.epoch_version = stat.version
        self._store.epoch = znodes.decode_controller_epoch(data)
        return True

    async def is_held(self) -> bool:
        """By this session; it is watched from now on."""
        return await self._holder() == self._zookeeper.session_id

    async def _holder(self) -> int | None:
        """The session."""
        exists = partial(self._zookeeper.exists, znodes.CONTROLLER, self._changed)
        stat = await until_connected(exists)
        return None if stat is None else stat.ephemeral_owner

    async def holder(self) -> Holder | None:
        """Whoever holds it now; None where nobody does, or it changes hands meanwhile, of which
        `on_change` tells."""
        before = await until_connected(partial(self._store.find, znodes.CONTROLLER_EPOCH))
        controller = await until_connected(partial(self._store.find, znodes.CONTROLLER))
        after = await until_connected(partial(self._store.find, znodes.CONTROLLER_EPOCH))
        if before is None or controller is None or after is None or before[1] != after[1]:
            return None
        return Holder(znodes.decode_controller(controller[0]), after[1].version)

    async def depose(self, claim: int) -> None:
        """Delete /controller, unless it was claimed since."""
        ops: list[Op] = [Check(znodes.CONTROLLER_EPOCH, claim), Delete(znodes.CONTROLLER)]
        with suppress(BadVersion, NoNode, SessionExpired):
            await until_connected(partial(self._zookeeper.multi, ops))

    def _changed(self, _event: WatchEvent) -> None:
        self._on_change()

    async def _try(self) -> None:
        found = await self._store.find(znodes.CONTROLLER_EPOCH)
        if found is None:
            await self._zookeeper.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            epoch, version = 0, 0
        else:
            epoch, version = znodes.decode_controller_epoch(found[0]), found[1].version
        controller = znodes.encode_controller(self._id, self._clock.now_ms())
        data = znodes.encode_controller_epoch(epoch + 1)
        await self._zookeeper.multi(
            [
                Create(znodes.CONTROLLER, controller, ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, data, version),
            ]
        )
