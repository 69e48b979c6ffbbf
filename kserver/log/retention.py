"""Retention: how many of the oldest segments to delete.

Pure: the oldest segments are deleted, up to the first one that no rule applies to.

    rule       a segment is deleted if                                         cleanup.policy
    start      the next segment's base is not above the log start offset       any
    size       the log would still hold `retention.bytes` without it           delete
    time       its largest timestamp is over `retention.ms` ago                delete

A segment with records at or above the high watermark, or an empty active one, is never deleted.  If
the active one is deleted too, the log rolls first.  Kafka: UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kserver.model import Offset

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig


class Aged(Protocol):
    """The properties of a segment that the rules use."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def size(self) -> int: ...
    def largest_timestamp(self) -> int: ...


def expired(
    segments: Sequence[Aged],
    config: TopicConfig,
    *,
    log_start_offset: Offset,
    log_end_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> int:
    """Return how many of the first segments to delete."""
    deletes = "delete" in config.cleanup_policy
    sizes = deletes and config.retention_bytes >= 0
    times = deletes and config.retention_ms >= 0
    total = sum(segment.size for segment in segments)
    count = 0
    for number, segment in enumerate(segments):
        is_active = number + 1 == len(segments)
        end = log_end_offset if is_active else segments[number + 1].base_offset
        if end > high_watermark or (is_active and segment.size == 0):
            break
        if not (
            (not is_active and end <= log_start_offset)
            or (sizes and total - segment.size >= config.retention_bytes)
            or (times and now_ms - segment.largest_timestamp() > config.retention_ms)
        ):
            break
        total -= segment.size
        count += 1
    return count
