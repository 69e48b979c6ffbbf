"""Followers, their fetches, and what waits for them."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import CLUSTER, INT, LONG, STRING, Acts, at_least, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicationSettings:
    """Replication."""

    num_replica_fetchers: int = setting(
        "num.replica.fetchers",
        1,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.REPLICATION,
        doc="fetcher threads per source broker",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        1 << 20,
        at_least(0),
        acts=Acts.REPLICATION,
        doc="bytes per partition per fetch",
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", 1, acts=Acts.REPLICATION, doc="smallest answer"
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", 500, acts=Acts.REPLICATION, doc="longest wait for it"
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        10 << 20,
        at_least(0),
        acts=Acts.REPLICATION,
        doc="bytes per fetch response",
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        1000,
        at_least(0),
        acts=Acts.REPLICATION,
        doc="pause after an error",
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        type=LONG,
        acts=Acts.REPLICATION,
        doc="lag that drops a follower from the ISR",
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", 30_000, acts=Acts.REPLICATION, doc="fetch socket timeout"
    )
    replica_socket_receive_buffer_bytes: int = setting(
        "replica.socket.receive.buffer.bytes",
        64 << 10,
        acts=Acts.REPLICATION,
        doc="fetch socket buffer",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        type=LONG,
        doc="high-watermark checkpoint period",
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        None,
        type=STRING,
        acts=Acts.JAVA,
        doc="chooses a replica for consumers with a rack",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        None,
        type=INT,
        acts=Acts.ABSENT,
        doc="threads moving replicas between directories; null means one a directory",
    )
    controller_socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms",
        30_000,
        acts=Acts.REPLICATION,
        doc="controller-to-broker channel timeout",
    )
    fetch_purgatory_purge_interval_requests: int = setting(
        "fetch.purgatory.purge.interval.requests",
        1000,
        acts=Acts.ABSENT,
        doc="purge period of waiting fetches",
    )
    producer_purgatory_purge_interval_requests: int = setting(
        "producer.purgatory.purge.interval.requests",
        1000,
        acts=Acts.ABSENT,
        doc="purge period of waiting produces",
    )
