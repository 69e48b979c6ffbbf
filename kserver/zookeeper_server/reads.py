"""Requests that change nothing: reads, and the watches that they leave.

Pure: the tree and a record in, the response's records out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kserver.world.znode_tree import ADMIN, READ, Tree, Znode
from kserver.world.zookeeper import NoAuth, NoNode, ZooKeeperError
from kserver.zookeeper_server.acl import Identity, permits, visible_acl
from kserver.zookeeper_server.jute import (
    SYNC_CONNECTED,
    ClientInfo,
    Err,
    ErrorResponse,
    EventType,
    GetAclResponse,
    GetChildren2Response,
    GetDataResponse,
    MultiHeader,
    NamesResponse,
    Nothing,
    NumberResponse,
    OpCode,
    PathRequest,
    PathResponse,
    Reader,
    ReadRequest,
    SetWatches,
    SetWatches2,
    StatResponse,
    WatcherEvent,
    WatchRequest,
    WhoAmIResponse,
    multi,
)
from kserver.zookeeper_server.requests import (
    BadArguments,
    NoWatcher,
    Unimplemented,
    code_of,
    reads_of,
    stat_record,
    valid_path,
)
from kserver.zookeeper_server.watches import WatchKind, WatchTable

_TYPES: dict[int, tuple[WatchKind, ...]] = {
    # ZooKeeper: WatcherType
    1: (WatchKind.CHILDREN,),
    2: (WatchKind.DATA,),
    3: (WatchKind.DATA, WatchKind.CHILDREN, WatchKind.PERSISTENT, WatchKind.RECURSIVE),
    4: (WatchKind.PERSISTENT,),
    5: (WatchKind.RECURSIVE,),
}
_MODES = (WatchKind.PERSISTENT, WatchKind.RECURSIVE)
_RECORDS: dict[int, type[tuple[Any, ...]]] = {
    OpCode.EXISTS: ReadRequest,
    OpCode.GET_DATA: ReadRequest,
    OpCode.GET_CHILDREN: ReadRequest,
    OpCode.GET_CHILDREN2: ReadRequest,
    OpCode.GET_ACL: PathRequest,
    OpCode.GET_ALL_CHILDREN_NUMBER: PathRequest,
    OpCode.GET_EPHEMERALS: PathRequest,
    OpCode.SYNC: PathRequest,
    OpCode.SET_WATCHES: SetWatches,
    OpCode.SET_WATCHES2: SetWatches2,
    OpCode.ADD_WATCH: WatchRequest,
    OpCode.CHECK_WATCHES: WatchRequest,
    OpCode.REMOVE_WATCHES: WatchRequest,
    OpCode.WHO_AM_I: Nothing,
    OpCode.PING: Nothing,
}


class ReadOperation(NamedTuple):
    """A decoded request, to be answered in its turn."""

    type: int
    record: Any


def read_of(kind: int, reader: Reader) -> ReadOperation:
    """Decode a request. Raises ProtocolError if it is invalid."""
    if kind == OpCode.MULTI_READ:
        return ReadOperation(kind, reads_of(reader))
    return ReadOperation(kind, reader.record(_RECORDS[kind]) if kind in _RECORDS else None)


@dataclass(frozen=True, slots=True)
class View:
    """The tree as one connection may see it."""

    tree: Tree
    watches: WatchTable[Any]
    watcher: Hashable
    identities: Sequence[Identity]
    ephemerals: Callable[[], list[str]]
    notify: Callable[[WatcherEvent], None]
    """Sends an event to the client, before the response."""

    def response(self, read: ReadOperation) -> list[tuple[Any, ...]]:
        """Return the records of the response. Raises ZooKeeperError."""
        kind, record = read
        match kind:
            case OpCode.PING:
                return []
            case OpCode.MULTI_READ:
                return multi(self._each(*operation) for operation in record)
            case OpCode.SET_WATCHES | OpCode.SET_WATCHES2:
                self._set_watches(record)
                return []
            case OpCode.WHO_AM_I:
                infos = (ClientInfo(i.scheme, i.id.partition(":")[0]) for i in self.identities)
                return [WhoAmIResponse(tuple(infos))]
            case OpCode.GET_EPHEMERALS:
                prefix = record.path.strip()
                return [NamesResponse(tuple(p for p in self.ephemerals() if p.startswith(prefix)))]
            case OpCode.SYNC:
                return [PathResponse(record.path)]
        if record is None:
            raise Unimplemented
        return [self._one(kind, record)]

    def _one(self, kind: int, record: Any) -> tuple[Any, ...]:
        path = valid_path(record.path)
        match kind:
            case OpCode.EXISTS:
                return self._exists(record)
            case OpCode.GET_DATA:
                node = self._node(path, READ)
                self._watch(record, WatchKind.DATA)
                return GetDataResponse(None if node.is_null else node.data, stat_record(node.stat))
            case OpCode.GET_CHILDREN | OpCode.GET_CHILDREN2:
                node = self._node(path, READ)
                self._watch(record, WatchKind.CHILDREN)
                names = tuple(self.tree.children(path))
                if kind == OpCode.GET_CHILDREN:
                    return NamesResponse(names)
                return GetChildren2Response(names, stat_record(node.stat))
            case OpCode.GET_ACL:
                node = self._node(path, READ | ADMIN)
                acl = visible_acl(node.acl, whole=permits(node.acl, ADMIN, self.identities))
                return GetAclResponse(acl, stat_record(node.stat))
            case OpCode.GET_ALL_CHILDREN_NUMBER:
                self._node(path, READ)
                below = "/" if path == "/" else f"{path}/"
                return NumberResponse(
                    sum(p.startswith(below) and p != path for p in self.tree.nodes)
                )
            case OpCode.ADD_WATCH:
                if record.kind not in range(len(_MODES)):
                    raise BadArguments(path)
                self.watches.add(self.watcher, _MODES[record.kind], path)
                return ErrorResponse(Err.OK)
            case OpCode.CHECK_WATCHES | OpCode.REMOVE_WATCHES:
                kinds = _TYPES.get(record.kind, ())
                act = self.watches.has if kind == OpCode.CHECK_WATCHES else self.watches.remove
                if not act(self.watcher, kinds, path):
                    raise NoWatcher(path)
                return Nothing()
        raise Unimplemented(path)

    def _exists(self, record: ReadRequest) -> tuple[Any, ...]:
        node = self.tree.nodes.get(record.path)
        if node is not None:
            self._permit(node, READ, record.path)
        self._watch(record, WatchKind.DATA)
        if node is None:
            raise NoNode(record.path)
        return StatResponse(stat_record(node.stat))

    def _each(self, kind: int, record: Any) -> tuple[MultiHeader, tuple[Any, ...]]:
        """Return the result of one read of a multiRead."""
        try:
            return MultiHeader(kind, False, Err.OK), self._one(kind, record)
        except ZooKeeperError as error:
            code = code_of(error)
            return MultiHeader(OpCode.ERROR, False, code), ErrorResponse(code)

    def _set_watches(self, request: SetWatches | SetWatches2) -> None:
        """Restore watches after a lost connection: send the client the events that it missed, and
        watch the other nodes again (ZooKeeper: DataTree.setWatches).
        """
        since = request.relative_zxid
        for path in request.data:
            node = self.tree.nodes.get(path)
            if node is None:
                self._notify(EventType.DELETED, path)
            elif node.mzxid > since:
                self._notify(EventType.CHANGED, path)
            else:
                self.watches.add(self.watcher, WatchKind.DATA, path)
        for path in request.exist:
            if path in self.tree.nodes:
                self._notify(EventType.CREATED, path)
            else:
                self.watches.add(self.watcher, WatchKind.DATA, path)
        for path in request.child:
            node = self.tree.nodes.get(path)
            if node is None:
                self._notify(EventType.DELETED, path)
            elif node.pzxid > since:
                self._notify(EventType.CHILDREN, path)
            else:
                self.watches.add(self.watcher, WatchKind.CHILDREN, path)
        if isinstance(request, SetWatches2):
            for kind, paths in zip(_MODES, (request.persistent, request.recursive), strict=True):
                for path in paths:
                    self.watches.add(self.watcher, kind, path)

    def _notify(self, kind: EventType, path: str) -> None:
        self.notify(WatcherEvent(kind, SYNC_CONNECTED, path))

    def _watch(self, record: ReadRequest, kind: WatchKind) -> None:
        if record.watch:
            self.watches.add(self.watcher, kind, record.path)

    def _node(self, path: str, perms: int) -> Znode:
        node = self.tree.node(path)
        self._permit(node, perms, path)
        return node

    def _permit(self, node: Znode, perms: int, path: str) -> None:
        if not permits(node.acl, perms, self.identities):
            raise NoAuth(path)
