"""The dirty part of a compacted log, and whether cleaning it is due.

Pure: a row of segments in, a range of offsets out.

    0            first dirty            first uncleanable            log end
    |  cleaned   |  dirty               |  uncleanable               |

The uncleanable part starts at the first of:

    the active segment
    `limit`: the first offset of an undecided transaction, or not replicated, or not on disk
    the first dirty segment with a record younger than min.compaction.lag.ms

A log is due when the dirty share of the part that would be cleaned is above
min.cleanable.dirty.ratio, or when a record has been dirty for longer than max.compaction.lag.ms.
Kafka: LogCleanerManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kserver.model import Offset

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig


class Row(Protocol):
    """The properties of a segment that decide whether it is cleaned."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def size(self) -> int: ...
    @property
    def first_timestamp(self) -> int: ...
    def largest_timestamp(self) -> int: ...


class Dirty(NamedTuple):
    """Dirty range of a log; sizes in bytes."""

    first_offset: Offset
    end_offset: Offset
    """First uncleanable offset (exclusive end of the dirty part)."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether max.compaction.lag.ms has passed for a dirty record."""

    @property
    def ratio(self) -> float:
        whole = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / whole if whole else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio


def dirty(
    segments: Sequence[Row],
    config: TopicConfig,
    *,
    cleaned_to: Offset,
    log_start_offset: Offset,
    limit: Offset,
    now_ms: int,
) -> Dirty:
    """Return the dirty range of a log.

    `segments` are all of the log, the last one active; `cleaned_to` is the end of the last
    cleaning.  A `cleaned_to` outside the log, after a truncation or deletion, is ignored.
    """
    active = segments[-1].base_offset
    first = cleaned_to if log_start_offset <= cleaned_to <= active else log_start_offset
    end, clean_bytes, dirty_bytes = first, 0, 0
    is_overdue = False
    for segment, following in pairwise(segments):
        next_base = following.base_offset
        if next_base > limit:
            break
        if next_base <= first:
            clean_bytes += segment.size
            continue
        lag_ms = config.min_compaction_lag_ms
        if lag_ms > 0 and segment.largest_timestamp() > now_ms - lag_ms:
            break
        if 0 <= segment.first_timestamp < now_ms - config.max_compaction_lag_ms:
            is_overdue = True
        dirty_bytes += segment.size
        end = next_base
    return Dirty(first, end, clean_bytes, dirty_bytes, is_overdue)
