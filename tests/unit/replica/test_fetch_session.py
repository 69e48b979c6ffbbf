"""Incremental fetch sessions, KIP-227."""

from uuid import UUID

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.replica.fetch_session import EVICTION_MS, MAX_EPOCH, FetchPartition, FetchSessions


def wanted(partition, offset=0, topic="t"):
    return FetchPartition(topic, None, partition, -1, offset, -1, -1, 1000)


def begin(sessions, session_id, epoch, named, forgotten=(), now_ms=0, new_id=7, names=None):
    return sessions.begin(
        session_id, epoch, named, forgotten, now_ms=now_ms, new_id=new_id, names=names or {}
    )


def test_a_session_remembers_what_was_named_and_forgets_what_is_forgotten():
    sessions = FetchSessions(10)
    first = begin(sessions, 0, 0, [wanted(0), wanted(1)])
    assert (first.session_id, first.incremental) == (7, False)
    second = begin(sessions, 7, 1, [wanted(1, offset=5)])
    assert second.incremental
    assert {(w.partition, w.offset) for w in second.fetch_infos} == {(0, 0), (1, 5)}
    third = begin(sessions, 7, 2, [wanted(2)], [("t", 0)])
    assert {w.partition for w in third.fetch_infos} == {1, 2}


TOPIC_ID = UUID(int=1)


def by_id(topic, offset=0):
    return wanted(0, offset, topic)._replace(topic_id=TOPIC_ID)


def test_a_topic_that_had_no_name_is_named_as_soon_as_it_has_one():
    sessions = FetchSessions(10)
    begin(sessions, 0, 0, [by_id(None)])
    assert begin(sessions, 7, 1, []).fetch_infos == [by_id(None)]
    assert begin(sessions, 7, 2, [], names={TOPIC_ID: "t"}).fetch_infos == [by_id("t")]
    assert begin(sessions, 7, 3, []).fetch_infos == [by_id("t")]


def test_a_topic_keeps_its_name_in_a_session_after_it_was_deleted():
    sessions = FetchSessions(10)
    begin(sessions, 0, 0, [by_id("t")])
    assert begin(sessions, 7, 1, [by_id(None, offset=5)]).fetch_infos == [by_id("t", offset=5)]


def test_a_wrong_epoch_or_id_is_refused():
    sessions = FetchSessions(10)
    begin(sessions, 0, 0, [wanted(0)])
    with pytest.raises(KafkaError) as lost:
        begin(sessions, 7, 2, [])
    assert lost.value.code is ErrorCode.invalid_fetch_session_epoch
    with pytest.raises(KafkaError) as unknown:
        begin(sessions, 8, 1, [])
    assert unknown.value.code is ErrorCode.fetch_session_id_not_found


def test_the_epoch_wraps_to_one():
    sessions = FetchSessions(10)
    session = begin(sessions, 0, 0, [wanted(0)]).session
    session.epoch = MAX_EPOCH
    begin(sessions, 7, MAX_EPOCH, [])
    assert session.epoch == 1


def test_epoch_zero_with_an_id_replaces_the_session():
    sessions = FetchSessions(10)
    begin(sessions, 0, 0, [wanted(0)])
    begin(sessions, 7, 0, [wanted(1)], new_id=9)
    with pytest.raises(KafkaError):
        begin(sessions, 7, 1, [])
    assert [w.partition for w in begin(sessions, 9, 1, []).fetch_infos] == [1]


def test_a_session_that_forgot_everything_ends():
    sessions = FetchSessions(10)
    begin(sessions, 0, 0, [wanted(0)])
    assert begin(sessions, 7, 1, [], [("t", 0)]).session_id == 0
    assert len(sessions) == 0


def test_a_full_cache_gives_up_a_stale_session_but_not_a_used_one():
    sessions = FetchSessions(1)
    begin(sessions, 0, 0, [wanted(0)], new_id=1)
    refused = begin(sessions, 0, 0, [wanted(0)], now_ms=10, new_id=2)
    assert refused.session_id == 0
    taken = begin(sessions, 0, 0, [wanted(0)], now_ms=EVICTION_MS + 11, new_id=3)
    assert taken.session_id == 3
    assert len(sessions) == 1


