"""Compaction."""

from __future__ import annotations

from kserver.config.setting import (
    CLUSTER,
    DAY_MS,
    DOUBLE_MAX,
    LONG,
    LONG_MAX,
    at_least,
    between,
    section,
    setting,
)


@section
class CleanerSettings:
    """Log cleaner."""

    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", True, doc="compact the logs whose cleanup policy includes compact"
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        1,
        at_least(0),
        dynamic=CLUSTER,
        doc="number of logs compacted at the same time, each in its own process",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        type=LONG,
        dynamic=CLUSTER,
        doc="total memory for the maps of keys, in bytes; each key takes 144 bytes",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        512 << 10,
        at_least(0),
        dynamic=CLUSTER,
        doc="total memory for reading and writing, in bytes",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        dynamic=CLUSTER,
        doc="maximum fill level of the map of keys, as a fraction",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        dynamic=CLUSTER,
        doc="maximum bytes read and written per second, over all threads",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="pause when there is no log to compact",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        between(0, 1),
        dynamic=CLUSTER,
        doc="fraction of uncompacted bytes at which a log is compacted",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        0,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="minimum age of a record before compaction can remove it",
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="maximum age of an uncompacted record; an older one triggers compaction of its log",
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        DAY_MS,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how long tombstones and transaction markers are kept",
    )
