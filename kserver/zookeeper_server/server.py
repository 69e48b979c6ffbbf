"""ZooKeeperServer: accepts connections, and joins sessions, store and watches."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from kserver import __version__
from kserver.errors import ProtocolError
from kserver.world.clock import Clock
from kserver.world.disk import Disk
from kserver.world.journal import StoredSession
from kserver.world.zookeeper import WatchEvent, WatchType
from kserver.zookeeper_server import words
from kserver.zookeeper_server.connection import ZooKeeperConnection
from kserver.zookeeper_server.jute import SYNC_CONNECTED, ConnectRequest, EventType, WatcherEvent
from kserver.zookeeper_server.sessions import PASSWORD_BYTES, SessionTable
from kserver.zookeeper_server.settings import Settings
from kserver.zookeeper_server.store import CloseSession, Done, OpenSession, Store
from kserver.zookeeper_server.watches import WatchTable

log = logging.getLogger(__name__)

LOCK = ".lock"
BACKLOG = 1000
VERSION = f"3.8.4-k{__version__}"
"""Tools expect ZooKeeper's version: the one whose protocol this is."""
_TYPES = {
    WatchType.CREATED: EventType.CREATED,
    WatchType.DELETED: EventType.DELETED,
    WatchType.CHANGED: EventType.CHANGED,
    WatchType.CHILDREN: EventType.CHILDREN,
}