def test_a_full_cache_gives_up_the_session_that_was_unused_for_longest():
    sessions = FetchSessions(2)
    for new_id in (1, 2):
        begin(sessions, 0, 0, [wanted(0)], new_id=new_id)
    begin(sessions, 1, 1, [], now_ms=EVICTION_MS)
    assert begin(sessions, 0, 0, [wanted(0)], now_ms=EVICTION_MS + 1, new_id=3).session_id == 3
    assert begin(sessions, 1, 2, [], now_ms=EVICTION_MS + 1).session_id == 1
    with pytest.raises(KafkaError) as evicted:
        begin(sessions, 2, 1, [], now_ms=EVICTION_MS + 1)
    assert evicted.value.code is ErrorCode.fetch_session_id_not_found


def test_a_full_cache_gives_up_a_smaller_session_that_has_lived_long_enough():
    sessions = FetchSessions(1)
    begin(sessions, 0, 0, [wanted(0)], new_id=1)
    begin(sessions, 1, 1, [], now_ms=EVICTION_MS, new_id=1)
    assert begin(sessions, 0, 0, [wanted(0)], now_ms=EVICTION_MS + 1, new_id=2).session_id == 0
    larger = [wanted(0), wanted(1)]
    assert begin(sessions, 0, 0, larger, now_ms=EVICTION_MS + 1, new_id=3).session_id == 3


def test_who_was_answered_goes_to_the_end_of_the_line():
    sessions = FetchSessions(10)
    fetching = begin(sessions, 0, 0, [wanted(0), wanted(1), wanted(2)])
    fetching.session.rotate([("t", 0)])
    assert [w.partition for w in begin(sessions, 7, 1, []).fetch_infos] == [1, 2, 0]


def begin_follower(sessions, session_id, epoch, named, forgotten=(), now_ms=0, new_id=7):
    return sessions.begin(
        session_id,
        epoch,
        named,
        forgotten,
        now_ms=now_ms,
        new_id=new_id,
        names={},
        is_follower=True,
    )


def test_a_follower_s_session_is_about_what_is_active():
    sessions = FetchSessions(10)
    session = begin_follower(sessions, 0, 0, [wanted(n) for n in range(3)], now_ms=1000).session
    assert sessions.mark_active(("t", 0)) == [session]
    assert sessions.mark_active(("t", 3)) == []
    begin_follower(sessions, 7, 1, [], now_ms=1000)
    session.active.clear()
    sessions.mark_active(("t", 2))
    third = begin_follower(sessions, 7, 2, [wanted(0, offset=4)], now_ms=1999)
    assert {(w.partition, w.offset) for w in third.fetch_infos} == {(0, 4), (2, 0)}
    session.active.clear()
    assert begin_follower(sessions, 7, 3, [], now_ms=1999).fetch_infos == []
    assert len(begin_follower(sessions, 7, 4, [], now_ms=2000).fetch_infos) == 3, (
        "once a second all"
    )


def test_a_session_that_forgets_or_ends_is_not_told_of_its_partitions():
    sessions = FetchSessions(1)
    begin_follower(sessions, 0, 0, [wanted(0), wanted(1)])
    fetching = begin_follower(sessions, 7, 1, [], [("t", 0)])
    assert [one.partition for one in fetching.forgotten] == [0]
    assert sessions.mark_active(("t", 0)) == []
    assert [one.partition for one in fetching.session.active_fetch_infos()] == [1]
    begin_follower(sessions, 0, 0, [wanted(2)], now_ms=EVICTION_MS + 1, new_id=8)
    assert sessions.mark_active(("t", 1)) == []
    sessions.end(8)
    assert sessions.mark_active(("t", 2)) == []


def test_what_was_told_in_an_epoch_that_has_ended_is_told_again():
    sessions = FetchSessions(10)
    session = begin(sessions, 0, 0, [wanted(0)]).session
    key = wanted(0).key
    session.partitions[key].high_watermark = session.partitions[key].log_start_offset = 5
    begin(sessions, 7, 1, [wanted(0, offset=9)])
    assert session.is_known(key, 5, 5)
    begin(sessions, 7, 2, [wanted(0, offset=9)._replace(current_leader_epoch=4)])
    assert not session.is_known(key, 5, 5)
