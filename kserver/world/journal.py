"""The file of a tree of znodes and of ZooKeeper's sessions: a journal of changes.

The file is a sequence of frames: length and CRC-32 (big-endian, 4 bytes each) before a msgpack body
`[zxid, [[path, node | nil], ...]]`, the changes in order, a node as the fields of
`znode_tree.Znode`, without the last ones if they have their defaults. If sessions changed too,
`[[id, [timeout, password] | nil], ...]` is a third element.

The first frame has the whole state. It is written, and later replaced, by `Disk.replace_file`. Each
later frame is appended and synced before its changes are visible and before the next one is
written. Hence, on reading:

    the first frame is broken                           the file was damaged: StorageError
    a later one is broken, and a valid one follows      likewise
    a later one is broken, and no valid one follows     a crash while it was written: it is ignored

After a failed append the next write replaces the file, because the content of a file whose sync
failed is unknown.

A journal with a reserve keeps at least `reserve_bytes` of zeros behind its last frame. Appends
overwrite these zeros and add as many, so they need no new space on a full disk. There, a write that
would leave less than the reserve is refused, unless it is a change that frees space, such as
deleting a topic. (A copy-on-write file system, btrfs or ZFS, may still refuse it.)
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
"""How far the journal may outgrow twice its first frame before it is rewritten."""
_PLAIN = Znode._fields.index("acl")
"""Number of fields of a node in a broker's own store."""
_DEFAULTS = tuple(Znode._field_defaults[name] for name in Znode._fields[_PLAIN:])


class StoredSession(NamedTuple):
    timeout_ms: int
    password: bytes


class JournalEntry(NamedTuple):
    """The whole state, or changes to it; in changes, None stands for a removal."""

    zxid: int
    nodes: Mapping[str, Znode | None]
    sessions: Mapping[int, StoredSession | None] = {}


class Restored(NamedTuple):
    zxid: int
    nodes: dict[str, Znode]
    sessions: dict[int, StoredSession]


class Journal:
    """The caller has to make one write at a time."""

    def __init__(
        self, disk: Disk, path: str, remedy: str = _REMEDY, *, reserve_bytes: int = 0
    ) -> None:
        self._disk = disk
        self.path = path
        self._remedy = remedy
        self._reserve_bytes = reserve_bytes
        self._file: File | None = None
        """The open file, if everything up to `_end` is on disk; None if the next write replaces
        it.
        """
        self._must_replace = True
        """Whether a write replaces `_file` if there is space for that."""
        self._end = 0
        """Bytes of all frames."""
        self._whole = 0
        """Bytes of the first frame."""
        self._size = 0
        """Bytes of all frames and of the zeros behind them."""

    def size(self) -> int:
        """Return the bytes of the file. Raises OSError."""
        return (self._file or self._disk.open(self.path)).size()

    async def read(self) -> Restored:
        """Read the file. Raises StorageError if it is damaged, FileNotFoundError if it is
        missing.
        """
        data = await self._disk.offload(lambda: self._disk.read_file(self.path))
        result = restored(data, self.path, self._remedy)
        if self._reserve_bytes:
            sizes = [_HEAD.size + len(body) for body in _frames(data)]
            self._whole, self._end, self._size = sizes[0], sum(sizes), len(data)
            if not any(data[self._end :]):
                self._file = self._disk.open(self.path)
        return result

    async def write(
        self, change: JournalEntry, before: JournalEntry, *, makes_room: bool = False
    ) -> None:
        """Write the change to disk, on top of `before`. Raises OSError.

        On a full disk, a change that `makes_room` may use the reserve.
        """
        file, self._file = self._file, None
        frame = _frame(change)
        limit = 2 * self._whole + _SLACK_BYTES
        try:
            if file is not None and not self._must_replace and self._end + len(frame) <= limit:
                await self._disk.offload(lambda: self._extend(file, self._end + len(frame)))
            else:
                whole = JournalEntry(
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

    def close(self, whole: JournalEntry) -> None:
        """Close with one frame in the file, so that any truncation is detected as damage. Raises
        OSError.
        """
        if self._file is None or self._end > self._whole:
            self._replace(whole)
        self._file = None

    def _replace(self, whole: JournalEntry) -> None:
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
        """Add zeros unless the reserve exists behind `end`. Raises OSError if it cannot be
        added.
        """
        if not self._reserve_bytes or end + self._reserve_bytes <= self._size:
            return
        # Twice the reserve, so that few appends have to extend the file.
        zeros = bytes(end + 2 * self._reserve_bytes - self._size)
        try:
            file.write_at(self._size, zeros)
            self._size += len(zeros)
        except OSError as error:
            self._size = max(self._size, file.size())  # a part of them may have been written
            if error.errno not in NO_ROOM or end + self._reserve_bytes > self._size:
                raise


def _over(before: Mapping[Any, T | None], change: Mapping[Any, T | None]) -> dict[Any, T | None]:
    return {key: value for key, value in {**before, **change}.items() if value is not None}


def _frame(stored: JournalEntry) -> bytes:
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
    """Yield the bodies of the valid frames from `at` up to the first broken one."""
    while at + _HEAD.size <= len(data):
        size, crc = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        body = data[at : at + size]
        # Zeros, as a crash may leave them, would match the CRC of an empty body.
        if not 0 < size == len(body) or zlib.crc32(body) != crc:
            return
        yield body
        at += size


def restored(data: bytes, path: str, remedy: str = _REMEDY) -> Restored:
    """Return the state in the file's bytes. Raises StorageError if they are damaged."""
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
