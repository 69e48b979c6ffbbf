"""Who the broker is, and what holds for topics that say nothing else."""

from __future__ import annotations

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
    section,
    setting,
)


@section
class GeneralSettings:
    """General and identity."""

    broker_id: int = setting(
        "broker.id",
        -1,
        at_least(-1),
        doc="the broker's number; -1 asks ZooKeeper for one, and is 0 without ZooKeeper",
    )
    node_id: int = setting(
        "node.id", -1, doc="stands for broker.id when that is not given, as in files for KRaft"
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        (),
        one_of("broker", "controller"),
        acts=Acts.KRAFT,
        doc="broker, or broker,controller; the controller's part is not taken up",
    )
    broker_rack: str | None = setting(
        "broker.rack",
        None,
        type=STRING,
        doc="the rack the broker stands in, for placement of replicas and fetching from near ones",
    )
    broker_id_generation_enable: bool = setting(
        "broker.id.generation.enable",
        True,
        doc="let ZooKeeper give out a number to a broker that has none",
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id",
        1000,
        at_least(0),
        doc="the largest number a file may choose; generated ones start above it",
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
        doc="threads that handle requests",
    )
    num_partitions: int = setting(
        "num.partitions",
        1,
        at_least(1),
        doc="partitions of a topic that is created without a count",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        1,
        doc="replicas of a topic that is created without a number of them",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        True,
        doc="create a topic when a client asks for its metadata and lets it be created",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", True, doc="allow topics to be deleted"
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        at_least(1),
        dynamic=CLUSTER,
        doc="in-sync replicas below which a write with acks=all is refused",
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        1_048_588,
        at_least(0),
        dynamic=CLUSTER,
        doc="largest record batch taken, as it comes, compressed or not",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30_000,
        acts=Acts.REPLICATION,
        doc="how long a broker waits for an answer of another",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        True,
        acts=Acts.REPLICATION,
        doc="hand leaderships over before stopping",
    )
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries",
        3,
        acts=Acts.REPLICATION,
        doc="how often handing over is tried",
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        type=LONG,
        acts=Acts.REPLICATION,
        doc="pause between two tries",
    )
    create_topic_policy_class_name: str | None = setting(
        "create.topic.policy.class.name",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that may refuse to create a topic",
    )
    alter_config_policy_class_name: str | None = setting(
        "alter.config.policy.class.name",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that may refuse to change a configuration",
    )
    alter_config_policy_kraft_compatibility_enable: bool = setting(
        "alter.config.policy.kraft.compatibility.enable",
        False,
        acts=Acts.KRAFT,
        doc="show that plug-in deletions as a KRaft controller does",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        dynamic=CLUSTER,
        acts=Acts.REPLICATION,
        doc="let a replica lead that is not in sync: records are lost, the partition is available",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        True,
        acts=Acts.REPLICATION,
        doc="give leadership back to preferred replicas",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        type=LONG,
        acts=Acts.REPLICATION,
        doc="how often that is looked at",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        10,
        acts=Acts.REPLICATION,
        doc="share of leaderships away from home, in percent, that brings them back",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=CLUSTER,
        doc="codec on disk; producer keeps what was sent",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        GZIP_LEVEL,
        dynamic=CLUSTER,
        doc="level when compression.type is gzip",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        between(1, 17),
        dynamic=CLUSTER,
        doc="level when compression.type is lz4",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        between(-131072, 22),
        dynamic=CLUSTER,
        doc="level when compression.type is zstd",
    )
    inter_broker_protocol_version: str = setting(
        "inter.broker.protocol.version",
        "3.9-IV0",
        acts=Acts.RETIRED,
        doc="version that brokers speak with each other",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        doc="partitions in one answer to DescribeTopicPartitions",
    )
    eligible_leader_replicas_enable: bool = setting(
        "eligible.leader.replicas.enable",
        False,
        acts=Acts.KRAFT,
        doc="remember replicas that could lead after the in-sync ones are gone (KIP-966)",
    )
    config_providers: tuple[str, ...] = setting(
        "config.providers",
        (),
        dynamic=CLUSTER,
        acts=Acts.JAVA,
        doc="plug-ins that fill in ${provider:key} in values",
    )
