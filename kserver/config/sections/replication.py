"""Followers, their fetches, and what waits for them."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import (
    CLUSTER,
    INT,
    LONG,
    STRING,
    at_least,
    one_of,
    section,
    setting,
)

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


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
    replica_lag_max_messages: int | None = setting(
        "replica.lag.max.messages",
        None,
        at_least(1),
        type=LONG,
        doc="how many records a follower may be behind before it leaves the in-sync replicas, as in"
        " Kafka 0.8; any number when unset",
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms",
        30_000,
        doc="how long a follower waits for an answer",
    )
    replica_socket_receive_buffer_bytes: int = setting(
        "replica.socket.receive.buffer.bytes",
        -1,
        doc="SO_RCVBUF of a follower's connection; -1 leaves it to the system, which lets it grow "
        "(Kafka: 65536)",
    )
    controller_socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms",
        30_000,
        doc="how long the controller waits for a broker's answer",
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        None,
        one_of(RACK_AWARE),
        type=STRING,
        doc="sends consumers to the replica in their client.rack (KIP-392); to leaders when unset",
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
        doc="the longest pause of a follower after an error: the first takes 20 ms, each further"
        " one twice as long",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", True, doc="hand leaderships over before stopping"
    )
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries", 3, doc="how often handing over is tried"
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        type=LONG,
        doc="pause between two tries",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", True, doc="give leadership back to preferred replicas"
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        type=LONG,
        doc="how often that is looked at",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        10,
        doc="share of a broker's leaderships away from home, in percent, that brings them back",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        None,
        type=INT,
        doc="replicas moved between directories at once; as many as directories when unset",
    )
