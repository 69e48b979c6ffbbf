"""Replicas of a topic that is being deleted: which still have to delete their logs.

Pure: states and events go in, states come out.  A replica of any other topic has no state here: it
is online if its broker is live and its disk works (`ControllerContext.is_online`).

    state                 meaning                                          valid previous states
    OFFLINE               StopReplica has to be sent; its broker is live   (initial), INELIGIBLE,
                                                                           STARTED
    DELETION_STARTED      StopReplica with delete was sent                 OFFLINE
    DELETION_SUCCESSFUL   its broker has responded: the log is deleted     DELETION_STARTED
    DELETION_INELIGIBLE   its broker is gone, or could not delete it       (initial), OFFLINE,
                                                                           DELETION_STARTED
    NON_EXISTENT          the topic's znodes are removed                   DELETION_SUCCESSFUL

A topic's znodes stay until every replica is deleted, so that each broker that returns receives the
StopReplica, whichever broker is the controller then. (Kafka: ReplicaStateMachine,
TopicDeletionManager.)
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kserver.metadata import TopicInfo
from kserver.model import BrokerId


class ReplicaState(enum.Enum):
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


VALID_PREVIOUS: dict[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.DELETION_INELIGIBLE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}


class Replica(NamedTuple):
    partition: int
    broker: BrokerId


class TopicDeletion:
    """Deletion of one topic, from the note under /admin/delete_topics until its znodes are
    removed."""

    __slots__ = ("_states", "topic")

    def __init__(self, topic: TopicInfo, live: Collection[BrokerId]) -> None:
        self.topic = topic
        self._states = {
            Replica(p.partition, broker): ReplicaState.OFFLINE
            if broker in live
            else ReplicaState.DELETION_INELIGIBLE
            for p in topic.partitions
            for broker in p.replicas
        }

    @property
    def is_done(self) -> bool:
        """Whether every replica is deleted, so that the znodes can be removed."""
        done = (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT)
        return all(state in done for state in self._states.values())

    @property
    def waiting_for(self) -> set[BrokerId]:
        """Brokers whose replicas cannot be deleted for now; the deletion waits until they
        return."""
        ineligible = ReplicaState.DELETION_INELIGIBLE
        return {replica.broker for replica, state in self._states.items() if state is ineligible}

    @property
    def remaining(self) -> int:
        """Number of replicas that are not deleted yet."""
        return len(self._states) - self._counts[ReplicaState.DELETION_SUCCESSFUL]

    @property
    def ineligible(self) -> int:
        """Number of those that cannot be deleted for now."""
        return self._counts[ReplicaState.DELETION_INELIGIBLE]

    @property
    def _counts(self) -> Counter[ReplicaState]:
        return Counter(self._states.values())

    def start(self) -> list[Replica]:
        """Return the replicas that have to be deleted now, and mark them as started."""
        started = [r for r, state in self._states.items() if state is ReplicaState.OFFLINE]
        for replica in started:
            self._change(replica, ReplicaState.DELETION_STARTED)
        return started

    def on_response(self, replica: Replica, *, is_deleted: bool) -> None:
        """Handle a broker's response.  It is ignored if the broker registered again after the
        request."""
        if self._states.get(replica) is ReplicaState.DELETION_STARTED:
            self._change(
                replica,
                ReplicaState.DELETION_SUCCESSFUL
                if is_deleted
                else ReplicaState.DELETION_INELIGIBLE,
            )

    def broker_gone(self, broker: BrokerId) -> None:
        for replica in self._of(broker):
            if self._states[replica] in VALID_PREVIOUS[ReplicaState.DELETION_INELIGIBLE]:
                self._change(replica, ReplicaState.DELETION_INELIGIBLE)

    def broker_came(self, broker: BrokerId) -> None:
        """Restart the deletion on a broker that registered again, as it may not have received the
        request."""
        for replica in self._of(broker):
            if self._states[replica] in VALID_PREVIOUS[ReplicaState.OFFLINE]:
                self._change(replica, ReplicaState.OFFLINE)

    def removed(self) -> None:
        """Mark the replicas as removed, after their znodes are deleted."""
        for replica in self._states:
            self._change(replica, ReplicaState.NON_EXISTENT)

    def check(self, live: Collection[BrokerId]) -> None:
        """Assert the invariants that hold between events."""
        placed = {Replica(p.partition, b) for p in self.topic.partitions for b in p.replicas}
        assert self._states.keys() == placed
        for replica, state in self._states.items():
            live_states = (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
            assert state not in live_states or replica.broker in live, (
                f"{replica} is {state}, and away"
            )
        assert self.is_done or not self._counts[ReplicaState.NON_EXISTENT]

    def _of(self, broker: BrokerId) -> Iterable[Replica]:
        return [replica for replica in self._states if replica.broker == broker]

    def _change(self, replica: Replica, state: ReplicaState) -> None:
        before = self._states[replica]
        assert before in VALID_PREVIOUS[state], f"{replica} from {before} to {state}"
        self._states[replica] = state
