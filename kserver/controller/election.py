"""Elections: the next leader of a partition, and its ISR.

Pure: a partition's replicas and last state and the live brokers go in, its next state comes out.
The leader epoch is always a new one, even with the same leader.  None means that no replica may
lead.  The first replica that may lead is elected, so the preferred one if possible.

    election              who may lead                           in sync afterwards
    offline               live and in sync                       those in sync that are live
      if there is none    live, if `unclean` allows it           the leader alone
    reassignment          live, in sync, of the new replicas     as before
    preferred             the first replica, live and in sync    as before
    controlled shutdown   live, in sync, not shutting down       without those that shut down

An unclean leader may lack committed records: its partition is marked as recovering (KIP-704).
(Kafka: Election, PartitionLeaderElectionAlgorithms.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from kserver.model import NO_BROKER, BrokerId, LeaderAndIsr


def elect_offline(
    replicas: Sequence[BrokerId],
    last: LeaderAndIsr | None,
    live: Collection[BrokerId],
    controller_epoch: int,
    *,
    unclean: bool = False,
) -> LeaderAndIsr | None:
    """Elect a leader after brokers failed.  A partition that never had a leader (`last` is None)
    has no records, so every live replica is in sync."""
    alive = [broker for broker in replicas if broker in live]
    if last is None:
        return LeaderAndIsr(alive[0], 0, tuple(alive), controller_epoch) if alive else None
    leader = next((broker for broker in alive if broker in last.isr), None)
    if leader is not None:
        isr = tuple(broker for broker in last.isr if broker in live)
        return _with_leader(last, leader, isr, controller_epoch)
    if unclean and alive:
        state = _with_leader(last, alive[0], (alive[0],), controller_epoch)
        return replace(state, is_recovering=True)
    return None


def elect_for_reassignment(
    target: Sequence[BrokerId],
    last: LeaderAndIsr,
    live: Collection[BrokerId],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """Elect one of `target`, the replicas of the partition after its reassignment."""
    leader = next((broker for broker in target if broker in live and broker in last.isr), None)
    return None if leader is None else _with_leader(last, leader, last.isr, controller_epoch)


def elect_preferred(
    replicas: Sequence[BrokerId],
    last: LeaderAndIsr,
    live: Collection[BrokerId],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    return elect_for_reassignment(replicas[:1], last, live, controller_epoch)


def elect_for_shutdown(
    replicas: Sequence[BrokerId],
    last: LeaderAndIsr,
    live: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """Elect a leader that is not shutting down; brokers that shut down are still live."""
    staying = [broker for broker in replicas if broker not in shutting_down]
    isr = tuple(broker for broker in last.isr if broker not in shutting_down)
    return elect_for_reassignment(staying, replace(last, isr=isr), live, controller_epoch)


def is_unclean(isr: Collection[BrokerId], state: LeaderAndIsr) -> bool:
    """Return whether `state`, which follows a state with this ISR, is from an unclean election."""
    return state.is_recovering and state.leader not in (NO_BROKER, *isr)


def _with_leader(
    last: LeaderAndIsr, leader: BrokerId, isr: tuple[BrokerId, ...], controller_epoch: int
) -> LeaderAndIsr:
    return replace(
        last,
        leader=leader,
        leader_epoch=last.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        partition_epoch=last.partition_epoch + 1,
    )
