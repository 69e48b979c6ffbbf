"""Checks of a history: each names a violation of safety or liveness that clients can see.

    groups.py          one-owner, group-liveness, commit-regression, zombie-fenced
    transactions.py    torn-txn, G1a, G1c, precommitted-read, lso-stuck
    records.py         lost-write, acked-survives-power-loss, unseen-after-final-poll,
                       leader-write-lost, read-lost, duplicate, inconsistent-offsets,
                       nonmonotonic-send, poll-skip, nonmonotonic-poll, and int-..., which check
                       within one transaction or poll
    cluster.py         hw-monotonic, epoch-monotonic, replica-equal, isr-complete,
                       context-equals-znodes, placed-as-asked, ownerless-task, memory-bounded,
                       progress-during-fault, recovery, led

The names are those of Jepsen's Kafka workload where it has one. Unlike there, an operation with an
unknown outcome may have taken effect, but never more than once.

Pure: from events to messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.support.checks import cluster, groups, records, transactions
from tests.support.history import History

Check = Callable[[History], Iterator[str]]


class Anomalies(AssertionError):
    def __init__(self, found: Mapping[str, Sequence[str]]) -> None:
        lines = [f"{name}: {texts[0]} ({len(texts)} in all)" for name, texts in found.items()]
        super().__init__("\n".join(lines))
        self.names = frozenset(found)


def verify(history: History) -> None:
    found = {name: texts for name, check in CHECKS.items() if (texts := list(check(history)))}
    if found:
        raise Anomalies(found)


CHECKS: Mapping[str, Check] = {
    "one-owner": groups.one_owner,
    "group-liveness": groups.group_liveness,
    "commit-regression": groups.commit_regression,
    "zombie-fenced": groups.zombie_fenced,
    "torn-txn": transactions.torn_txn,
    "G1a": transactions.aborted_read,
    "G1c": transactions.circular_reads,
    "precommitted-read": transactions.precommitted_read,
    "lso-stuck": transactions.lso_stuck,
    "lost-write": records.lost_write,
    "acked-survives-power-loss": records.acked_survives_power_loss,
    "unseen-after-final-poll": records.unseen_after_final_poll,
    "leader-write-lost": records.leader_write_lost,
    "read-lost": records.read_lost,
    "duplicate": records.duplicate,
    "inconsistent-offsets": records.inconsistent_offsets,
    "nonmonotonic-send": records.nonmonotonic_send,
    "int-nonmonotonic-send": records.int_nonmonotonic_send,
    "poll-skip": records.poll_skip,
    "int-poll-skip": records.int_poll_skip,
    "nonmonotonic-poll": records.nonmonotonic_poll,
    "int-nonmonotonic-poll": records.int_nonmonotonic_poll,
    "hw-monotonic": cluster.hw_monotonic,
    "epoch-monotonic": cluster.epoch_monotonic,
    "replica-equal": cluster.replica_equal,
    "isr-complete": cluster.isr_complete,
    "context-equals-znodes": cluster.context_equals_znodes,
    "placed-as-asked": cluster.placed_as_asked,
    "ownerless-task": cluster.ownerless_task,
    "memory-bounded": cluster.memory_bounded,
    "progress-during-fault": cluster.progress_during_fault,
    "recovery": cluster.recovery,
    "led": cluster.led,
}
