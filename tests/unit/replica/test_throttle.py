"""Replication is held to its bound over ten seconds, however large its answers are."""

from __future__ import annotations

from random import Random

import pytest

from kserver.replica.throttle import ReplicationQuota, is_listed


def test_a_list_names_pairs_or_all() -> None:
    assert is_listed(("*",), 3, 1)
    assert is_listed(("0:1", "3:1"), 3, 1)
    assert not is_listed(("0:1", "3:2"), 3, 1)
    assert not is_listed((), 3, 1)


def sent(quota: ReplicationQuota, random: Random, until_ms: int, most: int) -> int:
    """What somebody sends who always has something to send, and asks at any time."""
    now_ms = size = 0
    while now_ms < until_ms:
        if not quota.is_exceeded(now_ms):
            one = random.randint(1, most)
            quota.record(one, now_ms)
            size += one
        now_ms += random.randint(1, 100)
    return size


@pytest.mark.parametrize("seed", range(50))
def test_the_bound_is_kept_within_ten_percent(seed: int) -> None:
    random = Random(seed)
    bound = random.randint(10_000, 1_000_000)
    quota = ReplicationQuota(bound, 11, 1000)
    assert sent(quota, random, 10_000, bound // 2) == pytest.approx(10 * bound, rel=0.1)


def test_a_bound_of_nothing_sends_one_answer_and_no_more() -> None:
    quota = ReplicationQuota(0, 11, 1000)
    quota.record(1, 0)
    assert quota.is_exceeded(0)
    assert quota.is_exceeded(10_999)
    assert not quota.is_exceeded(11_000), "what is this long ago counts no more"


def test_a_rate_is_of_the_last_windows() -> None:
    quota = ReplicationQuota(100, 2, 1000)
    quota.record(300, 0)
    assert quota.rate(0) == 300
    assert quota.rate(1500) == 200
    quota.record(50, 1500)
    assert quota.rate(2100) == 50
