"""The file that keeps a tree of znodes, and ZooKeeper's sessions: a journal of changes.

The file holds frames: length and CRC-32 (big-endian, 4 bytes each) before a msgpack body
`[zxid, [[path, node | nil], ...]]`, the changes in the order made, a node as `znode_tree.Znode`
lists its fields, without the last where they are what they are by default.  Where sessions change
too, `[[id, [timeout, password] | nil], ...]` follows as a third element.

The first frame holds all that there is.  It and all that replaces it is written by
`Disk.replace_file`; a later one is appended and synced before anyone sees what it holds, and the
next is not written before.  Hence, on reading:

    the first frame is broken                      the file was damaged: StorageError
    a later one is, and a good one follows it      likewise
    a later one is, and nothing good follows it    a crash while it was written: it never happened

After a failed append the next write replaces the file: what the disk holds of a file whose sync
failed is unknown.

A journal with a reserve keeps at least `reserve_bytes` of zeros behind its last frame.  Appends go
into them, and add as many, so they need no new room on a full disk; a write that would leave less
than the reserve is refused there unless it is a change that makes room, such as deleting a topic.
(A file system that copies on write, btrfs or ZFS, may still refuse it.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgpack

from kserver.errors import NO_ROOM, StorageError
from kserver.world.disk import Disk, File
from kserver.world.znode_tree import Znode
from kserver.world.zookeeper import Grant

T = TypeVar("T")

_HEAD = struct.Struct(">II")
_REMEDY = (
    "restore it from a backup, or move it away and rebuild it from the logs with k storage rebuild"
)
_SLACK_BYTES = 1 << 20
"""How far the journal may outgrow twice its first frame before everything is written anew."""
_PLAIN = Znode._fields.index("acl")
"""How many fields a node of a broker's own store has."""
_DEFAULTS = tuple(Znode._field_defaults[name] for name in Znode._fields[_PLAIN:])


class StoredSession(NamedTuple):
    timeout_ms: int
    password: bytes


class Stored(NamedTuple):
    """All there is, or what has changed: then None is what was removed."""

    zxid: int
    nodes: Mapping[str, Znode | None]
    sessions: Mapping[int, StoredSession | None] = {}


class Restored(NamedTuple):
    zxid: int
    nodes: dict[str, Znode]
    sessions: dict[int, StoredSession]


