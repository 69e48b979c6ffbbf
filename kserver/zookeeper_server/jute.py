"""The records of ZooKeeper's protocol, and their bytes.

Pure: bytes in, records out, and back.

A record's fields follow each other, big-endian, in the order of its class (ZooKeeper:
zookeeper.jute). A buffer, a text and a vector begin with their length in 4 bytes, where -1 stands
for null. Null is kept in buffers (a node's data may be null); a null text or vector is read as an
empty one. Every frame is such a sequence after its length:

    client   ConnectRequest, then ZooKeeperRequestHeader and the request of its type
    server   ConnectResponse, then ReplyHeader and the response, or WatcherEvent if xid is -1

A multi is a sequence of MultiHeader and record, ended by a header whose `done` is set.
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from kserver.errors import ProtocolError

Int: TypeAlias = Annotated[int, "i"]
Long: TypeAlias = Annotated[int, "q"]
Bool: TypeAlias = Annotated[bool, "?"]

MAX_REQUEST_BYTES = 0xFFFFF
"""ZooKeeper's jute.maxbuffer."""

NOTIFICATION_XID, PING_XID = -1, -2


class OpCode(enum.IntEnum):
    """ZooKeeper: ZooDefs.OpCode."""

    ERROR = -1
    CLOSE_SESSION = -11
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107


class Err(enum.IntEnum):
    """ZooKeeper: KeeperException.Code."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class EventType(enum.IntEnum):
    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4


SYNC_CONNECTED = 3
"""The state in every WatcherEvent of this server."""


class ConnectRequest(NamedTuple):
    protocol_version: Int
    last_zxid_seen: Long
    timeout_ms: Int
    session_id: Long
    password: bytes | None


class ConnectResponse(NamedTuple):
    protocol_version: Int
    timeout_ms: Int
    session_id: Long
    password: bytes | None


class ZooKeeperRequestHeader(NamedTuple):
    xid: Int
    type: Int


class ReplyHeader(NamedTuple):
    xid: Int
    zxid: Long
    err: Int


class MultiHeader(NamedTuple):
    type: Int
    done: Bool
    err: Int


MULTI_END = MultiHeader(-1, True, -1)


class StatRecord(NamedTuple):
    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeral_owner: Long
    data_length: Int
    num_children: Int
    pzxid: Long


class AclRecord(NamedTuple):
    perms: Int
    scheme: str
    id: str


class ClientInfo(NamedTuple):
    scheme: str
    user: str


class Nothing(NamedTuple):
    """No body."""


class PathRequest(NamedTuple):
    """Sync, getACL, getEphemerals, getAllChildrenNumber."""

    path: str


class ReadRequest(NamedTuple):
    """Exists, getData, getChildren, getChildren2."""

    path: str
    watch: Bool


class CreateRequest(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[AclRecord, ...]
    flags: Int


class SetDataRequest(NamedTuple):
    path: str
    data: bytes | None
    version: Int


class VersionedRequest(NamedTuple):
    """Delete, check."""

    path: str
    version: Int


class SetAclRequest(NamedTuple):
    path: str
    acl: tuple[AclRecord, ...]
    version: Int


class AuthPacket(NamedTuple):
    type: Int
    scheme: str
    auth: bytes | None


class SetWatches(NamedTuple):
    relative_zxid: Long
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]


class SetWatches2(NamedTuple):
    relative_zxid: Long
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]
    persistent: tuple[str, ...]
    recursive: tuple[str, ...]


class WatchRequest(NamedTuple):
    """AddWatch with a mode, checkWatches and removeWatches with a type."""

    path: str
    kind: Int


class WatcherEvent(NamedTuple):
    type: Int
    state: Int
    path: str


class ErrorResponse(NamedTuple):
    err: Int


class PathResponse(NamedTuple):
    """Create, sync."""

    path: str


class Create2Response(NamedTuple):
    path: str
    stat: StatRecord


class StatResponse(NamedTuple):
    """Exists, setData, setACL."""

    stat: StatRecord


class GetDataResponse(NamedTuple):
    data: bytes | None
    stat: StatRecord


class NamesResponse(NamedTuple):
    """Response to getChildren and to getEphemerals."""

    names: tuple[str, ...]


class GetChildren2Response(NamedTuple):
    names: tuple[str, ...]
    stat: StatRecord


class GetAclResponse(NamedTuple):
    acl: tuple[AclRecord, ...]
    stat: StatRecord


class NumberResponse(NamedTuple):
    number: Int


class WhoAmIResponse(NamedTuple):
    infos: tuple[ClientInfo, ...]


R = TypeVar("R", bound=tuple[Any, ...])
Read: TypeAlias = Callable[["Reader"], Any]
Write: TypeAlias = Callable[[bytearray, Any], None]

_LENGTH = struct.Struct(">i")


class Reader:
    """Reads the records of a frame in order. Raises ProtocolError if a record exceeds the frame."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def record(self, kind: type[R]) -> R:
        return kind(*[read(self) for read, _ in _codecs(kind)])

    @property
    def remaining(self) -> int:
        return len(self._data) - self._at

    def boolean(self) -> bool:
        return self.packed(struct.Struct(">b")) != 0

    def packed(self, shape: struct.Struct) -> int:
        at = self._take(shape.size)
        value: int = shape.unpack_from(self._data, at)[0]
        return value

    def buffer(self) -> bytes | None:
        size = self.packed(_LENGTH)
        if size == -1:
            return None
        at = self._take(size)
        return self._data[at : at + size]

    def text(self) -> str:
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a string is not UTF-8: {error}") from None

    def vector(self, read: Read) -> tuple[Any, ...]:
        count = self.packed(_LENGTH)
        # Every element takes 4 bytes at least, so a larger count is invalid.
        if count < -1 or count * _LENGTH.size > self.remaining:
            raise ProtocolError(f"a vector of {count} in {self.remaining} bytes")
        return tuple(read(self) for _ in range(count))

    def multi(self, kind_of: Callable[[int], type[tuple[Any, ...]]]) -> Iterator[tuple[int, Any]]:
        """Yield the type and record of each operation."""
        while not (header := self.record(MultiHeader)).done:
            yield header.type, self.record(kind_of(header.type))

    def _take(self, size: int) -> int:
        at = self._at
        if not 0 <= size <= self.remaining:
            raise ProtocolError(f"{size} bytes announced, but {self.remaining} received")
        self._at += size
        return at


