"""Compaction."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import (
    CLUSTER,
    DAY_MS,
    DOUBLE_MAX,
    LONG,
    LONG_MAX,
    Acts,
    at_least,
    between,
    section,
    setting,
)

later = partial(setting, acts=Acts.COMPACTION)


@section
class CleanerSettings:
    """Log cleaner."""

    log_cleaner_enable: bool = later(
        "log.cleaner.enable", True, doc="compact logs whose policy says so"
    )
    log_cleaner_threads: int = later(
        "log.cleaner.threads", 1, at_least(0), dynamic=CLUSTER, doc="threads that compact"
    )
    log_cleaner_dedupe_buffer_size: int = later(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        type=LONG,
        dynamic=CLUSTER,
        doc="memory for the map of keys, in bytes, for all threads",
    )
    log_cleaner_io_buffer_size: int = later(
        "log.cleaner.io.buffer.size",
        512 << 10,
        at_least(0),
        dynamic=CLUSTER,
        doc="memory for reading and writing, in bytes, for all threads",
    )
    log_cleaner_io_buffer_load_factor: float = later(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        dynamic=CLUSTER,
        doc="how full the map of keys may get",
    )
    log_cleaner_io_max_bytes_per_second: float = later(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        dynamic=CLUSTER,
        doc="bytes read and written a second by all threads",
    )
    log_cleaner_backoff_ms: int = later(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="pause when nothing is to be compacted",
    )
    log_cleaner_min_cleanable_ratio: float = later(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        between(0, 1),
        dynamic=CLUSTER,
        doc="share of a log not yet compacted from which on it is compacted",
    )
    log_cleaner_min_compaction_lag_ms: int = later(
        "log.cleaner.min.compaction.lag.ms",
        0,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="age before which a record is not compacted away",
    )
    log_cleaner_max_compaction_lag_ms: int = later(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="age at which a record makes its log be compacted",
    )
    log_cleaner_delete_retention_ms: int = later(
        "log.cleaner.delete.retention.ms",
        DAY_MS,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how long a tombstone, or the mark of an ended transaction, stays",
    )
