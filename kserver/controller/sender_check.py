"""Verifies that a request between brokers comes from a broker, and from the controller it names.

    address    has to be that of a registered broker, on the listener between brokers
    epoch      if above the highest known one: /controller_epoch has to have reached it, and
               /controller has to name the sender as long as that epoch is current

LeaderAndIsr and similar requests name their sender, which a broker cannot verify without
authentication.  One StopReplica of any client would delete a log, and one epoch far ahead would
make this broker reject its controller forever.  A client on a broker's machine that knows the
epochs cannot be distinguished; a firewall, or a listener that only brokers can reach, is the
remedy.

If brokers connect through NAT, from other addresses than they advertise, set
`inter.broker.check.address=false` to skip the check of the address.

ZooKeeper is read after a request has arrived, never before, so that a broker or controller that
has just registered is found.  The request waits while ZooKeeper is unavailable: an error would
make its sender, which may be the controller, believe that this broker has received it.
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
"""Minimum time between two reads, in seconds, so that strangers cause no more load on ZooKeeper."""
CONFIRM_S, CONFIRM_AGAIN_S = 5.0, 0.1
MAX_WARNED = 1000
"""Maximum number of addresses remembered as warned about."""


class SenderCheck:
    def __init__(self, zookeeper: ZooKeeper, config: Callable[[], BrokerConfig]) -> None:
        self._zookeeper = zookeeper
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._broker_addresses: frozenset[str] = frozenset()
        self._read_at_s = -READ_EVERY_S
        self._reading = asyncio.Lock()
        self._warned: set[str] = set()

    async def is_broker(self, address: str, request: str) -> bool:
        """Return whether a connection from `address` is a registered broker's.  `request` is the
        name used in the warning, which is logged once for each address."""
        address = _plain(address)
        if address in self._broker_addresses or not self._config().inter_broker_check_address:
            return True
        arrived_s = self._loop.time()
        async with self._reading:
            if self._read_at_s <= arrived_s:
                await asyncio.sleep(max(0.0, self._read_at_s + READ_EVERY_S - self._loop.time()))
                await in_any_session(self._read)
        if address in self._broker_addresses:
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
        """Return whether `broker` is or was the controller of `epoch`.

        The ZooKeeper server of this session may be behind the rest of its ensemble, so an epoch
        above ZooKeeper's is looked up again for CONFIRM_S.
        """
        deadline_s = self._loop.time() + CONFIRM_S
        while (current_epoch := await in_any_session(self._epoch)) < epoch:
            if self._loop.time() >= deadline_s:
                return False
            await asyncio.sleep(CONFIRM_AGAIN_S)
        if current_epoch > epoch:
            return True  # a former controller, which is fenced by leader epochs
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
            names = []  # deleted by hand: all brokers are about to register again
        for name in names:
            try:
                data, _ = await self._zookeeper.get(f"{znodes.BROKER_IDS}/{name}")
                endpoints = znodes.decode_broker(int(name), data).endpoints
            except (NoNode, NoAuth, StorageError, ValueError):
                continue  # it has just gone, or it is unreadable, which the controller logs
            listener = self._config().inter_broker_listener
            hosts.update(e.host for e in endpoints if e.listener == listener)
        addresses: set[str] = set()
        for host in sorted(hosts):
            addresses |= await self._resolved(host)
        self._broker_addresses = frozenset(addresses)
        self._read_at_s = began_s

    async def _resolved(self, host: str) -> set[str]:
        try:
            infos = await self._loop.getaddrinfo(host, None)
        except OSError:
            return set()
        return {_plain(str(address[0])) for *_, address in infos}


def _plain(address: str) -> str:
    """Return the address without the IPv4 prefix of a dual-stack socket and without an IPv6
    zone."""
    return address.removeprefix("::ffff:").partition("%")[0]
