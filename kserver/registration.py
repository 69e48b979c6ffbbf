"""This broker among the others: its id, the cluster's, and the znode that says it is alive.

    /cluster/id        made by the first broker of a cluster
    /brokers/seqid     its version, counted on from `reserved.broker.max.id`, is a broker id that
                       nobody has
    /brokers/ids/N     this broker's endpoints, for as long as its session lives; a new session
                       writes it anew, and removes what a process has left that is proven gone;
                       so it is where somebody has deleted it
    /broker_log_dirs/N its log directories, those that are lost among them (log/missing)
    /log_dir_event_notification/log_dir_event_S
                       one of its disks failed, or the like: the controller asks which replicas
                       are offline

A start asks for `cluster_id` and `broker_id`, and registers before the controller starts.
(Kafka: KafkaServer.startup, KafkaZkClient.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from uuid import UUID

from kserver import znodes
from kserver.cluster_config.znode_store import make_persistent
from kserver.config.broker import BrokerConfig
from kserver.controller.features import NEWEST
from kserver.errors import ConfigError, StorageError, UnreadableZnode
from kserver.log.directory import LogDirectory
from kserver.log.manager import LogManager
from kserver.model import BrokerId, Endpoint
from kserver.world import World
from kserver.world.session import claim, in_any_session, until_connected
from kserver.world.zookeeper import (
    BadVersion,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SessionEvent,
    SessionExpired,
    WatchEvent,
    ZooKeeper,
)

log = logging.getLogger(__name__)

LONE_BROKER_ID: BrokerId = 0


async def cluster_id(zookeeper: ZooKeeper, random: Random) -> str:
    """The cluster's, made up when this is its first broker: 22 characters of base64."""

    async def read_or_make() -> str:
        while True:
            try:
                data, _ = await zookeeper.get(znodes.CLUSTER_ID)
                return znodes.decode_cluster_id(data)
            except NoNode:
                made = znodes.uuid_to_text(UUID(int=random.getrandbits(128), version=4))
            try:
                data = znodes.encode_cluster_id(made)
                await zookeeper.create(znodes.CLUSTER_ID, data, make_parents=True)
            except NodeExists:
                pass  # another broker was quicker: read its

    return await until_connected(read_or_make)


async def broker_id(
    zookeeper: ZooKeeper, config: BrokerConfig, stored: BrokerId | None
) -> BrokerId:
    """The configured one, or else the one `stored` in meta.properties, or else a new one.

    ConfigError when there is none to be had, or it is one of those that ZooKeeper hands out.
    """
    configured = config.broker_id if config.broker_id >= 0 else config.node_id
    if config.zookeeper_connect is None:
        return configured if configured >= 0 else LONE_BROKER_ID if stored is None else stored
    if configured >= 0:
        if config.broker_id_generation_enable and configured > config.reserved_broker_max_id:
            raise ConfigError(
                f"Invalid value {configured} for configuration broker.id: must not be greater than "
                f"reserved.broker.max.id, which is {config.reserved_broker_max_id}, because "
                "ZooKeeper generates the ids above it (broker.id.generation.enable)"
            )
        return configured
    if stored is not None:
        return stored
    if not config.broker_id_generation_enable:
        raise ConfigError(
            "Invalid value -1 for configuration broker.id: must be at least 0 unless "
            "broker.id.generation.enable is true"
        )

    async def number() -> int:
        while True:
            try:
                return (await zookeeper.set(znodes.BROKER_SEQUENCE, b"")).version
            except NoNode:
                with suppress(NodeExists):
                    await zookeeper.create(znodes.BROKER_SEQUENCE, make_parents=True)

    return config.reserved_broker_max_id + await until_connected(number)


async def note_directories(
    zookeeper: ZooKeeper, broker: BrokerId, directories: Sequence[LogDirectory]
) -> Mapping[str, str]:
    """The paths, by id, of the log directories that this broker had before and does not have now.

    Those that it has now are among them from the next start on.
    """
    path = znodes.log_dirs_path(broker)

    async def read_and_write() -> Mapping[str, str]:
        while True:
            try:
                data, _ = await zookeeper.get(path)
                known = znodes.decode_log_dirs(broker, data)
            except NoNode:
                known = {}
            except UnreadableZnode as error:
                log.error("%s; writing it again, without the lost log directories it listed", error)
                await zookeeper.delete(path)
                known = {}
            now = {d.id: d.path for d in directories if d.id}
            if now.items() <= known.items():
                break
            encoded = znodes.encode_log_dirs(known | now)
            try:
                if known:
                    await zookeeper.set(path, encoded)
                else:
                    await zookeeper.create(path, encoded, make_parents=True)
                break
            except (NoNode, NodeExists):
                pass  # an earlier try of this one
        # The id of one that cannot be read is not known: its path has to do.
        unread = {d.path for d in directories if not d.id}
        return {id_: at for id_, at in known.items() if id_ not in now and at not in unread}

    return await until_connected(read_and_write)


