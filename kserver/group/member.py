"""ClassicGroupMember: one consumer of a classic group, with its waiting requests.

Pure: values only.
"""

from __future__ import annotations

from collections.abc import Collection

from kserver.coordinator.shard import Ticket

Protocols = tuple[tuple[str, bytes], ...]
"""Names and the member's metadata for each, in order of preference."""


class ClassicGroupMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "has_new_id",
        "id",
        "instance_id",
        "is_new",
        "join_ticket",
        "protocols",
        "rebalance_ms",
        "session_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_ms: int,
        session_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.id = id
        self.instance_id = instance_id
        """Instance id of a static member (KIP-345)."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_ms = rebalance_ms
        self.session_ms = session_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.is_new = False
        """Whether its first JoinGroup is not answered yet, so that it sends no heartbeats."""
        self.has_new_id = False
        """Whether no JoinGroup response has contained its id yet."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for other members: it cannot send heartbeats then, and needs none."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.id} has no protocol {protocol}")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that it prefers."""
        return next(name for name, _ in self.protocols if name in candidates)
