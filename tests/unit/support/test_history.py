"""Each check finds its anomaly in a history made by hand, and nothing in the good ones."""

from __future__ import annotations

import pytest

from tests.support.checks import CHECKS, Anomalies, verify
from tests.support.history import (
    NO_OFFSET,
    NOT_COMMITTED,
    Assigned,
    AtEnd,
    Calm,
    Committed,
    Decided,
    Deletes,
    Differs,
    Disturbed,
    Ended,
    Fetched,
    Gone,
    Holds,
    Joined,
    Kept,
    Lacks,
    Leads,
    Led,
    Looked,
    LostPower,
    Mended,
    Orphaned,
    Placed,
    Polled,
    Recovered,
    Result,
    Seated,
    Sent,
    Started,
    Struck,
    Targeted,
    Told,
    Wanted,
)

OK, REFUSED, UNKNOWN = Result.OK, Result.REFUSED, Result.UNKNOWN
P, Q = ("t", 0), ("t", 1)
BOTH = frozenset({P, Q})
NONE = frozenset()


def owns(at_s, member, generation, *partitions):
    return Assigned(at_s, "g", member, generation, frozenset(partitions))


def committed(offset, since=0, member="a", generation=1, result=OK, transaction=None):
    return Committed(1.0, since, "g", member, generation, P, offset, result, transaction)


def fetched(offset, since=0):
    return Fetched(1.0, since, "g", P, offset)


def sent(value, transaction, partition=P, offset=0, result=OK, producer="x", since=0):
    return Sent(1.0, since, producer, transaction, partition, value, offset, result)


def ended(transaction, commit=True, result=OK, producer="x", since=0):
    return Ended(1.0, since, producer, transaction, commit, result)


def started(producer, epoch, since=0):
    return Started(0.0, since, "id", producer, (1000, epoch))


def polled(offset, value="v", partition=P, reader="r"):
    return Polled(1.0, reader, partition, offset, value)


def in_poll(offset, value, poll):
    return Polled(1.0, "r", P, offset, value, poll)


def within(transaction, offset, value, partition=P):
    return Polled(1.0, transaction, partition, offset, value, 0, transaction)


def numbered(value, transaction, offset, number):
    return Sent(1.0, 0, "x", transaction, P, value, offset, OK, number)


def at_end(offset, partition=P):
    return AtEnd(9.0, "r", partition, offset)


