"""ZooKeeper's part without ZooKeeper: the tree in this process, over one durable file.

The default where `zookeeper.connect` is not set: a single broker needs no second process.

The file is a journal of frames: length and CRC-32 (big-endian, 4 bytes each) before a msgpack body
`[zxid, [[path, node | nil], ...]]`, the changes in the order made, a node as `znode_tree.Node`
lists its fields.  The first frame holds the whole tree.  It and all that replaces it is written by
`Disk.replace_file`; a later one is appended and synced before anyone sees what it holds, and the
next is not written before.  Hence, on reading:

    the first frame is broken                      the file was damaged: StorageError
    a later one is, and a good one follows it      likewise
    a later one is, and nothing good follows it    a crash while it was written: it never happened

Requests that come while the disk is busy go together into the next frame, so many cost one sync.
After a failed write the next writes the whole tree anew: what the disk holds of a file whose sync
failed is unknown.

A start ends the previous session, so ephemeral nodes vanish, and raises the zxid's upper half as a
new ZooKeeper leader does, so that a zxid never comes twice though not every one was written.

The next start does again whatever a broker writes while it starts.  So on a full disk that much is
kept in memory, until `require_disk`: the broker may be about to make room itself.  Only the zxids
of such a start may come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgpack

from kserver.errors import NO_ROOM, StorageError
from kserver.world.clock import Clock
from kserver.world.disk import Disk, File
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
"""The file's name, in the first log directory."""
_HEAD = struct.Struct(">II")
_REMEDY = (
    "restore it from a copy; or move it away, and make it anew from the logs: k storage rebuild"
)
_SLACK_BYTES = 1 << 20
"""How far the journal may outgrow twice the tree before the tree is written anew."""


class _Request(NamedTuple):
    ops: Sequence[Op]
    make_parents: bool
    answer: asyncio.Future[list[OpResult]]


