"""What consumer groups (KIP-848) are asked, and what they answer.

Pure: values only.  As in requests.py: a refusal is a KafkaError in the place of the answer, and
durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kserver.group.consumer_events import MemberSubscription, Partitions

UNCHANGED_MS = -1


class ConsumerHeartbeat(NamedTuple):
    """Answered with ConsumerHeard.  None: as it was said before."""

    group_id: str
    member_id: str
    epoch: int
    """The member's; JOINING_EPOCH, LEFT_EPOCH and STATIC_LEFT_EPOCH to come and to go."""
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_ms: int = UNCHANGED_MS
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """Empty: none any more."""
    assignor: str | None = None
    owned: Partitions | None = None
    makes_member_id: bool = True
    """Since v1 the member comes with an id that it made itself (KIP-1082)."""

    @property
    def is_full(self) -> bool:
        """It says all there is to say, so it is told all as well."""
        says_topics = self.topics is not None or self.pattern is not None
        says_rest = self.rebalance_ms != UNCHANGED_MS and self.owned is not None
        return self.epoch == 0 or (says_topics and says_rest)


class ConsumerHeard(NamedTuple):
    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None
    """None: as it was."""


class DescribeConsumerGroup(NamedTuple):
    """Answered with DescribedConsumers; GROUP_ID_NOT_FOUND for one that there is not, or that is no
    consumer group."""

    group_id: str


class DescribedConsumer(NamedTuple):
    id: str
    subscription: MemberSubscription
    epoch: int
    assigned: Partitions
    target: Partitions


class DescribedConsumers(NamedTuple):
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: Sequence[DescribedConsumer]
