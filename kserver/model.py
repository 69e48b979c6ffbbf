"""Types that all folders share.

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
"""`acks` of a producer: the replicas that must have a batch before it is acknowledged."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

ANONYMOUS = "ANONYMOUS"
"""User of a connection that has not authenticated."""


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its directory, `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class QuotaEntity(NamedTuple):
    """Entity that a quota is set for: a user, a client id, both, or an address.  "" is the default
    for those without their own quota (`<default>`); None means that this part is not named."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        components = zip(("user", "client-id", "ip"), self, strict=True)
        return ", ".join(
            f"{kind} {name or '<default>'!a}" for kind, name in components if name is not None
        )


class OffsetAndEpoch(NamedTuple):
    offset: Offset
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address where a listener is bound, or that it advertises to clients."""

    listener: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Leader and ISR of one partition, as last decided by the controller."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: int = 0
    partition_epoch: int = 0
    is_recovering: bool = False
    """Whether its last election was unclean and the leader has not reported its recovery yet
    (KIP-704)."""


class ElectionType(enum.IntEnum):
    """Type of an election by ElectLeaders (KIP-460).  PREFERRED elects the first replica if it is
    in sync.  UNCLEAN elects a live replica, in sync or not, for a partition without a leader."""

    PREFERRED = 0
    UNCLEAN = 1
