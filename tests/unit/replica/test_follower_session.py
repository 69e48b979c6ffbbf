"""A follower's incremental fetch session, against the leader's own bookkeeping of sessions."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kserver.errors import KafkaError
from kserver.replica.fetch_session import FetchPartition, FetchSessions
from kserver.replica.follower_session import FollowerSession, Position

TOPIC = UUID(int=1)


def key(number: int) -> tuple[bytes, int]:
    return TOPIC.bytes, number


def at(offset: int) -> Position:
    return Position(0, offset, 0, 0)


def test_the_first_request_names_all_and_the_next_what_changed() -> None:
    session = FollowerSession()
    session.want(key(0), at(0))
    session.want(key(1), at(5))
    full = session.request()
    assert (full.session_id, full.epoch, set(full.positions)) == (0, 0, {key(0), key(1)})
    session.responded(7)
    session.want(key(0), at(0))
    session.want(key(1), at(6))
    session.forget(key(0))
    assert session.request() == (7, 1, {key(1): at(6)}, {key(0): None})
    session.responded(7)
    assert session.request() == (7, 2, {}, {})


def test_a_leader_that_keeps_no_session_is_asked_in_full() -> None:
    session = FollowerSession()
    session.want(key(0), at(0))
    session.request()
    session.responded(0)
    assert session.request() == (0, 0, {key(0): at(0)}, {})


def test_epochs_begin_anew_at_one() -> None:
    session = FollowerSession()
    session.want(key(0), at(0))
    session.request()
    session._epoch = 2**31 - 1
    session.responded(7)
    assert session.request().epoch == 1


@pytest.mark.parametrize("seed", range(200))
def test_a_leader_reads_from_just_where_its_follower_is(seed: int) -> None:
    """Requests are lost, answers are lost, sessions are evicted, the leader restarts."""
    random = Random(seed)
    leader, session = FetchSessions(2), FollowerSession()
    for step in range(100):
        for _ in range(random.randrange(4)):
            number = random.randrange(6)
            if random.random() < 0.7:
                session.want(key(number), at(random.randrange(4)))
            else:
                session.forget(key(number))
        session.check()
        asked = session.request()
        if random.random() < 0.1:
            session.failed()
            continue
        named = [
            FetchPartition(None, TOPIC, n, p.leader_epoch, p.offset, p.last_epoch, 0, 100)
            for (_, n), p in asked.positions.items()
        ]
        forgotten = [(TOPIC, n) for _, n in asked.forgotten]
        new_id = step + 1
        try:
            fetching = leader.begin(
                asked.session_id,
                asked.epoch,
                named,
                forgotten,
                now_ms=step * 50_000,
                new_id=new_id,
                names={},
            )
        except KafkaError:
            session.lost()
        else:
            assert {w.partition: w.offset for w in fetching.fetch_infos} == {
                n: position.offset for (_, n), position in session.positions.items()
            }
            if random.random() < 0.1:
                session.failed()
            else:
                session.responded(fetching.session_id)
        session.check()
        match random.randrange(20):
            case 0:
                leader = FetchSessions(2)
            case 1:
                leader.begin(
                    0, 0, named or _one(), (), now_ms=step * 50_000, new_id=-new_id, names={}
                )


def _one() -> list[FetchPartition]:
    return [FetchPartition(None, TOPIC, 99, 0, 0, 0, 0, 100)]
