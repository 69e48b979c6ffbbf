"""Requests as operations on the tree, and the results as responses.

Pure: records in, operations out, and back.

    writes   create, create2, delete, setData, setACL, check, multi     `ZnodeChange`, for the store
    reads    all others                                                 `reads`

Refused as Unimplemented: containers, TTL nodes, reconfig, SASL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kserver.world.znode_tree import Refused, SetAcl, TreeOp, is_path
from kserver.world.zookeeper import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    OpResult,
    SessionExpired,
    SetData,
    Stat,
    ZooKeeperError,
)
from kserver.zookeeper_server.acl import Identity, InvalidAcl, resolved
from kserver.zookeeper_server.jute import (
    Create2Response,
    CreateRequest,
    Err,
    ErrorResponse,
    MultiHeader,
    Nothing,
    OpCode,
    PathRequest,
    PathResponse,
    Reader,
    ReadRequest,
    SetAclRequest,
    SetDataRequest,
    StatRecord,
    StatResponse,
    VersionedRequest,
)


class BadArguments(ZooKeeperError):
    pass


class Unimplemented(ZooKeeperError):
    pass


class NoWatcher(ZooKeeperError):
    pass


ERRORS: dict[type[ZooKeeperError], Err] = {
    NoNode: Err.NO_NODE,
    NoAuth: Err.NO_AUTH,
    BadVersion: Err.BAD_VERSION,
    NoChildrenForEphemerals: Err.NO_CHILDREN_FOR_EPHEMERALS,
    NodeExists: Err.NODE_EXISTS,
    NotEmpty: Err.NOT_EMPTY,
    SessionExpired: Err.SESSION_EXPIRED,
    InvalidAcl: Err.INVALID_ACL,
    BadArguments: Err.BAD_ARGUMENTS,
    Unimplemented: Err.UNIMPLEMENTED,
    NoWatcher: Err.NO_WATCHER,
}

_WRITES: dict[int, type[tuple[Any, ...]]] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateRequest,
    OpCode.DELETE: VersionedRequest,
    OpCode.DELETE_CONTAINER: PathRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.SET_ACL: SetAclRequest,
    OpCode.CHECK: VersionedRequest,
}
_READS: dict[int, type[tuple[Any, ...]]] = {
    OpCode.GET_DATA: ReadRequest,
    OpCode.GET_CHILDREN: ReadRequest,
}
_EPHEMERAL, _SEQUENCE = 1, 2
_PLAIN_FLAGS = range(4)
"""Supported flags of a create; larger ones are containers and TTL nodes (ZooKeeper: CreateMode)."""


OWN_NODES = frozenset({"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"})
"""Nodes that cannot be deleted."""


class ZnodeOperation(NamedTuple):
    """One operation of a change: its request type, and the operation on the tree."""

    type: int
    op: TreeOp


class ZnodeChange(NamedTuple):
    operations: list[ZnodeOperation]
    is_multi: bool = False


def change_of(kind: int, reader: Reader, identities: Sequence[Identity]) -> ZnodeChange | None:
    """Decode a change; return None if the request is not one. Raises ProtocolError if it is
    invalid.
    """
    if kind == OpCode.MULTI:
        operations = [
            ZnodeOperation(each, _op(each, record, identities))
            for each, record in reader.multi(_kind_in_multi)
        ]
        return ZnodeChange(operations, is_multi=True)
    if kind not in _WRITES:
        return None
    record = reader.record(_WRITES[kind])
    return ZnodeChange([ZnodeOperation(kind, _op(kind, record, identities))])


def reads_of(reader: Reader) -> list[tuple[int, ReadRequest]]:
    """Decode the reads of a multiRead."""
    return list(reader.multi(lambda kind: _READS.get(kind, VersionedRequest)))


def _kind_in_multi(kind: int) -> type[tuple[Any, ...]]:
    # After an unknown operation the rest could not be decoded.
    return _WRITES.get(kind, VersionedRequest)


def _op(kind: int, record: Any, identities: Sequence[Identity]) -> TreeOp:
    try:
        return _valid(kind, record, identities)
    except ZooKeeperError as error:
        return Refused(record.path, error)


def _valid(kind: int, record: Any, identities: Sequence[Identity]) -> TreeOp:
    path: str = record.path
    match record:
        case CreateRequest():
            if kind not in (OpCode.CREATE, OpCode.CREATE2) or record.flags not in _PLAIN_FLAGS:
                raise Unimplemented(path)
            is_sequence = bool(record.flags & _SEQUENCE)
            valid_path(path + "0" if is_sequence else path)
            if path == "/":
                raise NodeExists(path)
            acl = resolved(path, record.acl, identities)
            is_ephemeral = bool(record.flags & _EPHEMERAL)
            return Create(path, record.data, is_ephemeral, is_sequence, acl)
        case SetDataRequest():
            return SetData(valid_path(path), record.data, record.version)
        case SetAclRequest():
            acl = resolved(path, record.acl, identities)
            return SetAcl(valid_path(path), acl, record.version)
        case VersionedRequest() if kind == OpCode.DELETE:
            if valid_path(path) in OWN_NODES:
                raise BadArguments(path)
            return Delete(path, record.version)
        case VersionedRequest() if kind == OpCode.CHECK:
            return Check(valid_path(path), record.version)
    raise Unimplemented(path)


def valid_path(path: str) -> str:
    """Return the path. Raises BadArguments if it is invalid (ZooKeeper: PathUtils.validatePath)."""
    if not is_path(path) or any(name in (".", "..") for name in path.split("/")):
        raise BadArguments(path)
    # ZooKeeper checks UTF-16 code units, so characters beyond U+FFFF are invalid.
    if any(c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\uf8ff" for c in path):
        raise BadArguments(path)
    if any(c >= "\ufff0" for c in path):
        raise BadArguments(path)
    return path


def responses_of(
    change: ZnodeChange, results: Sequence[OpResult], stats: Sequence[Stat | None]
) -> list[tuple[MultiHeader, tuple[Any, ...]]]:
    """Return the result of each operation, with its header for a multi; `stats` are those of
    created nodes.
    """
    return [
        (MultiHeader(each.type, False, 0), _response_of(each.type, result, stat))
        for each, result, stat in zip(change.operations, results, stats, strict=True)
    ]


def failures(
    change: ZnodeChange, error: ZooKeeperError
) -> list[tuple[MultiHeader, tuple[Any, ...]]]:
    """Return the results of a failed multi: operations before the failed one were undone, those
    after it not tried.
    """
    codes = [
        Err.OK if at < error.op else Err.RUNTIME_INCONSISTENCY
        for at in range(len(change.operations))
    ]
    codes[error.op] = code_of(error)
    return [(MultiHeader(OpCode.ERROR, False, code), ErrorResponse(code)) for code in codes]


def code_of(error: ZooKeeperError) -> Err:
    return ERRORS[type(error)]


def _response_of(kind: int, result: OpResult, stat: Stat | None) -> tuple[Any, ...]:
    match result:
        case str() if kind == OpCode.CREATE2:
            assert stat is not None
            return Create2Response(result, stat_record(stat))
        case str():
            return PathResponse(result)
        case Stat():
            return StatResponse(stat_record(result))
    return Nothing()


def stat_record(stat: Stat) -> StatRecord:
    return StatRecord(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ctime=stat.ctime_ms,
        mtime=stat.mtime_ms,
        version=stat.version,
        cversion=stat.cversion,
        aversion=stat.aversion,
        ephemeral_owner=stat.ephemeral_owner,
        data_length=stat.data_length,
        num_children=stat.num_children,
        pzxid=stat.pzxid,
    )