class EmbeddedZooKeeper:
    """Raises StorageError, besides what the protocol names, when the disk fails.  Whoever starts it
    holds the lock of the file's directory."""

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
        self._file: File | None = None
        self._end = 0
        self._whole = 0
        """Bytes of the first frame."""
        self._starting = False
        """The broker starts, over a store that was there."""
        self._waiting: list[_Request] = []
        self._writer: asyncio.Task[None] | None = None
        self._last: asyncio.Future[list[OpResult]] | None = None

    @property
    def session_id(self) -> int:
        return self._session

    def check_there(self, cluster: str) -> None:
        """StorageError where the file is gone though the logs are there, of that cluster."""
        if not self._disk.exists(self.path):
            raise StorageError(
                f"{self.path} is gone, which had the topics of cluster {cluster}, whose logs are in"
                " log.dirs: restore it from a copy, or make it anew from the logs: k storage"
                " rebuild"
            )

    async def start(self) -> None:
        if self._disk.exists(self.path):
            data = await self._disk.offload(lambda: self._disk.read_file(self.path))
            nodes, self._zxid = read_journal(data, self.path)
            self._tree = Tree(nodes)
            self._starting = True
        self._zxid = self._session = (self._zxid >> 32) + 1 << 32
        leftovers = ZnodeTransaction(self._tree)
        self._apply(leftovers, end_of_session(self._tree), self._zxid)
        try:
            await self._write(self._zxid, leftovers.changes)
        except OSError as error:
            if not self._may_wait(error):
                raise self._failed(error) from error
            log.warning("%s cannot be written before there is room: %s", self.path, error.strerror)
        leftovers.commit()
        self._open = True
        self._tell(SessionEvent.CONNECTED)

    def require_disk(self) -> None:
        """The broker has started: what cannot be written is refused from now on."""
        self._starting = False

    async def close(self) -> None:
        was_open, self._open = self._open, False
        if self._writer is not None:
            await asyncio.wait((self._writer,))
        if was_open and (self._file is None or self._end > self._whole):
            # As one frame it is whole or known to be damaged, however it is cut.
            # Nobody is served any more who could wait for it.
            with contextlib.suppress(OSError):
                self._replace(self._zxid, dict(self._tree.nodes))
        self._file = None

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
        made = await self._request([Create(path, data, ephemeral, sequence)], make_parents)
        assert isinstance(made[-1], str)
        return made[-1]

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
        answer: asyncio.Future[list[OpResult]] = asyncio.get_running_loop().create_future()
        self._last = answer
        self._waiting.append(_Request(ops, make_parents, answer))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_waiting())
        return await answer

    async def _settled(self, path: str) -> None:
        """A read comes after the writes that its caller asked for before."""
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
                if not request.answer.done():
                    request.answer.set_exception(ConnectionLost(request.ops[0].path))

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
                await self._write(zxid, transaction.changes)
            except OSError as error:
                failure = error
            if failure is None or self._may_wait(failure):
                self._zxid = zxid
                for event in transaction.commit():
                    for watch in self._watches.take(event):
                        asyncio.get_running_loop().call_soon(watch, event)
            else:
                # Also for the refused: what they were refused for may not have come to be.
                outcomes = [self._failed(failure) for _ in requests]
        for request, outcome in zip(requests, outcomes, strict=True):
            if request.answer.done():
                continue  # its caller was cancelled
            if isinstance(outcome, Exception):
                request.answer.set_exception(outcome)
            else:
                request.answer.set_result(outcome)

    def _apply(self, transaction: ZnodeTransaction, ops: Sequence[Op], zxid: int) -> list[OpResult]:
        now_ms = self._clock.now_ms()
        return transaction.apply(ops, zxid=zxid, now_ms=now_ms, session=self._session)

    async def _write(self, zxid: int, changes: dict[str, Znode | None]) -> None:
        file, self._file = self._file, None
        if file is not None:
            frame = _frame(zxid, changes)
            if self._end + len(frame) <= 2 * self._whole + _SLACK_BYTES:
                await self._disk.offload(lambda: _append(file, self._end, frame))
                self._end += len(frame)
                self._file = file
                return
        whole: dict[str, Znode | None] = {**self._tree.nodes, **changes}
        self._whole = self._end = await self._disk.offload(lambda: self._replace(zxid, whole))
        self._file = self._disk.open(self.path)

    def _replace(self, zxid: int, whole: Mapping[str, Znode | None]) -> int:
        frame = _frame(zxid, {path: node for path, node in whole.items() if node is not None})
        self._disk.replace_file(self.path, frame)
        return len(frame)

    def _may_wait(self, error: OSError) -> bool:
        return self._starting and error.errno in NO_ROOM

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"{self.path} cannot be written: {error}")

    def _tell(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, event)


def _frame(zxid: int, changes: Mapping[str, Znode | None]) -> bytes:
    body: bytes = msgpack.packb([zxid, list(changes.items())])
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _append(file: File, position: int, frame: bytes) -> None:
    file.write_at(position, frame)
    file.sync()


def _frames(data: bytes, at: int = 0) -> Iterator[bytes]:
    """The bodies of the good frames from `at` up to the first broken one."""
    while at + _HEAD.size <= len(data):
        size, crc = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        body = data[at : at + size]
        # Zeros, as a crash may leave them, would have the CRC of an empty body.
        if not 0 < size == len(body) or zlib.crc32(body) != crc:
            return
        yield body
        at += size


def read_journal(data: bytes, path: str) -> tuple[dict[str, Znode], int]:
    """The nodes and the last zxid; StorageError for a damaged file."""
    nodes: dict[str, Znode] = {}
    zxid = end = 0
    for body in _frames(data):
        zxid, changes = msgpack.unpackb(body)
        for changed, node in changes:
            if node is None:
                nodes.pop(changed, None)  # made and deleted within one frame
            else:
                nodes[changed] = Znode(*node)
        end += _HEAD.size + len(body)
    if end < len(data):
        broken = _HEAD.unpack_from(data, end)[0] if end + _HEAD.size <= len(data) else 0
        follows = next(_frames(data, end + _HEAD.size + broken), None) if broken else None
        if end == 0 or follows is not None:
            raise StorageError(f"{path} is damaged at byte {end}: {_REMEDY}")
    if not data:
        raise StorageError(f"{path} is empty: {_REMEDY}")
    return nodes, zxid