class Journal:
    """One write at a time, which is the caller's care."""

    def __init__(
        self, disk: Disk, path: str, remedy: str = _REMEDY, *, reserve_bytes: int = 0
    ) -> None:
        self._disk = disk
        self.path = path
        self._remedy = remedy
        self._reserve_bytes = reserve_bytes
        self._file: File | None = None
        """The file, if everything up to `_end` is on disk; None if the next write replaces it."""
        self._must_replace = True
        """Whether a write replaces `_file` if there is room for that."""
        self._end = 0
        """Bytes of all frames."""
        self._whole = 0
        """Bytes of the first frame."""
        self._size = 0
        """Bytes of all frames and of the zeros behind them."""

    def size(self) -> int:
        """Bytes of the file; raises OSError."""
        return (self._file or self._disk.open(self.path)).size()

    async def read(self) -> Restored:
        """StorageError for a damaged file; FileNotFoundError."""
        data = await self._disk.offload(lambda: self._disk.read_file(self.path))
        result = restored(data, self.path, self._remedy)
        if self._reserve_bytes:
            sizes = [_HEAD.size + len(body) for body in _frames(data)]
            self._whole, self._end, self._size = sizes[0], sum(sizes), len(data)
            if not any(data[self._end :]):
                self._file = self._disk.open(self.path)
        return result

    async def write(self, change: Stored, before: Stored, *, makes_room: bool = False) -> None:
        """Put the change on disk, on top of `before`; raises OSError.

        On a full disk, a change that `makes_room` may take the reserve.
        """
        file, self._file = self._file, None
        frame = _frame(change)
        limit = 2 * self._whole + _SLACK_BYTES
        try:
            if file is not None and not self._must_replace and self._end + len(frame) <= limit:
                await self._disk.offload(lambda: self._extend(file, self._end + len(frame)))
            else:
                whole = Stored(
                    change.zxid,
                    _over(before.nodes, change.nodes),
                    _over(before.sessions, change.sessions),
                )
                await self._disk.offload(lambda: self._replace(whole))
                self._file = self._disk.open(self.path)
                return
        except OSError as error:
            if error.errno not in NO_ROOM or file is None:
                raise
            if not makes_room or self._end + len(frame) > self._size:
                self._file = file  # none of its frames was touched
                raise
        assert file is not None
        await self._disk.offload(lambda: _append(file, self._end, frame))
        self._end += len(frame)
        self._size = max(self._size, self._end)
        self._file = file

    def close(self, whole: Stored) -> None:
        """Leaves one frame, which is whole or known to be damaged, however it is cut; OSError."""
        if self._file is None or self._end > self._whole:
            self._replace(whole)
        self._file = None

    def _replace(self, whole: Stored) -> None:
        frame = _frame(whole)
        zeros = bytes(2 * self._reserve_bytes)
        try:
            self._disk.replace_file(self.path, frame + zeros)
        except OSError as error:
            if error.errno not in NO_ROOM or not zeros:
                raise
            zeros = b""
            self._disk.replace_file(self.path, frame)
        self._whole = self._end = len(frame)
        self._size = self._end + len(zeros)
        self._must_replace = False

    def _extend(self, file: File, end: int) -> None:
        """Add zeros unless the reserve is there behind `end`; OSError if it cannot be."""
        if not self._reserve_bytes or end + self._reserve_bytes <= self._size:
            return
        # Twice the reserve, so that few appends pay for it.
        zeros = bytes(end + 2 * self._reserve_bytes - self._size)
        try:
            file.write_at(self._size, zeros)
            self._size += len(zeros)
        except OSError as error:
            self._size = max(self._size, file.size())  # a part of them may have had room
            if error.errno not in NO_ROOM or end + self._reserve_bytes > self._size:
                raise


def _over(before: Mapping[Any, T | None], change: Mapping[Any, T | None]) -> dict[Any, T | None]:
    return {key: value for key, value in {**before, **change}.items() if value is not None}


def _frame(stored: Stored) -> bytes:
    rows: list[object] = [
        stored.zxid,
        [(path, _row(node)) for path, node in stored.nodes.items()],
    ]
    if stored.sessions:
        rows.append(list(stored.sessions.items()))
    body: bytes = msgpack.packb(rows)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _row(node: Znode | None) -> tuple[object, ...] | None:
    return node[:_PLAIN] if node is not None and node[_PLAIN:] == _DEFAULTS else node


def _node(row: list[Any]) -> Znode:
    node = Znode(*row)
    return node._replace(acl=tuple(Grant(*grant) for grant in node.acl)) if node.acl else node


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


def restored(data: bytes, path: str, remedy: str = _REMEDY) -> Restored:
    """What the file's bytes stand for; StorageError for a damaged file."""
    nodes: dict[str, Znode] = {}
    sessions: dict[int, StoredSession] = {}
    zxid = end = 0
    for body in _frames(data):
        zxid, changes, *more = msgpack.unpackb(body)
        for changed, row in changes:
            if row is None:
                nodes.pop(changed, None)  # made and deleted within one frame
            else:
                nodes[changed] = _node(row)
        for session, row in more[0] if more else ():
            if row is None:
                sessions.pop(session, None)
            else:
                sessions[session] = StoredSession(*row)
        end += _HEAD.size + len(body)
    if end < len(data):
        broken = _HEAD.unpack_from(data, end)[0] if end + _HEAD.size <= len(data) else 0
        follows = next(_frames(data, end + _HEAD.size + broken), None) if broken else None
        if end == 0 or follows is not None:
            raise StorageError(f"{path} is damaged at byte {end}: {remedy}")
    if not data:
        raise StorageError(f"{path} is empty: {remedy}")
    return Restored(zxid, nodes, sessions)
