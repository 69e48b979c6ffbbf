"""Followers, their fetches, and delayed requests."""

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
        doc="how often high watermarks are written to disk",
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        type=LONG,
        doc="how long a follower may lag before it is removed from the in-sync replicas",
    )
    replica_lag_max_messages: int | None = setting(
        "replica.lag.max.messages",
        None,
        at_least(1),
        type=LONG,
        doc="number of records that a follower may lag before it is removed from the in-sync"
        " replicas, as in Kafka 0.8; no limit when unset",
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms",
        30_000,
        doc="how long a follower waits for a response from the leader",
    )
    replica_socket_receive_buffer_bytes: int = setting(
        "replica.socket.receive.buffer.bytes",
        -1,
        doc="SO_RCVBUF of a follower's connection; -1 leaves it to the operating system, which "
        "grows it (Kafka: 65536)",
    )
    controller_socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms",
        30_000,
        doc="how long the controller waits for a broker's response",
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        None,
        one_of(RACK_AWARE),
        type=STRING,
        doc="class that selects the replica in the consumer's client.rack (KIP-392); consumers "
        "fetch from leaders when unset",
    )
    num_replica_fetchers: int = setting(
        "num.replica.fetchers",
        1,
        at_least(1),
        dynamic=CLUSTER,
        doc="number of fetchers per leader broker",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        1_048_576,
        at_least(0),
        doc="maximum bytes of one partition in a follower's fetch",
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", 1, doc="minimum bytes that a follower's fetch waits for"
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        doc="how long a follower's fetch waits for replica.fetch.min.bytes",
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        10_485_760,
        at_least(0),
        doc="maximum bytes of all partitions in a follower's fetch",
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        1000,
        at_least(0),
        doc="maximum pause of a follower after an error; the first pause is 20 ms, and each further"
        " one is twice as long",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        True,
        doc="transfer the leaderships to other brokers before the broker stops",
    )
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries", 3, doc="number of attempts to transfer the leaderships"
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        type=LONG,
        doc="pause between two attempts to transfer the leaderships",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        True,
        doc="let the controller elect preferred replicas periodically",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        type=LONG,
        doc="how often the controller checks leader.imbalance.per.broker.percentage",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        10,
        doc="percentage of a broker's preferred leaderships that other brokers may hold; above it,"
        " the controller elects the preferred replicas",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        None,
        type=INT,
        doc="maximum replicas moved between log directories at the same time; the number of log"
        " directories when unset",
    )
