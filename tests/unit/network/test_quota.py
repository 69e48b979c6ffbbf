import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.model import QuotaEntity
from kserver.network.quota import (
    MAX_TRACKED,
    ConnectionRates,
    MutationQuota,
    QuotaBounds,
    Quotas,
    Rate,
    RateQuota,
    RateWindow,
    TokenBucket,
    Tracked,
)

WINDOW = RateWindow(11, 1000)
PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
EVENTS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10_000)), max_size=60)
"""Times since the last one, in ms, and amounts."""


class ModelRate:
    """A rate as Kafka documents it: every event is kept, and put into samples anew each time."""

    def __init__(self, window):
        self.window = window
        self.events = []

    def record(self, amount, now_ms):
        self.events.append((now_ms, amount))

    def measure(self, now_ms):
        samples = []
        for at_ms, amount in self.events:
            if not samples or at_ms - samples[-1][0][0] >= self.window.sample_ms:
                samples.append([])
            samples[-1].append((at_ms, amount))
        length_ms = self.window.samples * self.window.sample_ms
        kept = [sample for sample in samples if now_ms - sample[-1][0] < length_ms]
        elapsed_ms = now_ms - kept[0][0][0] if kept else 0
        whole = elapsed_ms // self.window.sample_ms
        if whole < self.window.samples - 1:
            elapsed_ms += (self.window.samples - 1 - whole) * self.window.sample_ms
        total = sum(amount for sample in kept for _, amount in sample)
        return total * 1000 / max(elapsed_ms, 1), max(elapsed_ms, 1)


@given(EVENTS, st.integers(1, 5), st.sampled_from([100, 1000]), st.integers(0, 20_000))
def test_a_rate_is_that_of_the_model(events, samples, sample_ms, later_ms):
    window = RateWindow(samples, sample_ms)
    rate, model, now_ms = Rate(window), ModelRate(window), 1_000_000
    for gap_ms, amount in events:
        now_ms += gap_ms
        rate.record(amount, now_ms)
        model.record(amount, now_ms)
        assert rate.measure(now_ms) == pytest.approx(model.measure(now_ms))
    assert rate.measure(now_ms + later_ms) == pytest.approx(model.measure(now_ms + later_ms))


@given(st.lists(st.integers(1, 1000), min_size=60, max_size=120))
def test_who_waits_as_long_as_told_stays_at_the_bound(sizes):
    """With requests of up to a second's worth; beside what may be used at once in the beginning."""
    quota = RateQuota(WINDOW)
    quota.bounds = QuotaBounds(PRODUCE, {QuotaEntity(client_id=""): {PRODUCE: 1000}})
    start_ms = now_ms = 5_000
    for size in sizes:
        now_ms += quota.charge("u", "c", size, now_ms) + 1
    passed_s = (now_ms - start_ms) / 1000
    assert sum(sizes) <= 1000 * (passed_s * 1.15 + WINDOW.samples + 1)


def test_the_wait_is_kafkas():
    # (O - T) / T * W, over the ten samples that count as passed.
    rate = Rate(WINDOW)
    rate.record(30_000, 0)
    assert rate.measure(0) == (3000, 10_000)
    assert rate.wait_ms(1000, 0) == 20_000
    assert rate.wait_ms(3000, 0) == 0
    assert rate.measure(11_000) == (0, 10_000)


def test_what_was_used_is_forgotten_with_the_window():
    rate = Rate(WINDOW)
    rate.record(100, 0)
    assert rate.wait_ms(1, 10_999) > 0
    assert rate.wait_ms(1, 11_000) == 0


LEVELS = [
    (QuotaEntity("u", "c"), QuotaEntity("u", "c")),
    (QuotaEntity("u", ""), QuotaEntity("u", "c")),
    (QuotaEntity("u"), QuotaEntity("u")),
    (QuotaEntity("", "c"), QuotaEntity("u", "c")),
    (QuotaEntity("", ""), QuotaEntity("u", "c")),
    (QuotaEntity(""), QuotaEntity("u")),
    (QuotaEntity(None, "c"), QuotaEntity(None, "c")),
    (QuotaEntity(None, ""), QuotaEntity(None, "c")),
]
"""From the first that is looked for to the last: whose quota, and who is counted together."""


@given(st.sets(st.integers(0, len(LEVELS) - 1)))
def test_the_most_particular_quota_holds(given_levels):
    others = {QuotaEntity("x"): {PRODUCE: 99}, QuotaEntity("u", "x"): {PRODUCE: 98}}
    held = {LEVELS[n][0]: {PRODUCE: n + 1, FETCH: 77} for n in given_levels}
    bounds = QuotaBounds(PRODUCE, others | held)
    if not given_levels:
        assert bounds.of("u", "c") is None
    else:
        first = min(given_levels)
        assert bounds.of("u", "c") == (LEVELS[first][1], first + 1)


def test_clients_of_a_default_are_counted_each_for_himself_and_those_of_a_user_together():
    quota = RateQuota(WINDOW)
    quota.bounds = QuotaBounds(PRODUCE, {QuotaEntity(client_id=""): {PRODUCE: 10}})
    assert quota.charge("u", "a", 1000, 0) > 0
    assert quota.charge("u", "b", 1, 0) == 0
    quota.bounds = QuotaBounds(PRODUCE, {QuotaEntity("u"): {PRODUCE: 10}})
    assert quota.charge("u", "a", 1000, 0) > 0
    assert quota.charge("u", "b", 1, 0) > 0
    assert quota.charge("v", "a", 1000, 0) == 0