class Registration:
    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        broker_id: BrokerId,
        endpoints: Sequence[Endpoint],
        logs: LogManager,
    ) -> None:
        self._zookeeper = world.zookeeper
        self._clock = world.clock
        self._rack = config.broker_rack
        self._timeout_ms = config.zookeeper_session_timeout_ms
        self._id = broker_id
        self._endpoints = tuple(endpoints)
        self._logs = logs
        self._expired = False
        self._lost = False
        self._moved = False
        """Its endpoints are others than the znode tells."""
        self._is_to_report = False
        logs.on_directory_failed = self.report
        self._due = asyncio.Event()
        self._registered = asyncio.Event()
        self.epoch = -1
        """The transaction that made the znode: higher with each registration."""

    async def register(self) -> None:
        """ConfigError when another broker has this id and keeps it."""
        self._zookeeper.on_session(self._session_changed)
        await in_any_session(self._register)

    async def run(self) -> None:
        """Registers anew for each new session, tells of other endpoints and of disks that fail."""
        while True:
            await self._due.wait()
            self._due.clear()
            lost, self._lost = self._lost, False
            moved, self._moved = self._moved, False
            try:
                if lost:
                    await self._register()
                else:
                    await self._check()
                if moved:
                    await self._tell()
                if self._is_to_report:
                    await self._report()
            except SessionExpired:
                pass  # the next session tries again

    async def forget_lost_directories(self) -> None:
        """Call it when every partition that is placed here has a log."""
        directories = self._logs.directories
        if not self._logs.missing.lost_directories or any(
            d.failure or not d.id for d in directories
        ):
            return
        data = znodes.encode_log_dirs({d.id: d.path for d in directories})
        path = znodes.log_dirs_path(self._id)
        try:
            await until_connected(partial(self._zookeeper.set, path, data))
        except (SessionExpired, StorageError) as error:
            log.warning("%s: write failed, will retry at the next start: %s", path, error)
            return
        log.info(
            "broker %d: every partition has its log; forgetting the lost log directories: %s",
            self._id,
            ", ".join(sorted(self._logs.missing.lost_directories.values())),
        )
        self._logs.missing.lost_directories = {}

    @property
    def is_registered(self) -> bool:
        """In the present session, as far as this broker knows."""
        return self._registered.is_set()

    async def registered(self) -> None:
        """Returns once the present session has registered this broker."""
        await self._registered.wait()

    def advertise(self, endpoints: Sequence[Endpoint]) -> None:
        """Clients are told these from now on."""
        self._endpoints = tuple(endpoints)
        self._moved = True
        self._due.set()

    def report(self) -> None:
        """The controller is to ask which replicas this broker can serve: a disk has failed, or what
        kept it from hosting some is mended.  (Kafka: KafkaZkClient.propagateLogDirEvent)"""
        self._is_to_report = True
        self._due.set()

    async def _report(self) -> None:
        prefix, data = znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(self._id)
        await until_connected(partial(self._zookeeper.create, prefix, data, sequence=True))
        self._is_to_report = False

    async def _tell(self) -> None:
        path = znodes.broker_path(self._id)
        try:
            await until_connected(partial(self._zookeeper.set, path, self._data()))
        except NoNode:
            pass  # the session has expired: the next one registers with what is told now
        else:
            log.info("broker %d: advertised at %s", self._id, ", ".join(map(str, self._endpoints)))

    def _data(self) -> bytes:
        return znodes.encode_broker(
            znodes.BrokerRegistration(
                self._id,
                self._endpoints,
                self._clock.now_ms(),
                self._rack,
                incarnation_id=self._logs.incarnation_id,
                may_lack_records=self._logs.may_lack_records,
                features=NEWEST,
            )
        )

    async def _bury_predecessor(self) -> None:
        """Remove what an earlier start of this broker holds: its process is gone, for this one has
        the lock on its log directories, and its session may live on for a while."""
        path = znodes.broker_path(self._id)
        try:
            data, stat = await self._zookeeper.get(path)
            registered = znodes.decode_broker(self._id, data)
            if registered.incarnation_id not in self._logs.earlier_incarnations:
                return
            controller = await self._zookeeper.exists(znodes.CONTROLLER)
            ops: list[Op] = [Delete(path, stat.version)]
            if controller is not None and controller.ephemeral_owner == stat.ephemeral_owner:
                ops.append(Delete(znodes.CONTROLLER, controller.version))
            await self._zookeeper.multi(ops)
        except (NoNode, BadVersion):
            return  # its session has ended meanwhile
        except UnreadableZnode as error:
            log.error("%s; waiting for its session to expire", error)
            return
        log.info("broker %d: removed the registration left by an earlier start", self._id)

    async def _register(self) -> None:
        await until_connected(self._bury_predecessor)
        path = znodes.broker_path(self._id)
        create = partial(self._zookeeper.create, path, self._data(), ephemeral=True)
        try:
            await claim(self._zookeeper, path, create, self._timeout_ms)
        except NodeExists as error:
            data, _ = await until_connected(partial(self._zookeeper.get, path))
            try:
                endpoints = znodes.decode_broker(self._id, data).endpoints
            except UnreadableZnode:
                endpoints = ()
            where = f", at {', '.join(map(str, endpoints))}" if endpoints else ""
            raise ConfigError(
                f"broker.id: another broker with the id {self._id} is registered (znode {path})"
                f"{where}: stop it, or choose another broker.id"
            ) from error
        stat = await until_connected(partial(self._zookeeper.exists, path, self._touched))
        if stat is None or stat.ephemeral_owner != self._zookeeper.session_id:
            raise SessionExpired(path)
        self.epoch = stat.czxid
        self._registered.set()
        log.info("broker %d: registered with broker epoch %d", self._id, self.epoch)

    def _touched(self, _event: WatchEvent) -> None:
        self._due.set()

    async def _check(self) -> None:
        """Somebody may have deleted its znode, and the ones above it."""
        path = znodes.broker_path(self._id)
        if await until_connected(partial(self._zookeeper.exists, path, self._touched)) is None:
            log.error("%s was deleted by another client; broker %d registers again", path, self._id)
            await make_persistent(self._zookeeper)
            await self._register()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._expired = True
            self._registered.clear()
        elif event is SessionEvent.CONNECTED:
            # The watch is lost, and where the session is a new one the znode too.
            self._lost |= self._expired
            self._expired = False
            self._due.set()
