"""Perf tests on a clock that moves by itself: what they measure is what a broker was told to do."""

from __future__ import annotations

import asyncio
import random

import pytest

from kcli.client.config import ProducerConfig
from kcli.perf.payloads import Letters
from kcli.perf.producing import ProducerLoad, Producing
from kcli.perf.tally import Sum
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK, Topic, identity
from tests.support.scripted_broker import ScriptedBroker, metadata

ON_THE_WAY_MS = 8
"""The simulated network takes a millisecond there and back, seldom some more."""


class Outcome:
    def __init__(self) -> None:
        self.windows: list[tuple[Sum, int, bool]] = []
        self.topic = Topic()
        self.producing: Producing


def measured(
    load: ProducerLoad, before_answer=None, partitions: int = 1, *, verdict=None, **settings: str
) -> Outcome:
    """A run against a broker that awaits `before_answer(number)` before its answers."""
    outcome = Outcome()
    answers = 0

    async def handle(request):
        nonlocal answers
        answers += 1
        if before_answer is not None:
            await before_answer(answers - 1)
        return outcome.topic.handle(request)

    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop, "broker-0")
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", OK, *[(0, 1)] * partitions)]))
        broker.on(ApiKey.INIT_PRODUCER_ID, identity)
        broker.on(ApiKey.PRODUCE, handle)
        await broker.start()
        if verdict is not None:
            outcome.topic.verdict = verdict
        given = {"bootstrap.servers": "broker-0:9092"}
        config = ProducerConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        outcome.producing = Producing(load, config, lambda *told: outcome.windows.append(told))
        await outcome.producing.all()

    simulate(main, 1)
    return outcome


def load(records: int, rate: float | None, **given) -> ProducerLoad:
    return ProducerLoad("t", records, Letters(100, records, random.Random(0)), rate, **given)


def test_percentiles_are_those_of_the_delays_that_the_broker_was_told_to_take():
    delays_ms = [1.8 * n for n in range(500)]
    random.Random(5).shuffle(delays_ms)

    async def before_answer(number: int) -> None:
        await asyncio.sleep(delays_ms[number] / 1000)

    total = measured(load(500, rate=1), before_answer, linger_ms="0").producing.total
    assert total.records == 500
    for found, true in (
        (total.avg_ms, 449.1),
        (total.p50_ms, 450.0),
        (total.p95_ms, 855.0),
        (total.p99_ms, 891.0),
        (total.p999_ms, 898.2),
        (total.max_ms, 898.2),
    ):
        assert true * 0.999 <= found <= true * 1.001 + ON_THE_WAY_MS


def stalled_at_3_s_for_1_s():
    """Stalls the broker once."""
    done = False

    async def before_answer(number: int) -> None:
        nonlocal done
        if not done and asyncio.get_running_loop().time() > 3:
            done = True
            await asyncio.sleep(1)

    return before_answer


def test_what_a_stall_keeps_from_being_sent_is_late_from_when_it_was_due():
    # Memory for a few dozen records only: the rest of the second's 200 cannot be sent.
    found = measured(
        load(1200, rate=200),
        stalled_at_3_s_for_1_s(),
        linger_ms="0",
        batch_size="1000",
        buffer_memory="5000",
    )
    total = found.producing.total
    assert total.records == 1200
    assert total.max_ms == pytest.approx(1000, abs=30)
    # A sixth was due within the stall, evenly: the latest twentieth had to wait 700 ms or longer.
    assert total.p95_ms == pytest.approx(700, abs=30)
    assert total.p50_ms < 30


def test_without_a_limit_nothing_is_late_that_could_not_be_sent():
    async def before_answer(number: int) -> None:
        await asyncio.sleep(0.02)

    found = measured(
        load(2000, rate=None),
        before_answer,
        linger_ms="0",
        batch_size="1000",
        buffer_memory="5000",
    )
    total = found.producing.total
    assert total.records == 2000
    # A record waits for the few answers before its own, and not for all.
    assert total.max_ms < 200 < total.elapsed_ms / 4


def test_a_fixed_rate_is_kept():
    total = measured(load(5000, rate=2500)).producing.total
    assert total.records_per_s == pytest.approx(2500, rel=0.02)
    assert total.mib_per_s == pytest.approx(2500 * 100 / (1 << 20), rel=0.02)


@pytest.mark.parametrize("rate", [None, 300, 5000])
def test_every_record_arrives_once_and_carries_a_time_at_which_it_was_due(rate):
    outcome = measured(load(900, rate), partitions=4)
    assert len(outcome.topic.values()) == 900
    stamps = sorted(r.timestamp for batch in outcome.topic.log for r in batch.records())
    spread_ms = stamps[-1] - stamps[0]
    assert spread_ms == pytest.approx(900 / rate * 1000 if rate else 0, abs=50 if rate else 1e3)


@pytest.mark.parametrize("rate", [None, 300, 5000])
def test_what_follows_on_the_warm_up_is_summed_up_by_itself(rate):
    outcome = measured(
        load(900, rate, warmup=301, report_every_s=0.05), linger_ms="1", batch_size="2000"
    )
    total, steady = outcome.producing.total, outcome.producing.steady
    assert (total.records, steady.records) == (900, 599)
    assert steady.elapsed_ms < total.elapsed_ms
    firsts = [is_first for _, _, is_first in outcome.windows]
    assert firsts.count(True) == 1 or not outcome.windows
    if rate is not None:
        before = outcome.windows[: firsts.index(True)]
        assert sum(window.records for window, _, _ in before) <= 301
        after = outcome.windows[firsts.index(True) :]
        assert sum(window.records for window, _, _ in after) <= 599


def test_windows_are_told_as_often_as_was_asked_for():
    outcome = measured(load(1000, rate=200, report_every_s=0.5), linger_ms="0")
    assert len(outcome.windows) in (9, 10)
    for window, lost, is_first in outcome.windows:
        assert window.elapsed_ms == pytest.approx(500, abs=30)
        assert window.records == pytest.approx(100, abs=10)
        assert (lost, is_first) == (0, False)


def test_what_the_broker_refuses_is_counted_as_lost_and_not_measured():
    refused = 0

    def verdict(batch):
        nonlocal refused
        if refused < 3:
            refused += 1
            return ErrorCode.policy_violation
        return OK

    outcome = measured(load(100, rate=100), linger_ms="0", verdict=verdict)
    assert outcome.producing.lost.total() == 3
    assert outcome.producing.total.records == 97 == len(outcome.topic.values())