def test_what_may_not_go_yet_is_not_counted():
    quota = RateQuota(WINDOW)
    quota.bounds = QuotaBounds(FETCH, {QuotaEntity(client_id="c"): {FETCH: 100}})
    assert quota.admit("u", "c", 900, 0) == 0
    wait_ms = quota.admit("u", "c", 600, 0)
    assert wait_ms > 0
    assert quota.admit("u", "c", 600, 0) == wait_ms
    assert quota.admit("u", "c", 600, 11_000) == 0


def test_more_than_ever_may_go_at_once_goes_when_nothing_went_before_it():
    quota = RateQuota(WINDOW)
    quota.bounds = QuotaBounds(FETCH, {QuotaEntity(client_id="c"): {FETCH: 100}})
    assert quota.most("u", "c") == 1000
    assert quota.admit("u", "c", 50_000, 0) == 0
    assert quota.admit("u", "c", 1, 1) > 100_000
    assert quota.admit("u", "c", 50_000, 11_001) == 0


def test_only_so_many_clients_are_remembered():
    quota = RateQuota(RateWindow(2, 10))
    quota.bounds = QuotaBounds(PRODUCE, {QuotaEntity(client_id=""): {PRODUCE: 1}})
    for number in range(MAX_TRACKED + 10):
        quota.charge("u", f"c{number}", 1, 0)
    tracked = Tracked(list)
    for number in range(MAX_TRACKED + 10):
        tracked.of("kept").append(number)
        tracked.of(number)
    assert len(tracked) == MAX_TRACKED
    assert len(tracked.of("kept")) == MAX_TRACKED + 10


@given(EVENTS, st.integers(1, 50))
def test_a_bucket_never_holds_more_than_a_window_of_its_bound(events, bound):
    bucket, now_ms, taken = TokenBucket(WINDOW), 0, 0
    most = bound * WINDOW.samples * WINDOW.sample_ms / 1000
    for gap_ms, amount in events:
        now_ms += gap_ms
        bucket.take(amount, bound, now_ms)
        taken += amount
        left = bucket.tokens(bound, now_ms)
        assert left <= most
        assert left >= most - taken
        wait_ms = bucket.wait_ms(bound, now_ms)
        assert (wait_ms > 0) == (left < 0)
        assert left + bound * (wait_ms + 1) / 1000 >= 0


def test_mutations_are_refused_while_the_bucket_is_overdrawn_or_only_slow_who_cannot_be_told():
    quota = MutationQuota(WINDOW)
    quota.bounds = QuotaBounds(MUTATION, {QuotaEntity(user=""): {MUTATION: 1}})
    assert quota.charge("u", "c", 30, 0, strict=True) == (True, 0)
    assert quota.charge("u", "c", 1, 0, strict=True) == (False, 19_000)
    assert quota.charge("u", "c", 1, 0, strict=False) == (True, 20_000)
    assert quota.charge("u", "c", 1, 20_000, strict=True) == (True, 0)


def test_a_quota_that_nobody_has_is_not_there():
    quotas = Quotas(WINDOW, WINDOW)
    assert not quotas.active
    quotas.update({QuotaEntity("u"): {MUTATION: 1}, QuotaEntity(ip=""): {CONNECTION: 1}})
    assert not quotas.active
    assert quotas.mutation is not None
    quotas.update({QuotaEntity("u"): {FETCH: 1}})
    assert quotas.active
    assert (quotas.produce, quotas.request, quotas.mutation) == (None, None, None)
    assert quotas.fetch.charge("u", "c", 100, 0) > 0
    quotas.update({QuotaEntity("u"): {FETCH: 1000}})
    assert quotas.fetch.charge("u", "c", 100, 0) == 0
    quotas.update({})
    assert not quotas.active


def test_request_time_is_waited_for_a_sample_at_the_most():
    quotas = Quotas(WINDOW, WINDOW)
    quotas.update({QuotaEntity("u"): {REQUEST: 1}})
    assert quotas.request.charge("u", "c", 1e6, 0) == WINDOW.sample_ms


def test_an_address_that_comes_too_often_is_kept_out_until_its_rate_is_right():
    rates = ConnectionRates(WINDOW)
    rates.update({QuotaEntity(ip=""): {CONNECTION: 2}, QuotaEntity(ip="::1"): {CONNECTION: 100}})
    let_in = sum(rates.refuses_ms("10.0.0.1", 0) == 0 for _ in range(100))
    assert let_in == 20
    assert rates.refuses_ms("10.0.0.1", 0) > 0
    assert rates.refuses_ms("10.0.0.2", 0) == 0
    assert not any(rates.refuses_ms("::1", 0) for _ in range(100))
    assert rates.refuses_ms("10.0.0.1", 11_000) == 0


def test_all_wait_when_connections_come_faster_than_they_may():
    rates = ConnectionRates(WINDOW)
    assert not any(rates.let_in(0) for _ in range(100))
    rates.limit = 3
    assert rates.let_in(0) == WINDOW.sample_ms
    assert sum(rates.let_in(20_000) == 0 for _ in range(50)) == 30
    rates.limit = 0
    assert rates.let_in(40_000) == WINDOW.sample_ms
