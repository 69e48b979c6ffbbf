"""Requests and responses of consumer groups (KIP-848).

Pure: values only.  As in requests.py, an error is a KafkaError in place of the response, and
durations are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kserver.group.consumer_events import MemberSubscription, Partitions

UNCHANGED_MS = -1


class ConsumerHeartbeat(NamedTuple):
    """Answered with `ConsumerHeartbeatResult`.  Fields that are None are unchanged since the last
    heartbeat."""

    group_id: str
    member_id: str
    epoch: int
    """Member epoch; JOINING_EPOCH, LEFT_EPOCH or STATIC_LEFT_EPOCH to join or leave."""
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_ms: int = UNCHANGED_MS
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """Regular expression; empty to unsubscribe."""
    assignor: str | None = None
    owned: Partitions | None = None
    makes_member_id: bool = True
    """Whether the member generates its own id, as since v1 (KIP-1082)."""

    @property
    def is_full(self) -> bool:
        """Whether it reports all of its state, in which case the response has the full
        assignment."""
        says_topics = self.topics is not None or self.pattern is not None
        says_rest = self.rebalance_ms != UNCHANGED_MS and self.owned is not None
        return self.epoch == 0 or (says_topics and says_rest)


class ConsumerHeartbeatResult(NamedTuple):
    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None
    """Assigned partitions; None if unchanged."""


class DescribeConsumerGroup(NamedTuple):
    """Answered with DescribedConsumers, or GROUP_ID_NOT_FOUND if there is no consumer group of
    this id."""

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
