"""Who the broker is, and what holds for topics that say nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLASS,
    CLUSTER,
    GZIP_LEVEL,
    LONG,
    STRING,
    Acts,
    at_least,
    between,
    one_of,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GeneralSettings:
    """General and identity."""

    broker_id: int = setting(
        "broker.id", -1, doc="numeric id of the broker (ZooKeeper mode; equals node.id)"
    )
    node_id: int = setting(
        "node.id", -1, doc="numeric id of the process in KRaft; required with process.roles"
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        (),
        one_of("broker", "controller"),
        acts=Acts.KRAFT,
        doc="broker, controller or both; empty means ZooKeeper mode",
    )
    broker_rack: str | None = setting(
        "broker.rack",
        None,
        type=STRING,
        doc="rack label for rack-aware placement and follower fetching",
    )
    broker_id_generation_enable: bool = setting(
        "broker.id.generation.enable", True, doc="let ZooKeeper hand out ids when none is set"
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id",
        1000,
        at_least(0),
        doc="largest id a user may choose before generated ids start",
    )
    background_threads: int = setting(
        "background.threads",
        10,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.ABSENT,
        doc="threads for background work",
    )
    num_io_threads: int = setting(
        "num.io.threads",
        8,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.ABSENT,
        doc="request-handling threads",
    )
    num_partitions: int = setting(
        "num.partitions", 1, at_least(1), doc="partitions of topics created without a count"
    )
    default_replication_factor: int = setting(
        "default.replication.factor", 1, doc="replication factor of topics created without one"
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True, doc="create topics on metadata or produce requests"
    )
    delete_topic_enable: bool = setting("delete.topic.enable", True, doc="allow topic deletion")
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        at_least(1),
        dynamic=CLUSTER,
        doc="ISR size below which acks=all writes are refused",
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        1_048_588,
        at_least(0),
        dynamic=CLUSTER,
        doc="largest record batch accepted",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", 30_000, acts=Acts.REPLICATION, doc="broker-to-broker request timeout"
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        True,
        acts=Acts.REPLICATION,
        doc="hand over leaderships before stopping",
    )
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries", 3, acts=Acts.REPLICATION, doc="attempts of that"
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        type=LONG,
        acts=Acts.REPLICATION,
        doc="wait between attempts",
    )
    create_topic_policy_class_name: str | None = setting(
        "create.topic.policy.class.name",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that may refuse topic creation",
    )
    alter_config_policy_class_name: str | None = setting(
        "alter.config.policy.class.name",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that may refuse config changes",
    )
    alter_config_policy_kraft_compatibility_enable: bool = setting(
        "alter.config.policy.kraft.compatibility.enable",
        False,
        acts=Acts.KRAFT,
        doc="let that plug-in see deletions as a KRaft controller shows them",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        dynamic=CLUSTER,
        acts=Acts.REPLICATION,
        doc="let an out-of-sync replica become leader",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        True,
        acts=Acts.REPLICATION,
        doc="move leadership back to preferred replicas periodically",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        type=LONG,
        acts=Acts.REPLICATION,
        doc="period of that check",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        10,
        acts=Acts.REPLICATION,
        doc="imbalance that triggers it (ZooKeeper mode)",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=CLUSTER,
        doc="codec kept on disk; producer keeps what was sent",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level", -1, GZIP_LEVEL, dynamic=CLUSTER, doc="gzip level"
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level", 9, between(1, 17), dynamic=CLUSTER, doc="lz4 level"
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", 3, between(-131072, 22), dynamic=CLUSTER, doc="zstd level"
    )
    inter_broker_protocol_version: str = setting(
        "inter.broker.protocol.version",
        "3.9-IV0",
        acts=Acts.RETIRED,
        doc="ZooKeeper-mode protocol pin (latest production here)",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        doc="page-size cap for DescribeTopicPartitions",
    )
    eligible_leader_replicas_enable: bool = setting(
        "eligible.leader.replicas.enable",
        False,
        acts=Acts.KRAFT,
        doc="enable ELR (unreleased switch)",
    )
    config_providers: tuple[str, ...] = setting(
        "config.providers",
        (),
        dynamic=CLUSTER,
        acts=Acts.JAVA,
        doc="plug-ins that fill in ${provider:key} in values",
    )
