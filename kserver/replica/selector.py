"""Which replica a consumer reads from, where it says in which rack it is (KIP-392).

Pure: values in, a broker out.

    replica.selector.class       a consumer of rack r is sent to
    unset                        the leader
    RackAwareReplicaSelector     a replica in r: the leader, if it is in r, else the one with the
                                 longest log, of these the one that was caught up last; to the
                                 leader where none is in r

Only replicas in sync that have what the consumer asks for, and an address on its listener, are
candidates.  (Kafka: ReplicaSelector, RackAwareReplicaSelector, ReplicaManager.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kserver.model import BrokerId, Offset


class ReplicaView(NamedTuple):
    """A follower that could be read from."""

    broker: BrokerId
    rack: str | None
    log_end_offset: Offset
    caught_up_ms: int


def nearest(
    rack: str, leader: BrokerId, leader_rack: str | None, followers: Iterable[ReplicaView]
) -> BrokerId:
    """The one that a consumer in `rack` is to read from."""
    if leader_rack == rack:
        return leader
    near = [one for one in followers if one.rack == rack]
    if not near:
        return leader
    return max(near, key=lambda one: (one.log_end_offset, one.caught_up_ms, -one.broker)).broker
