"""The durable tree and sessions: every change is on disk before it is visible.

Changes submitted while the disk is busy go together into the journal's next frame, so that many
clients share one sync. Each has a zxid of its own, is visible to those after it, and is answered in
the order of submission. All watch events are sent before the first response.

A disk failure stops the server, because the state on disk is then unknown; clients without a
response retry later or elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kserver.errors import StorageError
from kserver.world.clock import Clock
from kserver.world.disk import Disk
from kserver.world.journal import Journal, JournalEntry, StoredSession
from kserver.world.znode_tree import ROOT, Guard, Tree, TreeOp, Znode, ZnodeTransaction, let_pass
from kserver.world.zookeeper import (
    Delete,
    Grant,
    OpResult,
    SessionExpired,
    Stat,
    WatchEvent,
    ZooKeeperError,
)

FILE = "znodes.msgpack"
"""Name of the file in `dataDir`."""
REMEDY = "restore it from a copy, or move it away and begin with an empty tree"

_NEW = Znode(b"", 0, 0, 0, 0, 0)
FIRST: dict[str, Znode] = {
    # The nodes that ZooKeeper creates, which it does not count as created.
    "/": ROOT._replace(num_children=1),
    "/zookeeper": _NEW._replace(num_children=2),
    "/zookeeper/config": _NEW._replace(acl=(Grant(1, "world", "anyone"),)),
    "/zookeeper/quota": _NEW,
}


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a change: its zxid, or the last one before it if the change was refused."""

    zxid: int
    results: list[OpResult] = field(default_factory=list)
    stats: list[Stat | None] = field(default_factory=list)
    """Stats of the created nodes, by operation."""
    error: ZooKeeperError | None = None


OnDone: TypeAlias = Callable[[Done], None]


@dataclass(frozen=True, slots=True)
class ChangeNodes:
    session: int
    ops: list[TreeOp]
    on_done: OnDone
    guard: Guard = let_pass


