"""ZooKeeper as the broker sees it: a small tree of versioned nodes, with watches and sessions.

`ZooKeeper` is the protocol. `embedded.py` implements it in this process over one durable file,
`kazoo.py` on a real ensemble, and the simulated one is `tests/support/zookeeper.py`. One contract
test covers all three (`tests/contract/test_zookeeper.py`).

    ZooKeeperError
    +-- NoNode              no such node, or a created node's parent is missing
    +-- NodeExists
    +-- BadVersion          the node was changed concurrently: read it and decide again
    +-- NotEmpty            a node with children cannot be deleted
    +-- NoChildrenForEphemerals
    +-- NoAuth              the node's ACL does not permit this client the operation
    +-- ConnectionLost      not connected, or no longer: a write may have happened or not
    +-- SessionExpired      ephemerals were deleted; a new session is opened automatically

Paths are absolute, below the chroot if there is one, and end without a slash ("/" is the root).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1
NO_SESSION = 0
CLOSE_LIMIT_S = 1.0
"""Seconds that `ZooKeeper.close` waits for a server that does not respond."""


class ZooKeeperError(Exception):
    """An operation that was refused or got no response; `path` is the node it was about."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path
        self.op = 0
        """Index of the failed operation in a transaction."""

    def __str__(self) -> str:
        return f"{type(self).__name__} for {self.path}" if self.path else type(self).__name__


class NoNode(ZooKeeperError):
    pass


class NodeExists(ZooKeeperError):
    pass


class BadVersion(ZooKeeperError):
    pass


class NotEmpty(ZooKeeperError):
    pass


class NoChildrenForEphemerals(ZooKeeperError):
    pass


class NoAuth(ZooKeeperError):
    pass


class ConnectionLost(ZooKeeperError):
    pass


class SessionExpired(ZooKeeperError):
    pass


class Access(enum.Enum):
    """Access to a znode."""

    ALL = enum.auto()
    """Everyone may do everything."""
    READ = enum.auto()
    """Everyone may read it; only its creator may change it."""
    NONE = enum.auto()
    """Only its creator may read or change it."""


def open_to_all(_path: str) -> Access:
    return Access.ALL


class Login(NamedTuple):
    """A client's credentials at ZooKeeper."""

    user: str
    password: str
    by_sasl: bool
    """Whether to use DIGEST-MD5; else the scheme `digest`, which sends the password in the
    clear.
    """


class Stat(NamedTuple):
    """ZooKeeper's metadata of a node. A zxid is the number of the transaction that made a
    change.
    """

    czxid: int
    """zxid of its creation; Kafka's broker epoch is that of the broker's znode."""
    mzxid: int
    """zxid of the last change of its data."""
    pzxid: int
    """zxid of the last change of its children."""
    ctime_ms: int
    mtime_ms: int
    version: int
    """How often the data was set; 0 after creation."""
    cversion: int
    """How often a child was created or deleted."""
    ephemeral_owner: int
    """The session that an ephemeral node belongs to, else 0."""
    data_length: int
    num_children: int
    aversion: int = 0
    """How often the ACL was set."""


class WatchType(enum.Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    """Its data was set."""
    CHILDREN = "children"
    """A child was created or deleted."""


class WatchEvent(NamedTuple):
    type: WatchType
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]


class SessionEvent(enum.Enum):
    CONNECTED = "connected"
    """Connected again or for the first time; after EXPIRED with a new `session_id`. Watches have to
    be set again, by new reads.
    """
    DISCONNECTED = "disconnected"
    """The session and its ephemerals may live on until EXPIRED, but watches are lost."""
    EXPIRED = "expired"
    """Ephemerals were deleted. CONNECTED follows with a new session."""


SessionListener: TypeAlias = Callable[[SessionEvent], None]


class Grant(NamedTuple):
    """The permissions of one identity in an ACL."""

    perms: int
    scheme: str
    id: str


Acl: TypeAlias = tuple[Grant, ...]
"""Empty: everyone may do everything."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes | None = b""
    """None is read as empty here; ZooKeeper's clients distinguish them."""
    ephemeral: bool = False
    sequence: bool = False
    acl: Acl = ()


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Only a condition: the node exists and has this version."""

    path: str
    version: int = ANY_VERSION


Op: TypeAlias = Create | SetData | Delete | Check
OpResult: TypeAlias = str | Stat | None
"""A Create's path, a SetData's Stat, None for Delete and Check."""


class ZooKeeper(Protocol):
    """Every call may raise ConnectionLost or SessionExpired in addition to the errors it names.

    A watch is called once, on the loop, after the change is visible; to watch for the next change,
    read again with a new watch. Watches are lost, uncalled, with the connection. Calls of one
    client take effect in the order in which they were made.
    """

    @property
    def session_id(self) -> int:
        """NO_SESSION before the first connection."""

    async def start(self) -> None:
        """Return once there is a session. Raises ConnectionLost if none was opened in time."""

    async def close(self) -> None:
        """End the session, and with it this client's ephemerals; a second call does nothing.

        Raises nothing: if no server responds, returns after CLOSE_LIMIT_S, and the session ends by
        its timeout.
        """

    def on_session(self, listener: SessionListener) -> None:
        """Call `listener` on the loop with every SessionEvent from now on."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return data and stat; watch for CHANGED and DELETED. Raises NoNode, and sets no watch
        then.
        """

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the stat; watch for CREATED, CHANGED and DELETED, even if there is no node yet."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the children's names, sorted; watch for CHILDREN and DELETED. Raises NoNode, and
        sets no watch then.
        """

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node and return its path, which with `sequence` ends in ten digits. Raises
        NodeExists, or NoNode without a parent, unless `make_parents`, which creates missing ones,
        empty and persistent.
        """

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Set the data and return the new stat. Raises NoNode or BadVersion."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises NoNode, BadVersion or NotEmpty."""

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply all operations or none, each seeing those before it, and return one result each.
        Raises the error of the first that fails.
        """
