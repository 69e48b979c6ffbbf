"""Access control lists of nodes: ZooKeeper's schemes world, ip, digest and auth.

Pure: identities and lists in, a verdict out.

A connection has identities, of which `ip` exists from the start. `digest` is a user's name and the
Base64 of the SHA-1 of "user:password"; a client that sends its password proves that it is that
user. `auth` in a client's list stands for all identities that it has proven.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kserver.world.znode_tree import Guard, Znode
from kserver.world.zookeeper import Acl, Grant, NoAuth, ZooKeeperError
from kserver.zookeeper_server.jute import AclRecord

ALL = 31
OPEN = Grant(ALL, "world", "anyone")
"""The grant that an empty list in the tree stands for."""
HIDDEN = "x"
"""Replaces a digest for clients that may not administer the node."""


class Identity(NamedTuple):
    scheme: str
    id: str


class InvalidAcl(ZooKeeperError):
    pass


def digest(secret: str) -> Identity:
    """Return the identity of "user:password"."""
    user = secret.partition(":")[0]
    hashed = hashlib.sha1(secret.encode(), usedforsecurity=False).digest()
    return Identity("digest", f"{user}:{base64.b64encode(hashed).decode()}")


def resolved(path: str, records: Iterable[AclRecord], identities: Sequence[Identity]) -> Acl:
    """Return a client's list with `auth` resolved. Raises InvalidAcl."""
    grants: dict[Grant, None] = {}
    for perms, scheme, who in records:
        if scheme == "auth":
            proven = [Grant(perms, *each) for each in identities if each.scheme != "ip"]
            if not proven:
                raise InvalidAcl(path)
            grants |= dict.fromkeys(proven)
        elif _is_valid(scheme, who):
            grants[Grant(perms, scheme, who)] = None
        else:
            raise InvalidAcl(path)
    if not grants:
        raise InvalidAcl(path)
    return () if list(grants) == [OPEN] else tuple(grants)


def visible_acl(acl: Acl, *, whole: bool) -> tuple[AclRecord, ...]:
    """Return a list for a getACL response; unless `whole`, passwords' hashes are hidden."""
    return tuple(
        AclRecord(perms, scheme, who)
        if whole or scheme != "digest"
        else AclRecord(perms, scheme, f"{who.partition(':')[0]}:{HIDDEN}")
        for perms, scheme, who in acl or (OPEN,)
    )


def permits(acl: Acl, perms: int, identities: Iterable[Identity]) -> bool:
    """Whether one of the identities has one of these permissions."""
    return not acl or any(
        grant.perms & perms
        and (
            (grant.scheme, grant.id) == ("world", "anyone")
            or any(_matches(identity, grant) for identity in identities)
        )
        for grant in acl
    )


def guard(identities: Sequence[Identity]) -> Guard:
    def permit(node: Znode, perms: int, path: str) -> None:
        if not permits(node.acl, perms, identities):
            raise NoAuth(path)

    return permit


def _is_valid(scheme: str, who: str) -> bool:
    match scheme:
        case "world":
            return who == "anyone"
        case "digest":
            return who.count(":") == 1
        case "ip":
            return _network(who) is not None
    return False


def _matches(identity: Identity, grant: Grant) -> bool:
    if identity.scheme != grant.scheme:
        return False
    if identity.scheme != "ip":
        return identity.id == grant.id
    network = _network(grant.id)
    return network is not None and ipaddress.ip_address(identity.id) in network


@functools.lru_cache(1000)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