class ZooKeeperServer:
    """Raises StorageError if the disk fails."""

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        clock: Clock,
        random: Random,
        environment: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._random = random
        self._environment = environment
        self.store = Store(disk, settings.data_dir, clock)
        self.watches: WatchTable[ZooKeeperConnection] = WatchTable()
        self._sessions = SessionTable(
            settings.tick_ms, settings.min_timeout_ms, settings.max_timeout_ms
        )
        self._connections: dict[ZooKeeperConnection, None] = {}
        self._addresses: Counter[str] = Counter()
        self._began = asyncio.Event()
        """Set once a session has a deadline."""
        self._requests = self._responses = 0
        self._latency_s = (0.0, 0.0, 0.0)
        """Minimum, sum, maximum."""

    async def run(self, stop: asyncio.Event, ready: Callable[[str, int], None]) -> None:
        """Serve until `stop`; `ready` is called with address and port."""
        settings = self._settings
        self._disk.make_directories(settings.data_dir)
        lock = self._disk.lock(f"{settings.data_dir}/{LOCK}")
        try:
            await self.store.open()
            self._sessions.restore(self.store.sessions, self._now_ms())
            self._began.set()
            loop = asyncio.get_running_loop()
            listener = await loop.create_server(
                lambda: ZooKeeperConnection(self), settings.address, settings.port, backlog=BACKLOG
            )
            host, port = listener.sockets[0].getsockname()[:2]
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.store.run(self._changed))
                    expiry = group.create_task(self._expire())
                    ready(host, port)
                    await stop.wait()
                    listener.close()
                    expiry.cancel()
                    for connection in list(self._connections):
                        connection.abort()
                    self.store.stop()
            finally:
                listener.close()
                for connection in list(self._connections):
                    connection.abort()
            self.store.close()
        finally:
            lock.release()

    @property
    def zxid(self) -> int:
        return self.store.zxid

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def admit(self, connection: ZooKeeperConnection) -> bool:
        """Whether its address may have one more connection."""
        self._connections[connection] = None
        self._addresses[connection.host] += 1
        limit = self._settings.max_connections
        if limit and self._addresses[connection.host] > limit:
            log.warning(
                "too many connections from %s: maxClientCnxns is %d", connection.host, limit
            )
            return False
        return True

    def forget(self, connection: ZooKeeperConnection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self.watches.forget(connection)
        self._addresses[connection.host] -= 1
        if not self._addresses[connection.host]:
            del self._addresses[connection.host]

    def complain(self, connection: ZooKeeperConnection, error: ProtocolError) -> None:
        log.warning("connection from %s:%d closed: %s", connection.host, connection.port, error)

    def connect(self, connection: ZooKeeperConnection, request: ConnectRequest) -> None:
        """Open a new session, or give the connection the session that it asks for."""
        if request.last_zxid_seen > self.zxid:
            # It has seen more than this server: it was at another one, or this one lost its data.
            log.warning(
                "connection from %s:%d refused: it has seen zxid %#x, the last zxid here is %#x",
                *(connection.host, connection.port, request.last_zxid_seen, self.zxid),
            )
            connection.close()
            return
        connection.timeout_ms = timeout_ms = self._sessions.negotiated(request.timeout_ms)
        if request.session_id == 0:
            self._open(connection, timeout_ms)
            return
        password = request.password or b""
        session = self._sessions.reopen(request.session_id, password, timeout_ms, self._now_ms())
        if session is None:
            connection.refused()
            return
        if isinstance(session.owner, ZooKeeperConnection):
            session.owner.close()
        session.owner = connection
        connection.session = session.id
        connection.opened(password)

    def _open(self, connection: ZooKeeperConnection, timeout_ms: int) -> None:
        session = self._sessions.new_id(self._clock.now_ms())
        password = self._random.randbytes(PASSWORD_BYTES)

        def opened(_: Done) -> None:
            added = self._sessions.open(session, password, timeout_ms, self._now_ms())
            added.owner = connection
            self._began.set()
            connection.session = session
            connection.opened(password)

        stored = StoredSession(timeout_ms, password)
        self.store.submit(OpenSession(session, stored, opened))

    def received(self, connection: ZooKeeperConnection) -> None:
        self._requests += 1
        self._sessions.touch(connection.session, self._now_ms())

    def on_response(self, arrived_s: float) -> None:
        took_s = self.now_s() - arrived_s
        least, total, most = self._latency_s
        least = min(least, took_s) if self._responses else took_s
        self._latency_s = least, total + took_s, max(most, took_s)
        self._responses += 1

    def is_open(self, session: int) -> bool:
        return self._sessions.is_open(session)

    def end(self, session: int) -> bool:
        """Refuse the session from now on; return whether it was open."""
        return self._sessions.close(session)

    def ended(self, session: int) -> None:
        """Remove the session after its nodes were deleted."""
        self._sessions.remove(session)

    def word(self, word: str) -> str:
        if words.is_allowed(word, self._settings.words):
            match word:
                case "crst":
                    for connection in self._connections:
                        connection.reset_figures()
                case "srst":
                    self._requests = self._responses = 0
                    self._latency_s = (0.0, 0.0, 0.0)
        return words.response(word, self._report(), self._settings.words)

    async def _expire(self) -> None:
        while True:
            deadline_ms = self._sessions.next_deadline_ms()
            if deadline_ms is None:
                self._began.clear()
                await self._began.wait()
                continue
            if (wait_ms := deadline_ms - self._now_ms()) > 0:
                # A deadline that is added meanwhile is at least a tick away.
                await asyncio.sleep(min(wait_ms, self._settings.tick_ms) / 1000)
                continue
            for session in self._sessions.expire(self._now_ms()):
                log.info("session %#x has expired", session)
                self._end_expired(session)

    def _end_expired(self, session: int) -> None:
        owner = self._sessions.sessions[session].owner

        def done(_: Done) -> None:
            self.ended(session)
            if isinstance(owner, ZooKeeperConnection):
                owner.close()

        self.store.submit(CloseSession(session, done))

    def _changed(self, event: WatchEvent) -> None:
        notification = WatcherEvent(_TYPES[event.type], SYNC_CONNECTED, event.path)
        for connection in self.watches.trigger(event):
            connection.notify(notification)

    def _now_ms(self) -> int:
        return int(self.now_s() * 1000)

    def _report(self) -> words.Report:
        nodes = self.store.tree.nodes
        watchers, paths, watches = self.watches.counts()
        least, total, most = (1000 * each for each in self._latency_s)
        return words.Report(
            version=VERSION,
            zxid=self.zxid,
            nodes=len(nodes),
            data_bytes=sum(len(path) + len(node.data) for path, node in nodes.items()),
            ephemerals=self.store.ephemerals_count,
            sessions=len(self._sessions.sessions),
            watchers=watchers,
            watched_paths=paths,
            watches=watches,
            latency_ms=(int(least), total / max(1, self._responses), int(most)),
            requests=self._requests,
            responses=self._responses,
            clients=[
                words.Client(
                    host=each.host,
                    port=each.port,
                    session=each.session,
                    timeout_ms=each.timeout_ms,
                    waiting=each.waiting,
                    requests=each.requests,
                    responses=each.responses,
                )
                for each in self._connections
            ],
            settings=self._settings.shown(),
            environment=self._environment,
            due_ms={
                session.id: self._clock.now_ms() + session.due_ms - self._now_ms()
                for session in self._sessions.sessions.values()
            },
            owners=self.store.owners(),
            watched=[(each.session, path) for each, path in self.watches.places()],
            disk_bytes=self.store.size_bytes(),
        )
