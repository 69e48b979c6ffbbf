from __future__ import annotations

import pickle
import time

from kserver.world.rate_limiter import RateLimiter


def spent_s(rate_limiter: RateLimiter, size: int, times: int) -> float:
    before = time.monotonic()
    for _ in range(times):
        rate_limiter.spend(size)
    return time.monotonic() - before


def test_who_spends_too_fast_is_held_up():
    # All but the last wait, which may be put off.
    assert spent_s(RateLimiter(1e6), 10_000, 30) > 0.24


def test_a_large_piece_is_waited_for_whole():
    assert spent_s(RateLimiter(1e6), 200_000, 1) > 0.19


def test_without_a_limit_nobody_waits_nor_looks_at_a_clock():
    rate_limiter = RateLimiter(1.7976931348623157e308)
    spent_s(rate_limiter, 1 << 40, 1000)
    assert pickle.loads(pickle.dumps(rate_limiter))._due is None


def test_a_pause_is_not_made_up_for():
    rate_limiter = RateLimiter(1e6)
    rate_limiter.spend(1)
    time.sleep(1.2)  # the clock is what is tried here
    assert spent_s(rate_limiter, 10_000, 30) > 0.24
