"""The tree of nodes: the effects of ZooKeeper's operations, and the watch events they cause.

Pure: no I/O, no clock, no await.

The embedded and the simulated ZooKeeper use it; the contract test compares both to the real one.
`ZnodeTransaction` tries requests one after the other on top of a tree, which is unchanged until
`commit`, so that no change is visible before it is on disk.

Rules (ZooKeeper: PrepRequestProcessor, DataTree, DataNode):
1. A multi is one transaction: all of its changes have the same zxid, and any failure undoes all.
2. A parent counts the children ever created; that count names the next sequential child. The
`cversion` that clients see counts the deletions too.
3. Creating a child changes the parent's pzxid and cversion, not its version or mtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kserver.world.zookeeper import (
    ANY_VERSION,
    NO_SESSION,
    Acl,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
    Stat,
    Watch,
    WatchEvent,
    WatchType,
    ZooKeeperError,
)

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
"""Permissions in an ACL, as bits (ZooKeeper: ZooDefs.Perms)."""


class Znode(NamedTuple):
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    children_created: int = 0
    num_children: int = 0
    owner: int = NO_SESSION
    acl: Acl = ()
    aversion: int = 0
    is_null: bool = False
    """Whether the data is null, not only empty."""

    @property
    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=2 * self.children_created - self.num_children,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=self.num_children,
            aversion=self.aversion,
        )


@dataclass(frozen=True, slots=True)
class SetAcl:
    path: str
    acl: Acl
    version: int = ANY_VERSION
    """Expected version of the ACL, not of the data."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An operation that was found invalid before it is applied to the tree."""

    path: str
    error: ZooKeeperError


TreeOp: TypeAlias = Op | SetAcl | Refused
Guard: TypeAlias = Callable[[Znode, int, str], None]
"""Raises NoAuth unless the node's ACL has the permission bit; the path is for the error."""


def let_pass(node: Znode, perms: int, path: str) -> None:
    pass


ROOT = Znode(b"", 0, 0, 0, 0, 0)


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def is_path(path: str) -> bool:
    return path == "/" or (path[:1] == "/" and all(path[1:].split("/")))


class Tree:
    def __init__(self, nodes: Mapping[str, Znode] | None = None) -> None:
        self.nodes: dict[str, Znode] = {"/": ROOT}
        self._names: dict[str, set[str]] = {}
        self.change(nodes or {})

    def node(self, path: str) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def children(self, path: str) -> list[str]:
        self.node(path)
        return sorted(self._names.get(path, ()))

    def change(self, changes: Mapping[str, Znode | None]) -> None:
        """Set these nodes, and remove those that are None."""
        for path, node in changes.items():
            parent, name = parent_of(path), path[path.rindex("/") + 1 :]
            if node is None:
                self.nodes.pop(path, None)
                self._names.get(parent, set()).discard(name)
                self._names.pop(path, None)
            else:
                self.nodes[path] = node
                if name:
                    self._names.setdefault(parent, set()).add(name)

    def check(self) -> None:
        for path, node in self.nodes.items():
            assert is_path(path)
            names = self._names.get(path, set())
            assert node.num_children == len(names) <= node.children_created
            assert all(f"{path.rstrip('/')}/{name}" in self.nodes for name in names)
            assert not (node.owner and names), "an ephemeral node has no children"
            assert path == "/" or parent_of(path) in self.nodes


