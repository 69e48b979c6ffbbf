"""A thread that waits for a lock for ever is told from one that waits with a limit, once."""

from __future__ import annotations

import threading

import pytest

from tests.support.brokers import until
from tests.support.librdkafka_deadlock import (
    FOR_EVER_S,
    FUTEX,
    LOOK_S,
    TASKS,
    DeadlockWatch,
    waiting_for_locks,
)


@pytest.fixture
def waiting():
    """Starts a thread of that name and returns its number once it waits."""
    threads = []

    def start(name, wait):
        thread = threading.Thread(target=named, args=(name, wait), daemon=True)
        thread.start()
        threads.append(thread)
        task = TASKS / str(thread.native_id)
        until(lambda: (task / "comm").read_text() == f"{name}\n")
        until(lambda: (task / "syscall").read_text().startswith(f"{FUTEX} "))
        return task.name

    yield start
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def named(name, wait):
    (TASKS / str(threading.get_native_id()) / "comm").write_text(name)
    wait()


def test_what_waits_with_a_limit_or_is_none_of_its_threads_is_well(waiting):
    lock = threading.Lock()
    with lock:
        wells = [
            waiting("rdk:main", lambda: lock.acquire(timeout=5) and lock.release()),
            waiting("other", lambda: lock.acquire() and lock.release()),
        ]
        stuck = waiting("rdk:broker1", lambda: lock.acquire() and lock.release())
        until(lambda: stuck in numbers())
        assert numbers().isdisjoint(wells)


def numbers():
    return {thread for thread, _ in waiting_for_locks()}


def test_a_deadlock_is_told_once(waiting):
    now = 100.0
    watch = DeadlockWatch(lambda: now)
    lock = threading.Lock()
    assert not watch.is_new()
    with lock:
        stuck = waiting("rdk:main", lambda: lock.acquire() and lock.release())
        until(lambda: stuck in numbers())
        now += LOOK_S
        assert not watch.is_new()
        now += FOR_EVER_S
        assert watch.is_new()
        now += FOR_EVER_S
        assert not watch.is_new()


def test_a_deadlock_of_a_client_before_is_not_told(waiting):
    now = 100.0
    lock = threading.Lock()
    with lock:
        stuck = waiting("rdk:main", lambda: lock.acquire() and lock.release())
        until(lambda: stuck in numbers())
        watch = DeadlockWatch(lambda: now)
        for _ in range(2):
            assert not watch.is_new()
            now += FOR_EVER_S
        assert not watch.is_new()
