from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode, KafkaError
from kserver.log.log import Log
from kserver.log.segments import COLD, Slice
from kserver.wire.batch import batches
from tests.support.clock import DAY_ONE_MS, StillClock
from tests.support.disk import SimDisk
from tests.support.logs import batch, open_log, read_all
from tests.support.loop import SimLoop, simulate


def make_log(*counts: int, disk: SimDisk | None = None, size: int = 40) -> Log:
    """A log of batches with so many records each, in several segments."""
    disk = disk or SimDisk(random.Random(0), StillClock())
    log = open_log(disk, TopicConfig(segment_bytes=1500, index_interval_bytes=300))
    for number, count in enumerate(counts):
        records = batch(count, size=size, tag=b"%d-" % number)
        log.append_as_leader(records, 0, DAY_ONE_MS)
    return log


def read(log: Log, offset: int, max_bytes: int = 1 << 20, **options: int) -> Slice:
    up_to = options.pop("up_to", log.log_end_offset)
    found = log.read(offset, max_bytes, up_to=up_to, **options)  # type: ignore[arg-type]
    assert isinstance(found, Slice)
    return found


def offsets(found: Slice) -> list[int]:
    assert found.data is not None
    return [record.offset for one in batches(found.data.read()) for record in one.records()]


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_a_read_gives_the_batches_from_the_offset_on_within_its_limits(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=60))
    log = make_log(*counts)
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    segment_ends = [segment.end_offset for segment in log.segments]
    for _ in range(20):
        offset = data.draw(st.integers(0, log.log_end_offset - 1))
        up_to = data.draw(st.sampled_from([s for s in starts if s > offset]))
        max_bytes = data.draw(st.integers(0, 2000))
        at_least_one = data.draw(st.booleans())
        found = read(log, offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
        first = max(s for s in starts if s <= offset)
        following = min(s for s in starts if s > offset)
        end = min(up_to, min(e for e in segment_ends if e > offset))
        if found.data is None:
            assert not at_least_one
            assert read(log, offset, 1, up_to=up_to).size > max_bytes
            continue
        got = offsets(found)
        # Whole batches from the one that holds the offset; only the last may be cut.
        assert got == list(range(first, got[-1] + 1 if got else first))
        assert found.size <= max_bytes or got == list(range(first, following))
        assert got[-1:] <= [end - 1]
        if found.size < max_bytes:
            assert got[-1] == end - 1
        assert (got or [offset])[-1] < found.upper_bound <= up_to
    log.check()


def test_a_reader_that_goes_on_needs_no_index() -> None:
    disk = SimDisk(random.Random(0), StillClock())
    log = make_log(*[2] * 8, disk=disk)
    position = 0
    while position < log.log_end_offset:
        position = offsets(read(log, position, 1))[-1] + 1
        disk.counts.clear()
    log.append_as_leader(batch(), 0, DAY_ONE_MS)
    disk.counts.clear()
    assert offsets(read(log, position)) == [16]
    assert disk.counts["read_at"] == 1  # the test's own


def test_who_waits_at_the_end_reads_what_comes_next() -> None:
    log = make_log(3)
    assert read(log, 3) == (None, 0, 3)
    log.append_as_leader(batch(2), 0, DAY_ONE_MS)
    assert offsets(read(log, 3)) == [3, 4]
    log.roll(DAY_ONE_MS)
    assert read(log, 5) == (None, 0, 5)
    log.append_as_leader(batch(1), 0, DAY_ONE_MS)
    assert offsets(read(log, 5)) == [5]


def test_nothing_is_read_at_or_beyond_the_limit() -> None:
    log = make_log(1, 1, 1)
    assert read(log, 1, up_to=1).data is None
    assert read(log, 2, up_to=1).data is None
    assert offsets(read(log, 0, up_to=2)) == [0, 1]


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_outside_the_log_is_refused(offset: int) -> None:
    log = make_log(1, 1, 1)
    with pytest.raises(KafkaError) as raised:
        log.read(offset, 100, up_to=3)
    assert raised.value.code is ErrorCode.offset_out_of_range


def test_what_memory_does_not_hold_is_cold_until_it_was_waited_for() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, StillClock())
        log = make_log(*[3] * 20, disk=disk)
        disk.cold_chance = 1.0
        assert log.read(7, 1 << 20, up_to=30) is COLD
        await log.read_cold(7, 1 << 20, up_to=30)
        assert offsets(read(log, 7, up_to=30))[0] == 6

    simulate(scenario, seed=1)


def test_the_places_of_many_readers_are_bounded() -> None:
    log = make_log(*[1] * 200)
    assert len(read_all(log, max_bytes=1)) == 200
    log.check()
