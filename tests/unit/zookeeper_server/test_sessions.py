import random

from kserver.world.journal import StoredSession
from kserver.zookeeper_server.sessions import SessionState, SessionTable

PASSWORD = b"secret"
TICK_MS = 100


def table():
    return SessionTable(TICK_MS, 2 * TICK_MS, 20 * TICK_MS)


def test_a_timeout_is_negotiated_between_the_least_and_the_most():
    asked = (-5, 0, 200, 999, 2000, 10**9)
    assert [table().negotiated(ms) for ms in asked] == [200, 200, 200, 999, 2000, 2000]


def test_a_session_that_is_heard_of_lives_and_one_that_is_not_expires():
    sessions = table()
    sessions.open(1, PASSWORD, 500, now_ms=0)
    sessions.open(2, PASSWORD, 500, now_ms=0)
    assert sessions.touch(1, now_ms=450)
    assert sessions.expire(now_ms=599) == []
    assert sessions.expire(now_ms=600) == [2]
    assert not sessions.is_open(2)
    assert not sessions.touch(2, now_ms=600)
    assert sessions.is_open(1)
    assert sessions.next_deadline_ms() == 1000
    sessions.check()


def test_a_session_comes_back_with_its_password_only():
    sessions = table()
    sessions.open(1, PASSWORD, 500, now_ms=0)
    assert sessions.reopen(1, b"", 500, now_ms=0) is None
    assert sessions.reopen(2, PASSWORD, 500, now_ms=0) is None
    assert sessions.reopen(1, PASSWORD, 900, now_ms=0).timeout_ms == 900
    assert sessions.next_deadline_ms() == 1000
    sessions.close(1)
    assert sessions.reopen(1, PASSWORD, 500, now_ms=0) is None


def test_after_a_start_each_has_its_whole_timeout():
    sessions = table()
    sessions.restore({7: StoredSession(500, PASSWORD)}, now_ms=10_000)
    assert sessions.expire(now_ms=10_500) == []
    assert sessions.is_open(7)
    assert sessions.reopen(7, PASSWORD, 500, now_ms=10_500)


def test_an_id_never_comes_twice_even_if_the_wall_clock_goes_back():
    sessions = table()
    first = sessions.new_id(1_700_000_000_000)
    assert sessions.new_id(1_600_000_000_000) == first + 1
    again = table()
    again.restore({first: StoredSession(500, PASSWORD)}, now_ms=0)
    assert again.new_id(1_600_000_000_000) > first
    assert 0 < first < 1 << 63


def test_a_random_life_against_a_plain_list_of_deadlines():
    for seed in range(50):
        chance = random.Random(seed)
        sessions, now_ms = table(), 0
        due: dict[int, int] = {}
        closing: set[int] = set()
        for step in range(300):
            session = chance.randrange(1, 9)
            match chance.randrange(6):
                case 0 if session not in sessions.sessions:
                    timeout_ms = sessions.negotiated(chance.randrange(3000))
                    sessions.open(session, PASSWORD, timeout_ms, now_ms)
                    due[session] = now_ms + timeout_ms
                case 1 | 2:
                    assert sessions.touch(session, now_ms) == (session in due)
                    if session in due:
                        timeout_ms = sessions.sessions[session].timeout_ms
                        due[session] = max(due[session], now_ms + timeout_ms)
                case 3 if chance.random() < 0.3:
                    assert sessions.close(session) == (session in due)
                    closing |= due.keys() & {session}
                    due.pop(session, None)
                case 4:
                    if session in closing:
                        sessions.remove(session)
                        closing.discard(session)
                case 5:
                    now_ms += chance.randrange(400)
                    expired = sessions.expire(now_ms)
                    # Rounded up to ticks: never early, and less than a tick late.
                    assert all(due[each] <= now_ms for each in expired), (seed, step)
                    assert all(
                        ms > now_ms - TICK_MS - 1 for s, ms in due.items() if s not in expired
                    )
                    for each in expired:
                        del due[each]
                        closing.add(each)
            sessions.check()
            open_ones = {s.id for s in sessions.sessions.values() if s.state is SessionState.OPEN}
            assert open_ones == due.keys(), (seed, step)
