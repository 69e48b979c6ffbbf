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
        "log.cleaner.enable", True, doc="compact logs whose policy says so"
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        1,
        at_least(0),
        dynamic=CLUSTER,
        doc="how many logs are compacted at once, each in a process of its own",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        type=LONG,
        dynamic=CLUSTER,
        doc="memory for the maps of keys, in bytes, all together; a key takes 144",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        512 << 10,
        at_least(0),
        dynamic=CLUSTER,
        doc="memory for reading and writing, in bytes, all together",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        dynamic=CLUSTER,
        doc="how full the map of keys may get",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        dynamic=CLUSTER,
        doc="bytes read and written a second, all together",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="pause when nothing is to be compacted",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        between(0, 1),
        dynamic=CLUSTER,
        doc="share of a log not yet compacted from which on it is compacted",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        0,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="age before which a record is not compacted away",
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="age at which a record makes its log be compacted",
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        DAY_MS,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how long a tombstone, or the mark of an ended transaction, stays",
    )
