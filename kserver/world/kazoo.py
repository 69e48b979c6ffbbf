"""KazooZooKeeper: a real ZooKeeper ensemble, through kazoo.

kazoo uses threads of its own: every response, watch and session event returns to the loop by
`call_soon_threadsafe`, and nothing here waits for a thread on the loop. kazoo is imported when a
client is started, not before.

kazoo reconnects by itself, without limit. While it is not connected, every call raises
ConnectionLost at once.

A login is by SASL with DIGEST-MD5, as Kafka's brokers do, or with credentials of ZooKeeper's own
scheme `digest`. If the server refuses it, or dies during the login, which looks the same, a new
client is tried. There is no Kerberos, and no TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kserver.world.session import until_connected
from kserver.world.zookeeper import (
    ANY_VERSION,
    CLOSE_LIMIT_S,
    NO_SESSION,
    Access,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Login,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SessionEvent,
    SessionExpired,
    SessionListener,
    SetData,
    Stat,
    Watch,
    WatchEvent,
    WatchType,
    ZooKeeperError,
    open_to_all,
)

log = logging.getLogger(__name__)

_RECONNECT_DELAY_S = 0.1
_MAX_RECONNECT_DELAY_S = 2.0
_LOGIN_DELAY_S = 1.0
"""Seconds before a refused login is retried."""

_GIVEN_UP = ("AUTH_FAILED", "CLOSED")
"""kazoo's states after a refused login, one soon after the other."""
_ROLLED_BACK, _RUNTIME_INCONSISTENCY = 0, -2
"""Codes of the operations of a failed multi that did not themselves fail."""

_ERRORS: dict[int, type[ZooKeeperError]] = {
    -4: ConnectionLost,
    -101: NoNode,
    -102: NoAuth,
    -103: BadVersion,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
    -112: SessionExpired,
    -115: ConnectionLost,  # the login was refused: another one is tried
}
_EVENTS = {
    "CREATED": WatchType.CREATED,
    "DELETED": WatchType.DELETED,
    "CHANGED": WatchType.CHANGED,
    "CHILD": WatchType.CHILDREN,
}
_STATES = {
    "CONNECTED": SessionEvent.CONNECTED,
    "SUSPENDED": SessionEvent.DISCONNECTED,
    "LOST": SessionEvent.EXPIRED,
}


