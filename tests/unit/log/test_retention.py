from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kserver.config.topic import TopicConfig
from kserver.log.retention import expired

NOW_MS = 1_000_000


@dataclass
class Stand:
    base_offset: int
    size: int
    timestamp: int

    def largest_timestamp(self) -> int:
        return self.timestamp


def row(*sizes_and_ages: tuple[int, int]) -> list[Stand]:
    """Segments of ten offsets each; the last is active."""
    return [
        Stand(10 * number, size, NOW_MS - age) for number, (size, age) in enumerate(sizes_and_ages)
    ]


def count(
    segments: list[Stand], *, start: int = 0, watermark: int | None = None, **config: Any
) -> int:
    end = 10 * len(segments)
    return expired(
        segments,
        TopicConfig(**{"retention_ms": -1, **config}),
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end if watermark is None else watermark,
        now_ms=NOW_MS,
    )


def test_nothing_goes_without_a_limit() -> None:
    assert count(row((100, 10**9), (100, 10**9), (100, 0))) == 0


def test_what_is_older_than_retention_ms_goes_oldest_first() -> None:
    segments = row((100, 501), (100, 500), (100, 900), (100, 0))
    assert count(segments, retention_ms=500) == 1


def test_an_old_active_segment_goes_too_unless_it_is_empty() -> None:
    assert count(row((100, 900), (100, 900)), retention_ms=500) == 2
    assert count(row((100, 900), (0, 900)), retention_ms=500) == 1


def test_a_segment_goes_when_the_rest_still_holds_retention_bytes() -> None:
    segments = row((100, 0), (100, 0), (100, 0))
    assert [count(segments, retention_bytes=n) for n in (300, 201, 200, 101, 100, 0)] == [
        0, 0, 1, 1, 2, 3,
    ]  # fmt: skip


def test_what_lies_below_the_log_start_goes_whatever_the_policy() -> None:
    segments = row((100, 0), (100, 0), (100, 0))
    for policy in (("delete",), ("compact",), ("compact", "delete"), ()):
        assert count(segments, start=20, cleanup_policy=policy) == 2
        assert count(segments, start=19, cleanup_policy=policy) == 1


def test_a_compacted_topic_keeps_what_is_old_and_large() -> None:
    segments = row((100, 900), (100, 900))
    assert count(segments, retention_ms=1, retention_bytes=1, cleanup_policy=("compact",)) == 0


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 1000)), min_size=1, max_size=8),
    st.integers(0, 80),
    st.integers(-1, 400),
    st.integers(-1, 1000),
)
def test_nothing_at_or_above_the_high_watermark_goes(
    sizes_and_ages: list[tuple[int, int]], watermark: int, size: int, age: int
) -> None:
    segments = row(*sizes_and_ages)
    watermark = min(watermark, 10 * len(segments))
    gone = count(segments, watermark=watermark, retention_bytes=size, retention_ms=age)
    assert 10 * gone <= watermark
