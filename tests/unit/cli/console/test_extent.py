"""A range of offsets is what is read, whatever gaps a log has."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcli.client.config import ConsumerConfig
from kcli.console.extent import EMPTY_ROUNDS, seek
from kcli.console.offset_range import AfterStart, Edge, Exact, Last, OffsetRange, Since, parse
from kserver.errors import ErrorCode, KafkaError
from tests.support.consuming import T0, T1, run

CONFIG = ConsumerConfig.of({"bootstrap.servers": "broker-0:9092"})
NO_RESET = replace(CONFIG, auto_offset_reset="none")
QUIET_S = 2 * CONFIG.fetch_max_wait_ms / 1000
TIMES_FROM = 1000
"""When the record at offset 0 was written; each offset is 1 ms more."""


def fill(log, steps):
    """Batches of so many records, or so many offsets without any; the offsets of the records."""
    offsets = []
    for step in steps:
        if step > 0:
            offsets += range(log.end, log.end + step)
            log.append(step)
        else:
            log.end -= step
    return offsets


async def read_range(consumer, wanted, partitions=(T0,), **options):
    """The offsets that are read of each partition, and how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    up_to = await seek(consumer, CONFIG, partitions, wanted, **options)
    found = {partition: [] for partition in partitions}
    while (batches := await up_to.poll(None, 7)) is not None:
        for batch in batches:
            found[batch.topic, batch.partition] += [row[0] for row in batch.rows]
    return [found[partition] for partition in partitions], loop.time() - began


steps = st.lists(st.integers(-40, 6).filter(bool), max_size=12)


@settings(max_examples=25)
@given(steps, steps, st.integers(1, 25), st.integers(0, 30))
def test_the_last_records_are_so_many_records_whatever_the_gaps(first, second, count, start):
    async def scenario(consumer, server):
        expected = []
        for partition, log_steps in ((T0, first), (T1, second)):
            log = server.logs[partition]
            offsets = fill(log, log_steps)
            log.start = min(start, log.end)
            expected.append([o for o in offsets if o >= log.start][-count:])
        wanted = OffsetRange(Last(count), Edge.END)
        found, _ = await read_range(consumer, wanted, (T0, T1))
        assert found == expected

    run(scenario)


starts = (
    st.just(Edge.START)
    | st.builds(Exact, st.integers(0, 60))
    | st.builds(AfterStart, st.integers(0, 60))
    | st.builds(Since, st.integers(TIMES_FROM, TIMES_FROM + 60))
)
stops = (
    st.just(Edge.END)
    | st.builds(Exact, st.integers(0, 60))
    | st.builds(Since, st.integers(TIMES_FROM, TIMES_FROM + 60))
)


def offset_of(place, log):
    match place:
        case Edge.START:
            return log.start
        case Edge.END:
            return log.end
        case Exact(offset):
            return offset
        case AfterStart(offsets):
            return log.start + offsets
        case Since(time_ms):
            return min(max(time_ms - TIMES_FROM, log.start), log.end)


@settings(max_examples=25)
@given(steps, starts, stops, st.integers(0, 30))
def test_a_range_is_what_lies_between_its_ends(log_steps, start, stop, log_start):
    async def scenario(consumer, server):
        log = server.logs[T0]
        offsets = fill(log, log_steps)
        log.start = min(log_start, log.end)
        low, high = offset_of(start, log), offset_of(stop, log)
        (found,), _ = await read_range(consumer, OffsetRange(start, stop))
        assert found == [o for o in offsets if max(low, log.start) <= o < high]

    run(scenario, auto_offset_reset="latest")


