"""The nouns that every room shares.

Pure: values only.

An *offset* counts records, a *position* counts bytes into a file, a *size* counts bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

BrokerId: TypeAlias = int
Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
ProducerId: TypeAlias = int

NO_BROKER: BrokerId = -1
NO_EPOCH: LeaderEpoch = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID: ProducerId = -1
LEADER_ONLY, ALL_IN_SYNC = 1, -1
"""A producer's `acks`: the replicas that must have a batch before it is acknowledged."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

ANONYMOUS = "ANONYMOUS"
"""The user of a connection that has not authenticated."""


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its directory, `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class QuotaEntity(NamedTuple):
    """Whom a quota is set for: a user, a client id, both, or an address.  "" stands for all that
    have no quota of their own (`<default>`), None for nobody in particular."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        named = zip(("user", "client-id", "ip"), self, strict=True)
        return ", ".join(
            f"{kind} {name or '<default>'!a}" for kind, name in named if name is not None
        )


class OffsetAndEpoch(NamedTuple):
    offset: Offset
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener is bound, or where clients are told to find it."""

    listener: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """One partition's leadership, as the controller last decided it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: int = 0
    partition_epoch: int = 0
    is_recovering: bool = False
    """Its last election was unclean, and the leader has not said since that it has recovered
    (KIP-704)."""


class ElectionType(enum.IntEnum):
    """Whom ElectLeaders makes the leader (KIP-460): the first replica, if it is in sync; or, where
    nobody leads, a replica that is there, in sync or not."""

    PREFERRED = 0
    UNCLEAN = 1
