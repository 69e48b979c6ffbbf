"""Followers, their fetches, and what waits for them."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import CLUSTER, INT, LONG, at_least, section, setting


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
    num_replica_fetchers: int = setting(
        "num.replica.fetchers",
        1,
        at_least(1),
        dynamic=CLUSTER,
        doc="fetchers for each broker that is followed",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        1_048_576,
        at_least(0),
        doc="bytes of a partition in one fetch of a follower",
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", 1, doc="bytes a follower's fetch waits for"
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", 500, doc="how long a follower's fetch waits for them"
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        10_485_760,
        at_least(0),
        doc="bytes of all partitions in one fetch of a follower",
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        1000,
        at_least(0),
        doc="pause of a follower after an error",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        None,
        type=INT,
        doc="replicas moved between directories at once; as many as directories when unset",
    )
