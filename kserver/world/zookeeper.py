"""ZooKeeper as the broker sees it: a small tree of versioned nodes, with watches and sessions.

`ZooKeeper` is the protocol.  `embedded.py` keeps it in this process over one durable file,
`kazoo.py` speaks to a real ensemble, and the simulated one is `tests/support/zookeeper.py`.  One
contract test holds for all three (`tests/contract/test_zookeeper.py`).

    ZooKeeperError
    +-- NoNode              no such node, or a created node's parent is missing
    +-- NodeExists
    +-- BadVersion          somebody wrote since: read again and decide again
    +-- NotEmpty            a node with children is not deleted
    +-- NoChildrenForEphemerals
    +-- NoAuth              the node's ACL does not let this client do that
    +-- ConnectionLost      not connected, or no longer: a write may have happened or not
    +-- SessionExpired      ephemerals are gone; a new session comes by itself

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
    """An operation that was refused or cannot be answered; `path` is what it was about."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path
        self.op = 0
        """Which operation of a transaction it was, from 0."""

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
    """Who may do what with a znode."""

    ALL = enum.auto()
    """Everybody anything."""
    READ = enum.auto()
    """Everybody may read it, and only who made it change it."""
    NONE = enum.auto()
    """Only who made it may read or change it."""


def open_to_all(_path: str) -> Access:
    return Access.ALL


class Login(NamedTuple):
    """Who a client is to ZooKeeper."""

    user: str
    password: str
    by_sasl: bool
    """By DIGEST-MD5; else in the scheme `digest`, which takes the password in the clear."""


class Stat(NamedTuple):
    """What ZooKeeper knows of a node.  A zxid numbers the transaction that made the change."""

    czxid: int
    """Created; Kafka's broker epoch is its broker znode's."""
    mzxid: int
    """Data last changed."""
    pzxid: int
    """Children last changed."""
    ctime_ms: int
    mtime_ms: int
    version: int
    """How often the data was set, 0 after creation."""
    cversion: int
    """How often a child was created or deleted."""
    ephemeral_owner: int
    """The session that the node goes with, else 0."""
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
    """A child came or went."""


class WatchEvent(NamedTuple):
    type: WatchType
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]


class SessionEvent(enum.Enum):
    CONNECTED = "connected"
    """Again or for the first time; after EXPIRED with a new `session_id`.  Read again whatever a
    watch is wanted for."""
    DISCONNECTED = "disconnected"
    """The session may live on and ephemerals stand until EXPIRED, but watches are lost."""
    EXPIRED = "expired"
    """Ephemerals are gone.  CONNECTED follows with a new session."""


SessionListener: TypeAlias = Callable[[SessionEvent], None]


class Grant(NamedTuple):
    """What an ACL lets one identity do."""

    perms: int
    scheme: str
    id: str


Acl: TypeAlias = tuple[Grant, ...]
"""Empty: everybody may do everything."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes | None = b""
    """None is read as empty here; ZooKeeper's clients tell them apart."""
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
    """Nothing but a condition: the node is there and has this version."""

    path: str
    version: int = ANY_VERSION


Op: TypeAlias = Create | SetData | Delete | Check
OpResult: TypeAlias = str | Stat | None
"""A Create's path, a SetData's Stat, None for Delete and Check."""


class ZooKeeper(Protocol):
    """Every call may raise ConnectionLost or SessionExpired besides what it names.

    A watch is called once, on the loop, after the change that it tells of is visible; a caller
    who wants the next change reads again with a new watch.  Watches are lost, uncalled, with the
    connection.  Calls of one client take effect in the order in which they were made.
    """

    @property
    def session_id(self) -> int:
        """NO_SESSION before the first connection."""

    async def start(self) -> None:
        """Returns once there is a session; ConnectionLost when none came in time."""

    async def close(self) -> None:
        """Ends the session, and with it this client's ephemerals; a second call does nothing.

        Raises nothing: where no server responds, returns after CLOSE_LIMIT_S, and the session
        ends by its timeout.
        """

    def on_session(self, listener: SessionListener) -> None:
        """Call `listener` on the loop with every SessionEvent from now on."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """NoNode, and then no watch is set.  Watches for CHANGED and DELETED."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Watches for CREATED, CHANGED and DELETED, also where there is no node yet."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted.  NoNode, and then no watch is set.  Watches for CHILDREN and DELETED."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """The path made, which with `sequence` ends in ten digits.  NodeExists; NoNode without a
        parent, unless `make_parents`, which makes the missing ones empty and lasting."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """NoNode, BadVersion."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """NoNode, BadVersion, NotEmpty."""

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All of them or none, each seeing those before it; one result each.  Raises the error of
        the first that fails."""
