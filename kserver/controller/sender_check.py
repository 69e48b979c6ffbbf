"""Whether a message between brokers comes from a broker, and from the controller it claims to be.

    address    is that of a registered broker, on the listener between brokers
    epoch      above the highest known one: /controller_epoch has reached it, and /controller names
               the sender while that epoch lasts

LeaderAndIsr and its kin name their sender, and without authentication a broker cannot verify that.
One StopReplica of any client would delete a log, and one epoch far ahead would have this broker
refuse its controller for ever.  What cannot be told apart is a client on the machine of a broker
that knows the epochs; a firewall, or a listener that only brokers reach, is the remedy.

Where brokers reach each other through NAT, and come from other addresses than they are registered
with, `inter.broker.check.address=false` leaves the address out.

ZooKeeper is asked after a message has arrived, never before, so that a broker or a controller that
has just registered is found.  While it cannot be asked the message waits: to refuse it would have
its sender, who may be the controller, believe that this broker was told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.errors import StorageError
from kserver.model import BrokerId
from kserver.world.session import in_any_session
from kserver.world.zookeeper import NoAuth, NoNode, ZooKeeper

log = logging.getLogger(__name__)

READ_EVERY_S = 1.0
"""Least time between two reads, whatever is asked: a stranger costs ZooKeeper no more."""
CONFIRM_S, CONFIRM_AGAIN_S = 5.0, 0.1
MAX_WARNED = 1000
"""Addresses that are remembered as warned about."""


class SenderCheck:
    def __init__(self, zookeeper: ZooKeeper, config: Callable[[], BrokerConfig]) -> None:
        self._zookeeper = zookeeper
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._known: frozenset[str] = frozenset()
        self._read_at_s = -READ_EVERY_S
        self._reading = asyncio.Lock()
        self._warned: set[str] = set()

    async def is_broker(self, address: str, request: str) -> bool:
        """Whether a connection from `address` is a registered broker's.  `request` is named in the
        one warning that each stranger is given."""
        address = _plain(address)
        if address in self._known or not self._config().inter_broker_check_address:
            return True
        arrived_s = self._loop.time()
        async with self._reading:
            if self._read_at_s <= arrived_s:
                await asyncio.sleep(max(0.0, self._read_at_s + READ_EVERY_S - self._loop.time()))
                await in_any_session(self._read)
        if address in self._known:
            return True
        if address not in self._warned and len(self._warned) < MAX_WARNED:
            self._warned.add(address)
            log.warning(
                "%s from %s refused: no registered broker advertises this address on listener"
                " %s; if brokers connect from other addresses than they advertise, set"
                " inter.broker.check.address=false",
                request,
                address,
                self._config().inter_broker_listener,
            )
        return False

    async def is_controller(self, broker: BrokerId, epoch: int) -> bool:
        """Whether `broker` is or was the controller of `epoch`.

        The server that this broker reads from may be behind the rest of its ensemble, so a higher
        epoch than ZooKeeper's is looked up again for CONFIRM_S.
        """
        deadline_s = self._loop.time() + CONFIRM_S
        while (found := await in_any_session(self._epoch)) < epoch:
            if self._loop.time() >= deadline_s:
                return False
            await asyncio.sleep(CONFIRM_AGAIN_S)
        if found > epoch:
            return True  # a former controller, whom leader epochs hold back
        holder = await in_any_session(self._holder)
        return holder in (None, broker) or await in_any_session(self._epoch) > epoch

    async def _epoch(self) -> int:
        try:
            data, _ = await self._zookeeper.get(znodes.CONTROLLER_EPOCH)
            return znodes.decode_controller_epoch(data)
        except (NoNode, NoAuth, StorageError):
            return 0

    async def _holder(self) -> BrokerId | None:
        try:
            data, _ = await self._zookeeper.get(znodes.CONTROLLER)
            return znodes.decode_controller(data)
        except (NoNode, NoAuth, StorageError):
            return None

    async def _read(self) -> None:
        began_s = self._loop.time()
        hosts: set[str] = set()
        try:
            names = await self._zookeeper.children(znodes.BROKER_IDS)
        except NoNode:
            names = []  # deleted by somebody: all are about to register again
        for name in names:
            try:
                data, _ = await self._zookeeper.get(f"{znodes.BROKER_IDS}/{name}")
                endpoints = znodes.decode_broker(int(name), data).endpoints
            except (NoNode, NoAuth, StorageError, ValueError):
                continue  # it has just gone, or the controller tells of what it cannot read
            listener = self._config().inter_broker_listener
            hosts.update(e.host for e in endpoints if e.listener == listener)
        known: set[str] = set()
        for host in sorted(hosts):
            known |= await self._resolved(host)
        self._known = frozenset(known)
        self._read_at_s = began_s

    async def _resolved(self, host: str) -> set[str]:
        try:
            found = await self._loop.getaddrinfo(host, None)
        except OSError:
            return set()
        return {_plain(str(address[0])) for *_, address in found}


def _plain(address: str) -> str:
    """Without what a dual-stack socket puts before IPv4, and without an IPv6 zone."""
    return address.removeprefix("::ffff:").partition("%")[0]