def encode(*records: tuple[Any, ...]) -> bytes:
    """Encode the records one after the other."""
    out = bytearray()
    for record in records:
        _write(out, record)
    return bytes(out)


def frame(*records: tuple[Any, ...]) -> bytes:
    """Encode the records with their length before them."""
    body = encode(*records)
    return _LENGTH.pack(len(body)) + body


def multi(results: Iterable[tuple[MultiHeader, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Return the records of a multi, from its operations' headers and records."""
    return [record for pair in results for record in pair] + [MULTI_END]


def _write(out: bytearray, record: tuple[Any, ...]) -> None:
    for value, (_, write) in zip(record, _codecs(type(record)), strict=True):
        write(out, value)


@functools.cache
def _codecs(kind: type[Any]) -> list[tuple[Read, Write]]:
    """Return how each field is read and written."""
    return [_codec(hint) for hint in get_type_hints(kind, include_extras=True).values()]


def _codec(hint: Any) -> tuple[Read, Write]:
    if get_origin(hint) is Annotated:
        code = get_args(hint)[1]
        if code == "?":
            return Reader.boolean, lambda out, value: out.append(bool(value))
        shape = struct.Struct(f">{code}")
        return lambda reader: reader.packed(shape), lambda out, value: out.extend(shape.pack(value))
    if hint is str:
        return Reader.text, lambda out, value: _write_buffer(out, value.encode())
    if get_origin(hint) is tuple:
        read, write = _codec(get_args(hint)[0])

        def write_all(out: bytearray, values: tuple[Any, ...]) -> None:
            out += _LENGTH.pack(len(values))
            for value in values:
                write(out, value)

        return lambda reader: reader.vector(read), write_all
    if hint == bytes | None:
        return Reader.buffer, _write_buffer
    return lambda reader: reader.record(hint), _write


def _write_buffer(out: bytearray, value: bytes | None) -> None:
    out += _LENGTH.pack(-1 if value is None else len(value))
    out += value or b""
