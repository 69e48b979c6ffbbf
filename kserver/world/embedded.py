"""EmbeddedZooKeeper: the tree of znodes in this process, over one durable file.

The default if `zookeeper.connect` is not set: a single broker needs no second process.

The file is a journal (`journal.py`). Requests made while the disk is busy go together into its next
frame and share one sync.

A start ends the previous session, so ephemeral nodes vanish. It increments the zxid's upper half,
as a new ZooKeeper leader does, so that no zxid is used twice though not every one was written.

On a full disk, topics can still be deleted: the journal keeps a reserve for that.

All that a broker writes while it starts is written again at the next start. So on a full disk these
changes are kept in memory until `require_disk`: the broker may be about to free space itself. Only
the zxids of such a start may be used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import NamedTuple

from kserver.errors import NO_ROOM, StorageError
from kserver.world.clock import Clock
from kserver.world.disk import Disk
from kserver.world.journal import Journal, JournalEntry
from kserver.world.znode_tree import Tree, Watches, Znode, ZnodeTransaction, end_of_session
from kserver.world.zookeeper import (
    ANY_VERSION,
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
    ZooKeeperError,
)

log = logging.getLogger(__name__)

COORDINATION = "coordination.msgpack"
"""Name of the file, in the first log directory."""


_DELETED_TOPICS = "/admin/delete_topics/"
_RESERVE_BYTES = 256 << 10
"""Space reserved for deleting topics on a full disk: some thousand partitions at once."""


class _Request(NamedTuple):
    ops: Sequence[Op]
    make_parents: bool
    response: asyncio.Future[list[OpResult]]


class EmbeddedZooKeeper:
    """Raises StorageError if the disk fails, in addition to the protocol's errors. The caller holds
    the lock of the file's directory.
    """

    def __init__(self, disk: Disk, path: str, clock: Clock) -> None:
        self._disk = disk
        self.path = path
        self._clock = clock
        self._tree = Tree()
        self._zxid = 0
        self._session = NO_SESSION
        self._open = False
        self._watches = Watches()
        self._listeners: list[SessionListener] = []
        self._journal = Journal(disk, path, reserve_bytes=_RESERVE_BYTES)
        self._starting = False
        """Whether the broker is starting over an existing store."""
        self._unwritten: dict[str, Znode | None] = {}
        """Changes of this start that are in the tree, but could not be written to the full disk."""
        self._waiting: list[_Request] = []
        self._writer: asyncio.Task[None] | None = None
        self._last: asyncio.Future[list[OpResult]] | None = None

    @property
    def session_id(self) -> int:
        return self._session

    def check_there(self, cluster: str) -> None:
        """Raises StorageError if the file is missing although the logs of that cluster exist."""
        if not self._disk.exists(self.path):
            raise StorageError(
                f"{self.path}, the metadata store of cluster {cluster}, is missing, but log.dirs"
                " has the cluster's logs: restore it from a backup, or rebuild it from the logs"
                " with k storage rebuild"
            )

    async def start(self) -> None:
        if self._disk.exists(self.path):
            stored = await self._journal.read()
            self._tree, self._zxid = Tree(stored.nodes), stored.zxid
            self._starting = True
        self._zxid = self._session = (self._zxid >> 32) + 1 << 32
        leftovers = ZnodeTransaction(self._tree)
        self._apply(leftovers, end_of_session(self._tree), self._zxid)
        try:
            await self._write(self._zxid, leftovers.changes, makes_room=True)
        except OSError as error:
            if not self._may_wait(error):
                raise self._failed(error) from error
            self._unwritten.update(leftovers.changes)
            log.warning(
                "%s: write postponed until there is free space: %s", self.path, error.strerror
            )
        leftovers.commit()
        self._open = True
        self._notify(SessionEvent.CONNECTED)

    def require_disk(self) -> None:
        """Refuse changes that cannot be written, from now on: the broker has started."""
        self._starting = False

    async def close(self) -> None:
        was_open, self._open = self._open, False
        if self._writer is not None:
            await asyncio.wait((self._writer,))
        if was_open:
            # No client is served any more that could wait for it.
            with contextlib.suppress(OSError):
                self._journal.close(JournalEntry(self._zxid, self._tree.nodes))

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        await self._settled(path)
        node = self._tree.node(path)
        if watch is not None:
            self._watches.on_data(path, watch)
        return node.data, node.stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._settled(path)
        if watch is not None:
            self._watches.on_data(path, watch)
        node = self._tree.nodes.get(path)
        return node.stat if node is not None else None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._settled(path)
        names = self._tree.children(path)
        if watch is not None:
            self._watches.on_children(path, watch)
        return names

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        results = await self._request([Create(path, data, ephemeral, sequence)], make_parents)
        assert isinstance(results[-1], str)
        return results[-1]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self._request([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._request([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        return await self._request(ops) if ops else []

    async def _request(self, ops: Sequence[Op], make_parents: bool = False) -> list[OpResult]:
        self._refuse_when_closed(ops[0].path)
        response: asyncio.Future[list[OpResult]] = asyncio.get_running_loop().create_future()
        self._last = response
        self._waiting.append(_Request(ops, make_parents, response))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_waiting())
        return await response

    async def _settled(self, path: str) -> None:
        """Wait for the writes that were requested before, so that a read sees them."""
        self._refuse_when_closed(path)
        if self._last is not None and not self._last.done():
            await asyncio.wait((self._last,))

    def _refuse_when_closed(self, path: str) -> None:
        if not self._open:
            raise ConnectionLost(path)

    async def _write_waiting(self) -> None:
        requests: list[_Request] = []
        try:
            while self._waiting:
                requests, self._waiting = self._waiting, []
                await self._commit(requests)
        finally:
            self._writer = None
            for request in (*requests, *self._waiting):
                if not request.response.done():
                    request.response.set_exception(ConnectionLost(request.ops[0].path))

    async def _commit(self, requests: list[_Request]) -> None:
        transaction = ZnodeTransaction(self._tree)
        zxid = self._zxid
        outcomes: list[list[OpResult] | ZooKeeperError | StorageError] = []
        for ops, make_parents, _ in requests:
            parents = transaction.missing_parents(ops[0].path) if make_parents else ()
            try:
                outcomes.append(self._apply(transaction, [*parents, *ops], zxid + 1))
            except ZooKeeperError as error:
                outcomes.append(error)
            else:
                zxid += 1
        if zxid > self._zxid:
            failure: OSError | None = None
            try:
                makes_room = any(_makes_room(op) for ops, _, _ in requests for op in ops)
                await self._write(zxid, transaction.changes, makes_room=makes_room)
            except OSError as error:
                failure = error
                if self._may_wait(failure):
                    self._unwritten.update(transaction.changes)
            if failure is None or self._may_wait(failure):
                self._zxid = zxid
                for event in transaction.commit():
                    for watch in self._watches.take(event):
                        asyncio.get_running_loop().call_soon(watch, event)
            else:
                # Refused requests fail too: the change that they were refused for was not written.
                outcomes = [self._failed(failure) for _ in requests]
        for request, outcome in zip(requests, outcomes, strict=True):
            if request.response.done():
                continue  # its caller was cancelled
            if isinstance(outcome, Exception):
                request.response.set_exception(outcome)
            else:
                request.response.set_result(outcome)

    def _apply(self, transaction: ZnodeTransaction, ops: Sequence[Op], zxid: int) -> list[OpResult]:
        now_ms = self._clock.now_ms()
        return transaction.apply(ops, zxid=zxid, now_ms=now_ms, session=self._session)

    async def _write(
        self, zxid: int, changes: dict[str, Znode | None], *, makes_room: bool
    ) -> None:
        change = JournalEntry(zxid, self._unwritten | changes)
        await self._journal.write(
            change, JournalEntry(zxid, self._tree.nodes), makes_room=makes_room
        )
        self._unwritten = {}

    def _may_wait(self, error: OSError) -> bool:
        return self._starting and error.errno in NO_ROOM

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"{self.path} cannot be written: {error}")

    def _notify(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, event)


def _makes_room(op: Op) -> bool:
    """Whether the operation frees space: a topic is noted under `delete_topics`, then its znodes
    are deleted.
    """
    return isinstance(op, Delete) or (
        isinstance(op, Create) and op.path.startswith(_DELETED_TOPICS)
    )