class ZnodeTransaction:
    """Requests to be committed to `tree`; each sees those before it."""

    def __init__(self, tree: Tree) -> None:
        self.changes: dict[str, Znode | None] = {}
        self.events: list[WatchEvent] = []
        self._tree = tree
        self._tried: dict[str, Znode | None] = {}
        self._guard: Guard = let_pass

    def apply(
        self,
        ops: Sequence[TreeOp],
        *,
        zxid: int,
        now_ms: int,
        session: int,
        guard: Guard = let_pass,
    ) -> list[OpResult]:
        """Apply all operations, or none and raise the error of the first that failed."""
        self._tried = {}
        self._guard = guard
        events: list[WatchEvent] = []
        results: list[OpResult] = []
        try:
            for op in ops:
                results.append(self._apply(op, zxid, now_ms, session, events))
        except ZooKeeperError as error:
            error.op = len(results)
            raise
        self.changes |= self._tried
        self.events += events
        return results

    def missing_parents(self, path: str) -> Iterator[Create]:
        """Return operations that create the missing parents, the topmost first."""
        self._tried = {}
        ancestors = []
        while (path := parent_of(path)) != "/" and self._node(path) is None:
            ancestors.append(path)
        return map(Create, reversed(ancestors))

    def commit(self) -> list[WatchEvent]:
        """Apply the changes to the tree; return the events in order."""
        self._tree.change(self.changes)
        return self.events

    def _apply(
        self, op: TreeOp, zxid: int, now_ms: int, session: int, events: list[WatchEvent]
    ) -> OpResult:
        if isinstance(op, Refused):
            raise op.error
        assert is_path(op.path) or (isinstance(op, Create) and op.sequence)
        match op:
            case Create():
                return self._create(op, zxid, now_ms, session, events)
            case SetData():
                node = self._existing(op.path, op.version, WRITE)._replace(
                    data=op.data or b"", is_null=op.data is None, mzxid=zxid, mtime_ms=now_ms
                )
                self._tried[op.path] = node = node._replace(version=node.version + 1)
                events.append(WatchEvent(WatchType.CHANGED, op.path))
                return node.stat
            case Delete():
                self._delete(op, zxid, events)
            case Check():
                self._existing(op.path, op.version, READ)
            case SetAcl():
                node = self._existing(op.path, ANY_VERSION, ADMIN)
                if op.version not in (ANY_VERSION, node.aversion):
                    raise BadVersion(op.path)
                node = node._replace(acl=op.acl, aversion=node.aversion + 1)
                self._tried[op.path] = node
                return node.stat
        return None

    def _create(
        self, op: Create, zxid: int, now_ms: int, session: int, events: list[WatchEvent]
    ) -> str:
        parent_path = parent_of(op.path)
        parent = self._node(parent_path)
        if parent is None:
            raise NoNode(op.path)
        self._guard(parent, CREATE, op.path)
        path = f"{op.path}{parent.children_created:010d}" if op.sequence else op.path
        if self._node(path) is not None:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        owner = session if op.ephemeral else NO_SESSION
        node = Znode(op.data or b"", zxid, zxid, zxid, now_ms, now_ms, owner=owner)
        self._tried[path] = node._replace(acl=op.acl, is_null=op.data is None)
        self._tried[parent_path] = parent._replace(
            pzxid=zxid,
            children_created=parent.children_created + 1,
            num_children=parent.num_children + 1,
        )
        events.append(WatchEvent(WatchType.CREATED, path))
        events.append(WatchEvent(WatchType.CHILDREN, parent_path))
        return path

    def _delete(self, op: Delete, zxid: int, events: list[WatchEvent]) -> None:
        assert op.path != "/"
        parent_path = parent_of(op.path)
        parent = self._node(parent_path)
        if parent is None:
            raise NoNode(op.path)
        self._guard(parent, DELETE, op.path)
        if self._existing(op.path, op.version).num_children:
            raise NotEmpty(op.path)
        self._tried[op.path] = None
        self._tried[parent_path] = parent._replace(pzxid=zxid, num_children=parent.num_children - 1)
        events.append(WatchEvent(WatchType.DELETED, op.path))
        events.append(WatchEvent(WatchType.CHILDREN, parent_path))

    def _existing(self, path: str, version: int, perms: int = 0) -> Znode:
        node = self._node(path)
        if node is None:
            raise NoNode(path)
        if perms:
            self._guard(node, perms, path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def node(self, path: str) -> Znode | None:
        """Return the node as it is after the applied requests."""
        return self.changes[path] if path in self.changes else self._tree.nodes.get(path)

    def _node(self, path: str) -> Znode | None:
        for changes in (self._tried, self.changes):
            if path in changes:
                return changes[path]
        return self._tree.nodes.get(path)


def end_of_session(tree: Tree, session: int | None = None) -> list[Op]:
    """Return operations that delete a session's ephemeral nodes; without a session, all
    sessions'.
    """
    return [
        Delete(path)
        for path, node in sorted(tree.nodes.items())
        if node.owner and session in (None, node.owner)
    ]


class Watches:
    """One client's watches, each called once."""

    def __init__(self) -> None:
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def on_data(self, path: str, watch: Watch) -> None:
        self._data.setdefault(path, {})[watch] = None

    def on_children(self, path: str, watch: Watch) -> None:
        self._children.setdefault(path, {})[watch] = None

    def take(self, event: WatchEvent) -> list[Watch]:
        """Remove and return the watches that `event` triggers, in the order in which they were
        set.
        """
        watches: list[Watch] = []
        if event.type is not WatchType.CHILDREN:
            watches += self._data.pop(event.path, ())
        if event.type in (WatchType.CHILDREN, WatchType.DELETED):
            watches += self._children.pop(event.path, ())
        return watches