GOOD = {
    "nothing": [],
    "a partition changes hands": [
        Wanted(0.0, "g", BOTH),
        Joined(0.0, "g", "a"),
        owns(3.0, "a", 1, P, Q),
        Joined(9.0, "g", "b"),
        owns(9.5, "a", 1),
        owns(10.0, "a", 2, P),
        owns(10.1, "b", 2, Q),
        Disturbed(60.0, "the end"),
    ],
    "a static member comes back": [
        owns(1.0, "s#1", 1, P),
        owns(2.0, "s#2", 1, P),
        committed(3, since=2, member="s#2"),
        committed(4, since=2, member="s#1", result=REFUSED),
    ],
    "nobody is there": [
        Wanted(0.0, "g", BOTH),
        Joined(0.0, "g", "a"),
        Gone(5.0, "g", "a"),
        Disturbed(99.0, "the end"),
    ],
    "a leader knows of two batches, and not where they are": [
        Sent(1.0, 0, "x", None, P, "a", NO_OFFSET, OK, 1),
        Sent(1.0, 0, "x", None, P, "b", NO_OFFSET, OK, 2),
        Sent(1.0, 0, "x", None, P, "c", 7, OK, 3),
    ],
    "the offsets go on": [
        fetched(NOT_COMMITTED),
        committed(3, since=1),
        fetched(3, since=2),
        committed(5, since=3, result=UNKNOWN),
        fetched(5, since=4),
        committed(9, since=4, result=REFUSED),
        fetched(5, since=6),
    ],
    "a commit was under way": [fetched(7), committed(7), fetched(7, since=2)],
    "a commit of the one before is taken before anything was given away": [
        owns(1.0, "a", 1, P),
        owns(2.0, "b", 2, P),
        committed(3, since=1),
    ],
    "a member of KIP-848 lags behind with what stays its own": [
        owns(1.0, "a", 1, P, Q),
        owns(2.0, "b", 2, Q),
        committed(3, since=2),
    ],
    "a transaction is committed, and one is aborted": [
        started("x", 0, since=0),
        sent("1", "T", P, 0, since=1),
        sent("2", "T", Q, 0, since=1),
        committed(4, since=3, generation=-1, transaction="T"),
        ended("T", since=4),
        polled(0, "1"),
        polled(0, "2", Q),
        fetched(4, since=7),
        sent("3", "U", P, 2, since=8),
        committed(8, since=9, generation=-1, transaction="U"),
        ended("U", commit=False, since=10),
        fetched(4, since=11),
        at_end(4),
        at_end(2, Q),
        Looked(9.0, P, 4, 4),
    ],
    "an offset that an aborted transaction had is committed by the next": [
        committed(4, generation=-1, transaction="T"),
        ended("T", commit=False, since=1),
        committed(4, since=2, generation=-1, transaction="U"),
        ended("U", since=3),
        fetched(4, since=4),
    ],
    "a commit without an answer was one, all of it": [
        sent("1", "T", P, 0),
        sent("2", "T", Q, 0),
        ended("T", result=UNKNOWN, since=2),
        polled(0, "1"),
        polled(0, "2", Q),
        at_end(2),
        at_end(2, Q),
    ],
    "a commit without an answer was none": [
        sent("1", "T", P, 0),
        ended("T", result=UNKNOWN, since=1),
        at_end(2),
    ],
    "a commit is under way and read": [
        sent("1", "T", P, 0),
        polled(0, "1"),
        ended("T", since=1),
    ],
    "a reader begins again, past what nobody sees": [
        polled(0, "1"),
        polled(5, "2"),
        Seated(2.0, "r", P, 0),
        polled(0, "1"),
        polled(5, "2"),
    ],
    "two readers": [polled(0, "1"), polled(0, "1", reader="q"), polled(1, "2", reader="q")],
    "what was tried again": [
        sent("7#1", "T"),
        ended("T", commit=False, since=1),
        sent("7#2", "U", offset=2, since=2),
        ended("U", since=3),
        polled(2, "7#2"),
    ],
    "who was replaced learns of its own identity late": [
        started("y", 1),
        started("x", 0),
        sent("1", "T", since=2, producer="y"),
        ended("T", since=3, producer="y"),
        sent("2", "U", since=2, result=REFUSED),
    ],
    "records are deleted": [
        sent("1", None),
        sent("2", None, offset=1),
        Deletes(1.0, P, 1),
        Seated(1.0, "r", P, 0),
        polled(1, "2"),
        at_end(2),
    ],
    "who is not idempotent repeats itself": [
        Sent(1.0, 0, "x", None, P, "1", 1, OK, 1, may_repeat=True),
        polled(0, "1"),
        polled(1, "1"),
        at_end(2),
    ],
    "the end grows, and another is told of it late": [
        Told(1.0, 0, "e", P, 4),
        Told(1.0, 0, "f", P, 3),
        Told(1.0, 1, "e", P, 5),
    ],
    "replicas differ in where they begin": [
        Holds(9.0, P, 1, 0, ((0, "a"), (1, "b"))),
        Holds(9.0, P, 2, 1, ((1, "b"),)),
    ],
    "one leader after the other": [
        Decided(1.0, "id", P, 1, 0, frozenset({1, 2})),
        Leads(1.0, "id", P, 1, 0),
        Decided(2.0, "id", P, -1, 1, frozenset({1})),
        Decided(3.0, "id", P, 1, 2, frozenset({1})),
        Leads(3.0, "id", P, 1, 2),
        Decided(4.0, "another", P, 2, 0, frozenset({2})),
        Led(9.0, P, 2, frozenset({2})),
    ],
    "nobody in sync is up": [Led(9.0, P, None, NONE)],
    "a fault, and calm again": [
        Struck(0.0, "pause", frozenset({1})),
        *(Told(1.0, n, "e", P, 4) for n in range(100)),
        Mended(61.0, "pause"),
        Calm(61.0),
        Recovered(80.0),
    ],
    "who was replaced is refused": [
        started("x", 0, since=0),
        started("y", 1, since=1),
        sent("1", "T", since=1),
        ended("T", result=REFUSED, since=3),
    ],
}

