"""The broker's identity, and defaults for topics."""

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
        doc="the broker's id; -1 requests one from ZooKeeper, or is 0 without ZooKeeper",
    )
    node_id: int = setting(
        "node.id", -1, doc="replaces broker.id if that is unset, as in files for KRaft"
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        (),
        one_of("broker", "controller"),
        acts=Acts.KRAFT,
        doc="broker, or broker,controller; the controller role is ignored",
    )
    broker_rack: str | None = setting(
        "broker.rack",
        None,
        type=STRING,
        doc="rack of the broker, for replica placement and for fetching from the closest replica",
    )
    broker_id_generation_enable: bool = setting(
        "broker.id.generation.enable",
        True,
        doc="let ZooKeeper generate the id of a broker that has none",
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id",
        1000,
        at_least(0),
        doc="largest broker.id that can be configured; generated ids start above it",
    )
    num_partitions: int = setting(
        "num.partitions",
        1,
        at_least(1),
        doc="number of partitions of a topic that is created without one",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        1,
        doc="replication factor of a topic that is created without one",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        True,
        doc="create a missing topic when a client requests its metadata and allows its creation",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", True, doc="allow clients to delete topics"
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        dynamic=CLUSTER,
        doc=(
            "elect a replica that is not in sync if no in-sync replica is online: the partition"
            " becomes available, but records are lost"
        ),
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        at_least(1),
        dynamic=CLUSTER,
        doc="minimum number of in-sync replicas; with fewer, a write with acks=all is refused",
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        1_048_588,
        at_least(0),
        dynamic=CLUSTER,
        doc="largest record batch accepted, in bytes, after compression if it is compressed",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30_000,
        doc="how long a broker waits for a response from another broker",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=CLUSTER,
        doc="compression codec on disk; producer keeps the codec of the producer",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        GZIP_LEVEL,
        dynamic=CLUSTER,
        doc="compression level if compression.type is gzip",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        between(1, 17),
        dynamic=CLUSTER,
        doc="compression level if compression.type is lz4",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        between(-131072, 22),
        dynamic=CLUSTER,
        doc="compression level if compression.type is zstd",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        doc="maximum number of partitions in one DescribeTopicPartitions response",
    )
