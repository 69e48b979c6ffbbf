"""A ZooKeeper in memory: sessions, ephemerals, watches, lost connections, seeded delays.

ensemble = SimEnsemble(loop, clock)
zookeeper = ensemble.client()        the client of one broker
await zookeeper.start()
zookeeper.cut()                      its connection breaks; its session times out later
zookeeper.heal()                     it connects again, with a new session if need be
zookeeper.expire()                   its session ends now; a new one comes by itself
zookeeper.kill()                     its process died: the servers notice at the timeout
zookeeper.silence()                  no packets in either direction; it notices after a while
zookeeper.pause(), .resume()         its process is stopped: its session may time out meanwhile
zookeeper.lag(2), .catch_up()        its server learns of others' writes 2 s late
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kserver.world.clock import Clock
from kserver.world.znode_tree import Tree, Watches, ZnodeTransaction, end_of_session
from kserver.world.zookeeper import (
    ANY_VERSION,
    CLOSE_LIMIT_S,
    NO_SESSION,
    ConnectionLost,
    Create,
    Delete,
    Op,
    OpResult,
    SessionEvent,
    SessionListener,
    SetData,
    Stat,
    Watch,
    WatchEvent,
    ZooKeeperError,
)
from tests.support.loop import TURN_S, SimLoop

T = TypeVar("T")

MEAN_DELAY_S = 0.001


class SimEnsemble:
    """The servers: one tree, and the open sessions."""

    def __init__(self, loop: SimLoop, clock: Clock) -> None:
        self.loop = loop
        self.tree = Tree()
        self.clock = clock
        self._zxid = 1 << 32
        self._sessions: dict[int, SimZooKeeper] = {}
        self.context = contextvars.copy_context()
        """The context of the servers, which are on no host of the network."""
        self.on_change: Callable[[WatchEvent], None] = lambda _: None
        self.on_write: Callable[[SimZooKeeper, Sequence[Op]], None] = lambda _client, _ops: None
        """Called when a client sends a write, before it is on its way."""

    def client(self, session_timeout_ms: int = 18_000) -> SimZooKeeper:
        return SimZooKeeper(self, session_timeout_ms)

    def open_session(self, client: SimZooKeeper) -> int:
        self._zxid += 1
        self._sessions[self._zxid] = client
        return self._zxid

    def has_session(self, session: int) -> bool:
        return session in self._sessions

    def end_session(self, session: int) -> None:
        if self._sessions.pop(session, None) is not None:
            self.apply(end_of_session(self.tree, session), session)

    def apply(
        self, ops: Sequence[Op], session: int, *, make_parents: bool = False
    ) -> list[OpResult]:
        transaction = ZnodeTransaction(self.tree)
        parents = transaction.missing_parents(ops[0].path) if make_parents else ()
        zxid, now_ms = self._zxid + 1, self.clock.now_ms()
        results = transaction.apply([*parents, *ops], zxid=zxid, now_ms=now_ms, session=session)
        self._zxid = zxid
        self.loop.trace.add("zookeeper", zxid, *transaction.changes)
        for event in transaction.commit():
            self.on_change(event)
            for client in self._sessions.values():
                client.notify(event)
        for client in self._sessions.values():
            client.follow(transaction)
        self.tree.check()
        return results


class SimZooKeeper:
    """One client. Requests and responses keep their order, as over one connection."""

    def __init__(self, ensemble: SimEnsemble, session_timeout_ms: int) -> None:
        self._ensemble = ensemble
        self._loop = ensemble.loop
        self._session_timeout_ms = session_timeout_ms
        self._session = NO_SESSION
        self._is_connected = False
        self._is_closed = False
        self._is_silent = False
        self._connections = itertools.count(1)
        self._connection = 0
        self._watches = Watches()
        self._listeners: list[SessionListener] = []
        self._calls: dict[asyncio.Future[Any], str] = {}
        self._arrives_at = self._answers_at = 0.0
        self._timeout: asyncio.TimerHandle | None = None
        self._context = contextvars.copy_context()
        self._behind: Tree | None = None
        """What its server knows, while that lags."""
        self._lag_s = 0.0
        self._unapplied: deque[tuple[float, ZnodeTransaction]] = deque()
        """What its server has yet to learn, and when it will."""

    @property
    def session_id(self) -> int:
        return self._session

    async def start(self) -> None:
        self._context = contextvars.copy_context()
        await asyncio.sleep(self._delay())
        self._session = self._ensemble.open_session(self)
        self._connect()

    async def close(self) -> None:
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._call("/", lambda: self._ensemble.end_session(self._session))
        self.kill()

    def cut(self) -> None:
        if not self._is_connected:
            return
        self._disconnect()
        self._tell(SessionEvent.DISCONNECTED)

    def heal(self) -> None:
        if self._is_silent:
            self.cut()
        if not self._is_connected and not self._is_closed:
            self._loop.call_later(self._delay(), self._reconnect)

    def expire(self) -> None:
        self.cut()
        self._ensemble.end_session(self._session)
        self.heal()

    def silence(self) -> None:
        """Drop all packets from now on; the client notices after two thirds of its session timeout,
        as ZooKeeper's does.
        """
        if self._is_connected and not self._is_silent:
            self._is_silent = True
            self._begin_timeout()
            notice_s = self._session_timeout_ms * 2 / 3000
            self._loop.call_later(notice_s, self._notice, self._connection, context=self._context)

    def pause(self) -> None:
        if self._is_connected:
            self._begin_timeout()

    def resume(self) -> None:
        """Resume; the client finds its connection closed, once it receives anything."""
        self.cut()
        self.heal()

    def _notice(self, connection: int) -> None:
        if connection == self._connection:
            self.cut()

    def kill(self) -> None:
        self._is_closed = True
        if self._is_connected:
            self._disconnect()

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        def read() -> tuple[bytes, Stat]:
            node = self._tree.node(path)
            if watch is not None:
                self._watches.on_data(path, watch)
            return node.data, node.stat

        return await self._call(path, read)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def read() -> Stat | None:
            if watch is not None:
                self._watches.on_data(path, watch)
            node = self._tree.nodes.get(path)
            return node.stat if node is not None else None

        return await self._call(path, read)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def read() -> list[str]:
            names = self._tree.children(path)
            if watch is not None:
                self._watches.on_children(path, watch)
            return names

        return await self._call(path, read)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        made = await self._write([Create(path, data, ephemeral, sequence)], make_parents)
        assert isinstance(made[-1], str)
        return made[-1]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self._write([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        return await self._write(list(ops)) if ops else []

    def notify(self, event: WatchEvent) -> None:
        """Notify the client of a change that its watches match, unless its server lags."""
        if self._behind is None:
            self._notify(event)

    def _notify(self, event: WatchEvent) -> None:
        for watch in self._watches.take(event):
            self._answer(watch, event)

    async def _write(self, ops: list[Op], make_parents: bool = False) -> list[OpResult]:
        self._ensemble.on_write(self, ops)

        def write() -> list[OpResult]:
            try:
                return self._ensemble.apply(ops, self._session, make_parents=make_parents)
            finally:
                # A server responds to a write once it knows of it, and of all before it.
                self._learn(math.inf)

        return await self._call(ops[0].path, write)

    # A server that lags

    @property
    def _tree(self) -> Tree:
        return self._ensemble.tree if self._behind is None else self._behind

    def lag(self, by_s: float) -> None:
        self._lag_s = by_s
        if self._behind is None:
            self._behind = Tree(self._ensemble.tree.nodes)

    def catch_up(self) -> None:
        self._learn(math.inf)
        self._behind = None

    def follow(self, transaction: ZnodeTransaction) -> None:
        if self._behind is not None:
            due_s = self._loop.time() + self._lag_s
            self._unapplied.append((due_s, transaction))
            self._loop.call_at(due_s, self._learn, due_s, context=self._ensemble.context)

    def _learn(self, until_s: float) -> None:
        while self._unapplied and self._unapplied[0][0] <= until_s:
            _, transaction = self._unapplied.popleft()
            assert self._behind is not None
            self._behind.change(transaction.changes)
            for event in transaction.events:
                self._notify(event)

    async def _call(self, path: str, work: Callable[[], T]) -> T:
        if not self._is_connected:
            raise ConnectionLost(path)
        answer = self._loop.create_future()
        self._calls[answer] = path
        answer.add_done_callback(self._calls.pop)
        self._arrives_at = self._after(self._arrives_at)
        self._loop.call_at(
            self._arrives_at,
            self._arrive,
            self._connection,
            work,
            answer,
            context=self._ensemble.context,
        )
        return await answer

    def _arrive(
        self, connection: int, work: Callable[[], object], answer: asyncio.Future[Any]
    ) -> None:
        """Process a request at the servers. A request is lost with its connection, but one that has
        arrived is carried out even if the client does not wait for the response.
        """
        if connection != self._connection or self._is_silent:
            return
        if self._session != NO_SESSION and not self._ensemble.has_session(self._session):
            return  # sent after the end of the session, which closes the connection
        try:
            result = work()
        except ZooKeeperError as error:
            self._answer(_set, answer.set_exception, answer, error)
        else:
            self._answer(_set, answer.set_result, answer, result)

    def _answer(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run the callback at the client, unless the connection is lost until then."""
        self._answers_at = self._after(self._answers_at)
        self._loop.call_at(
            self._answers_at,
            self._call_back,
            self._connection,
            callback,
            arguments,
            context=self._context,
        )

    def _call_back(
        self, connection: int, callback: Callable[..., None], arguments: Sequence[object]
    ) -> None:
        if connection == self._connection and not self._is_silent:
            callback(*arguments)

    def _connect(self) -> None:
        self._is_connected, self._is_silent = True, False
        self._connection = next(self._connections)
        self._tell(SessionEvent.CONNECTED)

    def _disconnect(self) -> None:
        self._is_connected = False
        self._connection = 0
        self._watches = Watches()
        for answer, path in list(self._calls.items()):
            if not answer.done():
                answer.set_exception(ConnectionLost(path))
        self._begin_timeout()

    def _begin_timeout(self) -> None:
        """Begin the session timeout: the servers have received nothing since now."""
        if self._timeout is None:
            self._timeout = self._loop.call_later(
                self._session_timeout_ms / 1000,
                self._ensemble.end_session,
                self._session,
                context=self._ensemble.context,
            )

    def _reconnect(self) -> None:
        if self._is_connected or self._is_closed:
            return
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        if not self._ensemble.has_session(self._session):
            self._tell(SessionEvent.EXPIRED)
            self._session = self._ensemble.open_session(self)
        self._connect()

    def _tell(self, event: SessionEvent) -> None:
        self._loop.trace.add("session", self._session, event.value)
        for listener in self._listeners:
            self._loop.call_soon(listener, event, context=self._context)

    def _after(self, last: float) -> float:
        """Return the arrival time of a packet that is sent now, which is later than those of
        earlier ones.
        """
        return max(last + TURN_S, self._loop.time() + self._delay())

    def _delay(self) -> float:
        return self._loop.random.expovariate(1 / MEAN_DELAY_S)


def _set(setter: Callable[[Any], None], answer: asyncio.Future[Any], value: object) -> None:
    if not answer.done():
        setter(value)
