"""Followers, their fetches, and what waits for them."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import INT, LONG, section, setting


@section
@known_keys("replication")
class ReplicationSettings:
    """Replication."""

    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        type=LONG,
        doc="how often high watermarks are noted on disk",
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        type=LONG,
        doc="how long a follower may be behind before it leaves the in-sync replicas",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        None,
        type=INT,
        doc="replicas moved between directories at once; as many as directories when unset",
    )
