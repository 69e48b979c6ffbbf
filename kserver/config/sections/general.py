"""The broker's identity, and what holds for topics that say nothing else."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import (
    CLUSTER,
    GZIP_LEVEL,
    STRING,
    Acts,
    at_least,
    between,
    one_of,
    section,
    setting,
)


@section
@known_keys("general")
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
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        dynamic=CLUSTER,
        doc=(
            "let a replica lead that is not in sync: records are lost, the partition is available"
        ),
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
        doc="how long a broker waits for an answer of another",
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
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        doc="partitions in one answer to DescribeTopicPartitions",
    )
