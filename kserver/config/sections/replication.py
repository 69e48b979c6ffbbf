"""Followers, their fetches, and what waits for them."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import CLUSTER, INT, LONG, STRING, Acts, at_least, section, setting

later = partial(setting, acts=Acts.REPLICATION)


@section
class ReplicationSettings:
    """Replication."""

    num_replica_fetchers: int = later(
        "num.replica.fetchers",
        1,
        at_least(1),
        dynamic=CLUSTER,
        doc="fetchers for each broker that is followed",
    )
    replica_fetch_max_bytes: int = later(
        "replica.fetch.max.bytes",
        1 << 20,
        at_least(0),
        doc="bytes of a partition in one fetch of a follower",
    )
    replica_fetch_min_bytes: int = later(
        "replica.fetch.min.bytes", 1, doc="bytes a follower's fetch waits for"
    )
    replica_fetch_wait_max_ms: int = later(
        "replica.fetch.wait.max.ms", 500, doc="how long a follower's fetch waits for them"
    )
    replica_fetch_response_max_bytes: int = later(
        "replica.fetch.response.max.bytes",
        10 << 20,
        at_least(0),
        doc="bytes of all partitions in one fetch of a follower",
    )
    replica_fetch_backoff_ms: int = later(
        "replica.fetch.backoff.ms", 1000, at_least(0), doc="pause of a follower after an error"
    )
    replica_lag_time_max_ms: int = later(
        "replica.lag.time.max.ms",
        30_000,
        type=LONG,
        doc="how long a follower may be behind before it leaves the in-sync replicas",
    )
    replica_socket_timeout_ms: int = later(
        "replica.socket.timeout.ms", 30_000, doc="how long a follower waits for an answer"
    )
    replica_socket_receive_buffer_bytes: int = later(
        "replica.socket.receive.buffer.bytes", 64 << 10, doc="SO_RCVBUF of a follower's connection"
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        type=LONG,
        doc="how often high watermarks are noted on disk",
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        None,
        type=STRING,
        acts=Acts.JAVA,
        doc="plug-in that picks the replica a consumer is sent to",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        None,
        type=INT,
        doc="replicas moved between directories at once; as many as directories when unset",
    )
    controller_socket_timeout_ms: int = later(
        "controller.socket.timeout.ms",
        30_000,
        doc="how long the controller waits for a broker's answer",
    )
    fetch_purgatory_purge_interval_requests: int = setting(
        "fetch.purgatory.purge.interval.requests",
        1000,
        acts=Acts.ABSENT,
        doc="waiting fetches after which ended ones are removed",
    )
    producer_purgatory_purge_interval_requests: int = setting(
        "producer.purgatory.purge.interval.requests",
        1000,
        acts=Acts.ABSENT,
        doc="waiting produces after which ended ones are removed",
    )
