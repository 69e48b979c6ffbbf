"""Selection of the replica that a consumer reads from, by its rack (KIP-392).

Pure: values in, a broker out.

    replica.selector.class       a consumer of rack r is sent to
    unset                        the leader
    RackAwareReplicaSelector     a replica in r: the leader, if it is in r, else the one with the
                                 longest log, and of these the one caught up last; to the leader if
                                 no replica is in r

Candidates are in-sync replicas that have the fetched offset, and an address on the consumer's
listener.  (Kafka: ReplicaSelector, RackAwareReplicaSelector, ReplicaManager.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kserver.model import BrokerId, Offset


class ReplicaView(NamedTuple):
    """An in-sync follower that a consumer may read from."""

    broker: BrokerId
    rack: str | None
    log_end_offset: Offset
    caught_up_ms: int


def nearest(
    rack: str, leader: BrokerId, leader_rack: str | None, followers: Iterable[ReplicaView]
) -> BrokerId:
    """Return the replica that a consumer in `rack` should read from."""
    if leader_rack == rack:
        return leader
    near = [replica for replica in followers if replica.rack == rack]
    if not near:
        return leader
    return max(
        near, key=lambda replica: (replica.log_end_offset, replica.caught_up_ms, -replica.broker)
    ).broker
