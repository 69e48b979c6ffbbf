"""The leader of a partition once brokers came or went.

Pure: a partition's last state and the live brokers go in, its new state comes out.

A leader is taken from the in-sync replicas only, in the order of the replicas, so that the
preferred one leads if it can; replicas that are not alive leave the in-sync ones.  (Kafka:
PartitionLeaderElectionAlgorithms.offlinePartitionLeaderElection, without unclean election.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kserver.model import BrokerId, LeaderAndIsr


def elect(
    replicas: Sequence[BrokerId],
    last: LeaderAndIsr | None,
    live: Collection[BrokerId],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """In a new leader epoch, whether or not the leader is a new one; None when no one can lead.

    A partition that was never led (`last` is None) has no records, so every live replica is in
    sync.
    """
    in_sync = replicas if last is None else last.isr
    candidates = [b for b in replicas if b in in_sync and b in live]
    if not candidates:
        return None
    return LeaderAndIsr(
        leader=candidates[0],
        leader_epoch=0 if last is None else last.leader_epoch + 1,
        isr=tuple(candidates) if last is None else tuple(b for b in last.isr if b in live),
        controller_epoch=controller_epoch,
        partition_epoch=0 if last is None else last.partition_epoch + 1,
    )
