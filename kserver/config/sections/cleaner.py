"""Compaction."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLUSTER,
    DAY_MS,
    DOUBLE_MAX,
    LONG,
    LONG_MAX,
    Acts,
    at_least,
    between,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class CleanerSettings:
    """Log cleaner."""

    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", True, acts=Acts.COMPACTION, doc="run the compaction cleaner"
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        1,
        at_least(0),
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="cleaner threads",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="memory for the key map",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        512 << 10,
        at_least(0),
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="I/O buffers",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="fill limit of the key map",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="I/O throttle",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="sleep when nothing to do",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        between(0, 1),
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="dirty share that makes a log eligible",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        0,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="age before a record may be compacted",
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="age after which it must become eligible",
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        DAY_MS,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.COMPACTION,
        doc="how long tombstones stay",
    )