BAD = {
    "one-owner": {
        "two members, one generation": [owns(1.0, "a", 1, P), owns(2.0, "b", 1, P)],
    },
    "group-liveness": {
        "never owned": [
            Wanted(0.0, "g", BOTH),
            Joined(0.0, "g", "a"),
            Disturbed(31.0, "the end"),
        ],
        "half of it not owned": [
            Wanted(0.0, "g", BOTH),
            Joined(0.0, "g", "a"),
            owns(1.0, "a", 1, P),
            Disturbed(31.0, "the end"),
        ],
        "who crashed still has it": [
            Wanted(0.0, "g", BOTH),
            Joined(0.0, "g", "a"),
            Joined(0.0, "g", "b"),
            owns(1.0, "a", 1, P),
            owns(1.0, "b", 1, Q),
            Gone(20.0, "g", "a"),
            Disturbed(50.5, "the end"),
        ],
        "given up later, for no reason": [
            Wanted(0.0, "g", frozenset({P})),
            Joined(0.0, "g", "a"),
            owns(1.0, "a", 1, P),
            owns(40.0, "a", 1),
            owns(41.0, "a", 2, P),
        ],
    },
    "commit-regression": {
        "back": [
            committed(3),
            committed(5, since=1),
            fetched(3, since=2),
        ],
        "lost": [committed(3), fetched(NOT_COMMITTED, since=1)],
        "seen and lost": [
            committed(5, result=UNKNOWN),
            fetched(5, since=1),
            fetched(NOT_COMMITTED, since=2),
        ],
        "invented": [committed(3, result=REFUSED), fetched(3, since=1)],
        "lost of a transaction": [
            committed(3, generation=-1, transaction="T"),
            ended("T", since=1),
            fetched(NOT_COMMITTED, since=2),
        ],
    },
    "zombie-fenced": {
        "a commit of the generation before": [
            owns(1.0, "a", 1, P),
            owns(2.0, "b", 2, P),
            committed(3, since=2),
        ],
        "the static member that was replaced": [
            owns(1.0, "s#1", 1, P),
            owns(2.0, "s#2", 1, P),
            committed(3, since=2, member="s#2"),
            committed(4, since=3, member="s#1"),
        ],
        "a record": [
            started("x", 0, since=0),
            started("y", 1, since=1),
            sent("1", "T", since=2),
        ],
        "a commit": [
            started("x", 0, since=0),
            started("y", 1, since=1),
            ended("T", since=2),
        ],
        "who was late": [started("y", 1), started("x", 0), ended("T", since=2)],
        "let in again": [
            started("x", 0, since=0),
            started("y", 1, since=1),
            started("x", 0, since=2),
        ],
    },
    "torn-txn": {
        "one of two": [
            sent("1", "T", P, 0),
            sent("2", "T", Q, 0),
            ended("T", result=UNKNOWN, since=2),
            polled(0, "1"),
            at_end(2),
            at_end(2, Q),
        ],
    },
    "G1a": {
        "a record": [sent("1", "T"), ended("T", commit=False, since=1), polled(0, "1")],
        "before the abort": [sent("1", "T"), polled(0, "1"), ended("T", commit=False, since=2)],
        "an offset": [
            committed(3, generation=-1, transaction="T"),
            ended("T", commit=False, since=1),
            fetched(3, since=2),
        ],
        "the commit was refused": [
            sent("1", "T"),
            ended("T", result=REFUSED, since=1),
            polled(0, "1"),
        ],
    },
    "precommitted-read": {
        "a record": [sent("1", "T"), polled(0, "1"), ended("T", since=2)],
        "an offset": [
            committed(3, generation=-1, transaction="T"),
            fetched(3, since=1),
            ended("T", since=2),
        ],
        "nobody asked for the commit": [sent("1", "T"), polled(0, "1")],
    },
    "lost-write": {
        "in a transaction": [sent("1", "T"), ended("T", since=1), at_end(2)],
        "in none": [sent("1", None), at_end(1)],
    },
    "duplicate": {
        "in one partition": [polled(0, "1"), polled(1, "1")],
        "in two": [polled(0, "1"), polled(0, "1", Q)],
        "tried again": [polled(0, "1#1"), polled(1, "1#2")],
    },
    "poll-skip": {
        "what another saw": [
            polled(0, "1", reader="q"),
            polled(1, "2", reader="q"),
            polled(0, "1"),
            polled(1, "2"),
            polled(2, "3"),
            polled(2, "3", reader="q"),
            Seated(2.0, "p", P, 0),
            polled(0, "1", reader="p"),
            polled(2, "3", reader="p"),
        ],
        "from its seat on": [
            polled(0, "1"),
            Seated(2.0, "q", P, 0),
            polled(1, "2", reader="q"),
        ],
    },
    "nonmonotonic-poll": {
        "the same": [polled(0, "1"), polled(0, "1")],
        "before its seat": [Seated(1.0, "r", P, 5), polled(4, "1")],
    },
    "lso-stuck": {"kept back": [Looked(9.0, P, 3, 7)]},
    "G1c": {
        "two read of each other": [
            sent("1", "T", Q),
            sent("2", "U", offset=1),
            ended("T", since=1),
            ended("U", since=2),
            Seated(1.0, "T", P, 1),
            within("T", 1, "2"),
            within("U", 0, "1", Q),
        ],
        "three in a circle": [
            sent("1", "T", Q),
            sent("2", "U", offset=1),
            sent("3", "V", offset=2),
            ended("T", since=1),
            ended("U", since=2),
            ended("V", since=3),
            Seated(1.0, "T", P, 1),
            Seated(1.0, "U", P, 2),
            within("T", 1, "2"),
            within("U", 2, "3"),
            within("V", 0, "1", Q),
        ],
    },
    "acked-survives-power-loss": {
        "written before": [sent("1", None), LostPower(2.0, 1), at_end(1)],
    },
    "unseen-after-final-poll": {
        "beyond the end": [sent("1", None, offset=4), at_end(4)],
        "in a transaction": [sent("1", "T", offset=4), ended("T", since=1), at_end(2)],
    },
    "inconsistent-offsets": {
        "read twice": [polled(0, "1"), polled(0, "2", reader="q")],
        "not what was written": [sent("1", None), polled(0, "2")],
        "written twice": [sent("1", None), sent("2", None)],
    },
    "nonmonotonic-send": {
        "later and before": [
            numbered("1", None, 5, 1),
            numbered("2", None, 4, 2),
        ],
        "in two transactions": [
            numbered("1", "T", 5, 1),
            numbered("2", "U", 4, 2),
        ],
    },
    "int-nonmonotonic-send": {
        "in one transaction": [
            numbered("2", "T", 4, 2),
            numbered("1", "T", 5, 1),
        ],
    },
    "int-poll-skip": {
        "within one poll": [
            Seated(1.0, "q", P, 1),
            polled(1, "2", reader="q"),
            in_poll(0, "1", 1),
            in_poll(2, "3", 1),
        ],
    },
    "int-nonmonotonic-poll": {
        "within one poll": [Seated(1.0, "r", P, 1), in_poll(1, "2", 1), in_poll(0, "1", 1)],
    },
    "read-lost": {
        "it is gone": [
            Polled(1.0, "r", P, 0, "1"),
            Polled(1.0, "r", P, 1, "2"),
            Seated(9.0, "last", P, 0),
            Polled(9.0, "last", P, 0, "1"),
            AtEnd(9.0, "last", P, 1),
        ],
    },
    "leader-write-lost": {
        "its leader stayed": [
            Decided(0.0, "id", P, 1, 4, frozenset({1})),
            Disturbed(20.0, "nothing"),
            Sent(20.0, 2, "p", None, P, "1", 0, OK, by_leader_alone=True),
            Seated(30.0, "last", P, 0),
            AtEnd(30.0, "last", P, 0),
        ],
    },
    "hw-monotonic": {
        "less than before": [Told(1.0, 0, "e", P, 4), Told(2.0, 1, "e", P, 3)],
    },
    "epoch-monotonic": {
        "two lead": [
            Leads(1.0, "id", P, 1, 4),
            Leads(2.0, "id", P, 2, 4),
        ],
        "the controller goes back": [
            Decided(1.0, "id", P, 1, 4, frozenset({1})),
            Decided(2.0, "id", P, 2, 3, frozenset({2})),
        ],
    },
    "replica-equal": {
        "one is longer": [
            Holds(9.0, P, 1, 0, ((0, "a"), (1, "b"))),
            Holds(9.0, P, 2, 0, ((0, "a"),)),
        ],
        "one has other bytes": [
            Holds(9.0, P, 1, 0, ((0, "a"), (1, "b"))),
            Holds(9.0, P, 2, 0, ((0, "a"), (1, "c"))),
        ],
    },
    "isr-complete": {"a member ends too early": [Lacks(1.0, P, 2, 3, 4)]},
    "context-equals-znodes": {"another leader": [Differs(99.0, "topic t of broker 1: ...")]},
    "placed-as-asked": {
        "in progress": [
            Targeted(0.0, P, (1, 2)),
            Placed(9.0, P, (1, 2), frozenset({1, 2}), is_moving=True),
        ],
        "not asked for": [
            Targeted(0.0, P, (1, 2)),
            Targeted(1.0, P, (2, 3)),
            Placed(9.0, P, (1, 3), frozenset({1, 3}), is_moving=False),
        ],
        "hosted by another": [
            Targeted(0.0, P, (1, 2)),
            Placed(9.0, P, (1, 2), frozenset({1, 2, 3}), is_moving=False),
        ],
    },
    "ownerless-task": {"a loop goes on": [Orphaned(9.0, "b1 since 0.0 s", "<coroutine run>")]},
    "memory-bounded": {"a connection is kept": [Kept(9.0, 1, "connections of clients", 1, 0)]},
    "progress-during-fault": {
        "next to nothing": [
            Struck(0.0, "pause", frozenset({1})),
            Told(3.0, 0, "e", P, 4),
            Mended(61.0, "pause"),
        ],
        "what had been read is read again": [
            Polled(0.0, "r", P, 0, "a"),
            Struck(0.0, "pause", frozenset({1})),
            *(
                event
                for number in range(200)
                for event in (Seated(9.0, f"r{number}", P, 0), Polled(9.0, f"r{number}", P, 0, "a"))
            ),
            Mended(61.0, "pause"),
        ],
    },
    "recovery": {
        "late": [Calm(1.0), Recovered(31.5)],
        "never": [Calm(1.0)],
    },
    "led": {
        "by nobody": [Led(9.0, P, None, frozenset({1, 2}))],
        "by one out of sync": [Led(9.0, P, 3, frozenset({1, 2}))],
    },
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_good_history_passes(history):
    verify(history)


@pytest.mark.parametrize(
    ("name", "history"),
    [
        pytest.param(name, history, id=f"{name}: {what}")
        for name, histories in BAD.items()
        for what, history in histories.items()
    ],
)
def test_a_bad_history_is_found_by_its_check_alone(name, history):
    with pytest.raises(Anomalies) as found:
        verify(history)
    assert found.value.names == {name}


def test_every_check_has_a_bad_history():
    assert set(BAD) == set(CHECKS)