class KazooZooKeeper:
    """`connect` is Kafka's `zookeeper.connect`: host:port,host:port/chroot. `access_to` returns the
    access to a znode that this client creates, by its path below the chroot.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        login: Login | None = None,
        access_to: Callable[[str], Access] = open_to_all,
    ) -> None:
        self._hosts, _, chroot = connect.partition("/")
        self._chroot = f"/{chroot}".rstrip("/")
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._login = login
        self._access_to = access_to
        self._client: Any = None
        self._was_refused = False
        self._session = NO_SESSION
        self._listeners: list[SessionListener] = []
        self._calls: dict[asyncio.Future[Any], str] = {}
        self._connected = asyncio.Event()
        self._closing = False

    @property
    def session_id(self) -> int:
        return self._session

    async def start(self) -> None:
        """Connect; create the chroot if it does not exist, as Kafka does. Raises NoAuth if the
        login is refused until the connection timeout.
        """
        self._loop = asyncio.get_running_loop()
        self._connect()
        try:
            async with asyncio.timeout(self._connection_timeout_ms / 1000):
                await until_connected(self._enter)
        except (TimeoutError, ZooKeeperError) as error:
            await self.close()
            if self._was_refused or isinstance(error, NoAuth):
                raise NoAuth from error
            raise ConnectionLost from error

    async def _enter(self) -> None:
        await self._connected.wait()
        acl = self._acl("/")
        if self._chroot:
            await self._call("/", lambda kazoo: kazoo.ensure_path_async(self._chroot, acl))
        else:
            # kazoo reports that it is connected before it logs in.
            await self.exists("/")

    def _connect(self) -> None:
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        login = self._login
        self._client = KazooClient(
            self._hosts,
            timeout=self._session_timeout_ms / 1000,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RECONNECT_DELAY_S, max_delay=_MAX_RECONNECT_DELAY_S
            ),
            auth_data=[("digest", f"{login.user}:{login.password}")]
            if login and not login.by_sasl
            else None,
            sasl_options={
                "mechanism": "DIGEST-MD5",
                "username": login.user,
                "password": login.password,
            }
            if login and login.by_sasl
            else None,
        )
        self._client.add_listener(partial(self._state_changed, self._client))
        self._client.start_async()
        self._watch_login(self._client)

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._disconnected()
        stopped = asyncio.Event()
        self._stop(self._client, stopped.set)
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await stopped.wait()
        except TimeoutError:
            log.warning(
                "ZooKeeper at %s: no response to the end of the session within %.0f s; the session"
                " ends by its timeout of %d ms",
                self._hosts,
                CLOSE_LIMIT_S,
                self._session_timeout_ms,
            )

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        full, bridge = self._full(path), self._bridge(watch)
        data, stat = await self._call(path, lambda kazoo: kazoo.get_async(full, bridge))
        return data or b"", _stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        full, bridge = self._full(path), self._bridge(watch)
        stat = await self._call(path, lambda kazoo: kazoo.exists_async(full, bridge))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        full, bridge = self._full(path), self._bridge(watch)
        return sorted(await self._call(path, lambda kazoo: kazoo.get_children_async(full, bridge)))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        created_path: str = await self._call(
            path,
            lambda kazoo: kazoo.create_async(
                self._full(path),
                data,
                self._acl(path),
                ephemeral=ephemeral,
                sequence=sequence,
                makepath=make_parents,
            ),
        )
        return self._own(created_path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        full = self._full(path)
        return _stat(await self._call(path, lambda kazoo: kazoo.set_async(full, data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        full = self._full(path)
        await self._call(path, lambda kazoo: kazoo.delete_async(full, version))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if not ops:
            return []
        results = await self._call(ops[0].path, lambda kazoo: self._transaction(kazoo, ops))
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, Exception) and getattr(result, "code", None) not in (
                _ROLLED_BACK,
                _RUNTIME_INCONSISTENCY,
            ):
                raise _error(result, op.path) from result
        return [self._result(op, result) for op, result in zip(ops, results, strict=True)]

    def _transaction(self, kazoo: Any, ops: Sequence[Op]) -> Any:
        transaction = kazoo.transaction()
        for op in ops:
            full = self._full(op.path)
            match op:
                case Create():
                    acl = self._acl(op.path)
                    transaction.create(full, op.data, acl, op.ephemeral, op.sequence)
                case SetData():
                    transaction.set_data(full, op.data, op.version)
                case Delete():
                    transaction.delete(full, op.version)
                case Check():
                    transaction.check(full, op.version)
        return transaction.commit_async()

    def _result(self, op: Op, result: Any) -> OpResult:
        match op:
            case Create():
                return self._own(result)
            case SetData():
                return _stat(result)
        return None

    async def _call(self, path: str, submit: Callable[[Any], Any]) -> Any:
        """Return the value of the asynchronous result that `submit` returns."""
        if not self._connected.is_set():
            raise ConnectionLost(path)
        response = self._loop.create_future()
        self._calls[response] = path
        response.add_done_callback(self._calls.pop)
        submit(self._client).rawlink(lambda result: self._post(_settle, response, result, path))
        return await response

    def _acl(self, path: str) -> Any:
        """Return the ACL of a new node; None is kazoo's default, which permits everything to
        everyone.
        """
        from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

        match self._access_to(path):
            case Access.ALL:
                return None
            case Access.READ:
                return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
        return CREATOR_ALL_ACL

    def _state_changed(self, client: Any, state: str) -> None:
        """Handle a state change, in a thread of kazoo."""
        client_id = client.client_id
        session = client_id[0] if client_id else NO_SESSION
        self._post(self._session_changed, client, _STATES[state], session)

    def _watch_login(self, client: Any) -> None:
        self._loop.call_later(_LOGIN_DELAY_S, self._log_in_again, client)

    def _log_in_again(self, client: Any) -> None:
        """Log in with a new client if the login was refused: kazoo gives up then, perhaps
        silently.
        """
        if self._closing or client is not self._client or self._connected.is_set():
            return
        if client.client_state not in _GIVEN_UP:
            self._watch_login(client)
            return
        log.warning(
            "ZooKeeper at %s: login refused, or the connection failed; will retry", self._hosts
        )
        self._was_refused = True
        self._stop(client, lambda: None)
        self._connect()

    def _session_changed(self, client: Any, event: SessionEvent, session: int) -> None:
        if self._closing or client is not self._client:
            return
        if event is SessionEvent.CONNECTED:
            self._session = session
            self._connected.set()
        else:
            self._disconnected()
            self._watch_login(client)
        for listener in self._listeners:
            listener(event)

    def _disconnected(self) -> None:
        """Fail pending calls. Requests made just after the connection broke are kept by kazoo until
        it reconnects, however long; our callers do not wait for that.
        """
        self._connected.clear()
        for response, path in self._calls.items():
            if not response.done():
                response.set_exception(ConnectionLost(path))

    def _stop(self, client: Any, on_stopped: Callable[[], None]) -> None:
        """Stop a client in a daemon thread: kazoo waits 10 s and more for a server that does not
        respond, and a thread of the loop's executor would keep the process alive until then.
        """

        def stop() -> None:
            try:
                _stop(client)
            finally:
                self._post(on_stopped)

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()

    def _bridge(self, watch: Watch | None) -> _Bridge | None:
        return None if watch is None else _Bridge(self, watch)

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back on the loop, from a thread of kazoo, unless the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _own(self, full: str) -> str:
        return full[len(self._chroot) :] or "/"


def _stop(client: Any) -> None:
    from kazoo.exceptions import WriterNotClosedException

    # If a server does not respond, kazoo's threads end with the process, and the session by its
    # timeout.
    with contextlib.suppress(WriterNotClosedException):
        client.stop()
        client.close()


@dataclass(frozen=True, slots=True)
class _Bridge:
    """A watch as kazoo calls it. Equal ones count as one, since kazoo keeps watches in sets."""

    zookeeper: KazooZooKeeper
    watch: Watch

    def __call__(self, event: Any) -> None:
        # An event of no type means that the watch is lost.
        if event.type in _EVENTS:
            own = WatchEvent(_EVENTS[event.type], self.zookeeper._own(event.path))
            self.zookeeper._post(self.watch, own)


def _settle(response: asyncio.Future[Any], result: Any, path: str) -> None:
    if response.done():
        return
    error = result.exception
    if error is None:
        response.set_result(result.value)
    else:
        own = _error(error, path)
        own.__cause__ = error
        response.set_exception(own)


def _error(error: Exception, path: str) -> ZooKeeperError:
    error_type = _ERRORS.get(getattr(error, "code", 0))
    return error_type(path) if error_type else ZooKeeperError(f"{path}: {type(error).__name__}")


def _stat(stat: Any) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        num_children=stat.numChildren,
        aversion=stat.aversion,
    )