@dataclass(frozen=True, slots=True)
class OpenSession:
    session: int
    stored: StoredSession
    on_done: OnDone


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Closes a session and deletes its ephemeral nodes."""

    session: int
    on_done: OnDone


Write: TypeAlias = ChangeNodes | OpenSession | CloseSession


@dataclass(slots=True)
class _Batch:
    """Changes that are being written to disk."""

    nodes: ZnodeTransaction
    zxid: int
    sessions: dict[int, StoredSession | None] = field(default_factory=dict)


class Store:
    def __init__(self, disk: Disk, directory: str, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._journal = Journal(disk, f"{directory}/{FILE}", REMEDY)
        self.tree = Tree()
        self.sessions: dict[int, StoredSession] = {}
        self.zxid = 0
        """zxid of the last visible change."""
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._waiting: list[Write] = []
        self._some = asyncio.Event()
        self._is_stopping = False

    async def open(self) -> None:
        """Read or create the file. Raises StorageError if it is damaged or cannot be written."""
        if self._disk.exists(self._journal.path):
            stored = await self._journal.read()
            self.tree, self.zxid = Tree(stored.nodes), stored.zxid
            self.sessions = stored.sessions
            self._index(stored.nodes)
        else:
            self.tree = Tree(FIRST)
        await self._write(_Batch(ZnodeTransaction(self.tree), self.zxid))

    def ephemerals(self, session: int) -> list[str]:
        return sorted(self._ephemerals.get(session, ()))

    def owners(self) -> dict[int, list[str]]:
        """Return the ephemeral nodes of each session that has some."""
        return {session: sorted(paths) for session, paths in self._ephemerals.items()}

    def size_bytes(self) -> int:
        """Return the bytes on disk, or 0 if the file cannot be read."""
        try:
            return self._journal.size()
        except OSError:
            return 0

    @property
    def ephemerals_count(self) -> int:
        return sum(map(len, self._ephemerals.values()))

    def submit(self, write: Write) -> None:
        """Submit a change; its `on_done` is called once it is durable or refused, in order of
        submission.
        """
        self._waiting.append(write)
        self._some.set()

    async def run(self, on_event: Callable[[WatchEvent], None]) -> None:
        """Write submitted changes; `on_event(event)` is called before any `on_done`. Returns
        once all that was submitted before `stop` is written.
        """
        while self._waiting or not self._is_stopping:
            await self._some.wait()
            self._some.clear()
            writes, self._waiting = self._waiting, []
            batch = _Batch(ZnodeTransaction(self.tree), self.zxid)
            outcomes = [self._try(write, batch) for write in writes]
            if batch.zxid > self.zxid:
                await self._write(batch)
            self._index(batch.nodes.changes)
            for event in self._commit(batch):
                on_event(event)
            for write, done in zip(writes, outcomes, strict=True):
                write.on_done(done)

    def stop(self) -> None:
        self._is_stopping = True
        self._some.set()

    def close(self) -> None:
        """Close the journal, after `run` has returned. Raises StorageError."""
        try:
            self._journal.close(JournalEntry(self.zxid, self.tree.nodes, self.sessions))
        except OSError as error:
            raise self._failed(error) from error

    def _try(self, write: Write, batch: _Batch) -> Done:
        zxid = batch.zxid + 1
        try:
            results = self._apply(write, batch, zxid)
        except ZooKeeperError as error:
            return Done(batch.zxid, error=error)
        batch.zxid = zxid
        stats = [
            node.stat if isinstance(path, str) and (node := batch.nodes.node(path)) else None
            for path in results
        ]
        return Done(zxid, results, stats)

    def _apply(self, write: Write, batch: _Batch, zxid: int) -> list[OpResult]:
        ops: list[TreeOp] = []
        guard: Guard = let_pass
        match write:
            case OpenSession():
                batch.sessions[write.session] = write.stored
                return []
            case CloseSession():
                ops += map(Delete, self._left_by(write.session, batch))
                batch.sessions[write.session] = None
            case ChangeNodes():
                if self._session(write.session, batch) is None:
                    raise SessionExpired
                ops, guard = write.ops, write.guard
        return batch.nodes.apply(
            ops, zxid=zxid, now_ms=self._clock.now_ms(), session=write.session, guard=guard
        )

    def _session(self, session: int, batch: _Batch) -> StoredSession | None:
        if session in batch.sessions:
            return batch.sessions[session]
        return self.sessions.get(session)

    def _left_by(self, session: int, batch: _Batch) -> list[str]:
        paths = set(self._ephemerals.get(session, ()))
        for path, node in batch.nodes.changes.items():
            paths.discard(path)
            if node is not None and node.owner == session:
                paths.add(path)
        return sorted(paths)

    def _commit(self, batch: _Batch) -> list[WatchEvent]:
        self.zxid = batch.zxid
        for session, stored in batch.sessions.items():
            if stored is None:
                self.sessions.pop(session, None)
            else:
                self.sessions[session] = stored
        return batch.nodes.commit()

    def _index(self, changes: dict[str, Znode] | dict[str, Znode | None]) -> None:
        """Update the ephemeral nodes by session; the tree does not have the changes yet."""
        for path, node in changes.items():
            before = self.tree.nodes.get(path)
            if before is not None and before.owner:
                mine = self._ephemerals.get(before.owner, {})
                mine.pop(path, None)
                if not mine:
                    self._ephemerals.pop(before.owner, None)
            if node is not None and node.owner:
                self._ephemerals.setdefault(node.owner, {})[path] = None

    async def _write(self, batch: _Batch) -> None:
        change = JournalEntry(batch.zxid, batch.nodes.changes, batch.sessions)
        try:
            await self._journal.write(
                change, JournalEntry(self.zxid, self.tree.nodes, self.sessions)
            )
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"{self._journal.path} cannot be written: {error}")