@pytest.mark.parametrize(
    ("start", "gap"),
    [
        (Exact(10), "t-0 begins at offset 30, after 10"),
        (Exact(101), "t-0 ends at offset 100, before 101"),
        (AfterStart(71), "t-0 ends at offset 100, before 101"),
    ],
)
@pytest.mark.parametrize("stop", [Edge.END, Exact(60), Exact(200)])
def test_a_start_that_the_log_does_not_have_is_refused_without_a_reset(start, stop, gap):
    async def scenario(consumer, server):
        fill(server.logs[T0], [100])
        server.logs[T0].start = 30
        with pytest.raises(KafkaError, match=gap) as caught:
            await seek(consumer, NO_RESET, [T0], OffsetRange(start, stop))
        assert caught.value.code is ErrorCode.offset_out_of_range
        for exact in (30, 100):
            assert await seek(consumer, NO_RESET, [T0], OffsetRange(Exact(exact), stop))

    run(scenario, auto_offset_reset="none")


def test_without_gaps_the_last_records_are_found_at_once():
    async def scenario(consumer, server):
        fill(server.logs[T0], [10] * 10)
        (found,), took = await read_range(consumer, OffsetRange(Last(3), Edge.END))
        assert found == [97, 98, 99]
        assert took < 0.1
        assert min(p.fetch_offset for f in server.fetches for p in f.topics[0].partitions) == 97

    run(scenario)


def test_offsets_before_a_stop_that_have_no_records_any_more_are_not_waited_for():
    async def scenario(consumer, server):
        fill(server.logs[T0], [5, -20])
        (found,), took = await read_range(consumer, parse(":end", 0))
        assert found == [0, 1, 2, 3, 4]
        assert EMPTY_ROUNDS * QUIET_S < took < (EMPTY_ROUNDS + 2) * QUIET_S

    run(scenario)


def test_a_broker_that_does_not_answer_has_not_said_that_there_is_nothing():
    async def scenario(consumer, server):
        fill(server.logs[T0], [5])
        up_to = await seek(consumer, CONFIG, [T0], OffsetRange(Edge.START, Edge.END))
        server.broker.stop()
        waiting = asyncio.create_task(up_to.poll(None, 100))
        await asyncio.sleep(20 * QUIET_S)
        assert not waiting.done()
        await server.broker.start()
        assert [record.offset for (batch,) in [await waiting] for record in batch.records] == [
            0,
            1,
            2,
            3,
            4,
        ]
        assert await up_to.poll(None, 100) is None

    run(scenario)


def test_what_comes_later_is_not_read_where_the_end_is_the_stop():
    async def scenario(consumer, server):
        fill(server.logs[T0], [5])
        up_to = await seek(consumer, CONFIG, [T0], OffsetRange(Edge.START), to_end=True)
        fill(server.logs[T0], [5])
        found = []
        while (batches := await up_to.poll(None, 100)) is not None:
            found += [record.offset for batch in batches for record in batch.records]
        assert found == [0, 1, 2, 3, 4]

    run(scenario)


def test_a_stop_beyond_the_end_is_what_was_the_end():
    async def scenario(consumer, server):
        fill(server.logs[T0], [5])
        up_to = await seek(consumer, CONFIG, [T0], OffsetRange(Edge.START, Exact(60)))
        fill(server.logs[T0], [5])
        found = []
        while (batches := await up_to.poll(None, 100)) is not None:
            found += [record.offset for batch in batches for record in batch.records]
        assert found == [0, 1, 2, 3, 4]

    run(scenario)


def test_a_range_without_a_stop_goes_on():
    async def scenario(consumer, server):
        fill(server.logs[T0], [5])
        assert await seek(consumer, CONFIG, [T0], OffsetRange(Last(2))) is None
        fill(server.logs[T0], [1])
        found = []
        while len(found) < 3:
            found += [r.offset for r in await consumer.poll(5000)]
        assert found == [3, 4, 5]

    run(scenario)


def test_patience_ends_the_wait_for_a_stop():
    async def scenario(consumer, server):
        fill(server.logs[T0], [5])
        up_to = await seek(consumer, CONFIG, [T0], OffsetRange(Edge.START, Edge.END))
        server.broker.stop()
        assert await up_to.poll(300, 100) == []

    run(scenario)
