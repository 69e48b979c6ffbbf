"""Consumer groups and the offsets they commit."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLUSTER,
    INT_MAX,
    LONG,
    SHORT,
    Acts,
    at_least,
    one_of,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GroupSettings:
    """Group coordinator and offsets."""

    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6000,
        acts=Acts.GROUPS,
        doc="smallest session timeout a classic member may ask for",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", 1_800_000, acts=Acts.GROUPS, doc="largest"
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3000,
        acts=Acts.GROUPS,
        doc="wait for more members before the first rebalance",
    )
    group_max_size: int = setting(
        "group.max.size", INT_MAX, at_least(1), acts=Acts.GROUPS, doc="largest classic group"
    )
    group_coordinator_threads: int = setting(
        "group.coordinator.threads",
        4,
        at_least(1),
        acts=Acts.ABSENT,
        doc="threads of the new coordinator",
    )
    group_coordinator_background_threads: int = setting(
        "group.coordinator.background.threads",
        2,
        at_least(1),
        acts=Acts.ABSENT,
        doc="threads for background work of the coordinator",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        one_of("consumer", "classic", "share", "streams"),
        acts=Acts.GROUPS,
        doc="enabled protocols",
    )
    group_coordinator_append_linger_ms: int = setting(
        "group.coordinator.append.linger.ms",
        -1,
        at_least(-1),
        acts=Acts.GROUPS,
        doc="batching of coordinator writes",
    )
    group_coordinator_cached_buffer_max_bytes: int = setting(
        "group.coordinator.cached.buffer.max.bytes",
        1_048_588,
        at_least(512 << 10),
        dynamic=CLUSTER,
        acts=Acts.ABSENT,
        doc="largest buffer kept for coordinator writes",
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="session timeout of the new protocol",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        45_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="lower bound for per-group settings",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        60_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="upper bound",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="heartbeat interval of the new protocol",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="lower bound",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="upper bound",
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        1000,
        at_least(0),
        dynamic=CLUSTER,
        acts=Acts.GROUPS,
        doc="least time between two assignments of one group",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        0,
        at_least(0),
        acts=Acts.GROUPS,
        doc="lower bound for per-group settings",
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        at_least(0),
        acts=Acts.GROUPS,
        doc="upper bound",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        INT_MAX,
        at_least(1),
        acts=Acts.GROUPS,
        doc="largest new-protocol group",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ("uniform", "range"),
        acts=Acts.GROUPS,
        doc="server-side assignors, first is the default",
    )
    group_streams_session_timeout_ms: int = setting(
        "group.streams.session.timeout.ms",
        45_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="session timeout of Streams groups",
    )
    group_streams_min_session_timeout_ms: int = setting(
        "group.streams.min.session.timeout.ms",
        45_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="lower bound for per-group settings",
    )
    group_streams_max_session_timeout_ms: int = setting(
        "group.streams.max.session.timeout.ms",
        60_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="upper bound",
    )
    group_streams_heartbeat_interval_ms: int = setting(
        "group.streams.heartbeat.interval.ms",
        5000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="heartbeat interval of Streams groups",
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        "group.streams.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="lower bound",
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        "group.streams.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="upper bound",
    )
    group_streams_assignment_interval_ms: int = setting(
        "group.streams.assignment.interval.ms",
        1000,
        at_least(0),
        dynamic=CLUSTER,
        acts=Acts.GROUPS,
        doc="least time between two assignments of one Streams group",
    )
    group_streams_min_assignment_interval_ms: int = setting(
        "group.streams.min.assignment.interval.ms",
        0,
        at_least(0),
        acts=Acts.GROUPS,
        doc="lower bound",
    )
    group_streams_max_assignment_interval_ms: int = setting(
        "group.streams.max.assignment.interval.ms",
        15_000,
        at_least(0),
        acts=Acts.GROUPS,
        doc="upper bound",
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        at_least(0),
        acts=Acts.GROUPS,
        doc="wait for more members before the first rebalance of a Streams group",
    )
    group_streams_max_size: int = setting(
        "group.streams.max.size",
        INT_MAX,
        at_least(1),
        acts=Acts.GROUPS,
        doc="largest Streams group",
    )
    group_streams_num_standby_replicas: int = setting(
        "group.streams.num.standby.replicas",
        0,
        at_least(0),
        acts=Acts.GROUPS,
        doc="standby replicas of a task",
    )
    group_streams_max_standby_replicas: int = setting(
        "group.streams.max.standby.replicas", 2, at_least(0), acts=Acts.GROUPS, doc="upper bound"
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        at_least(1),
        acts=Acts.GROUPS,
        doc="partitions of __consumer_offsets",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        at_least(1),
        type=SHORT,
        acts=Acts.GROUPS,
        doc="its replication factor",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        100 << 20,
        at_least(1),
        acts=Acts.GROUPS,
        doc="its segment size",
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec", 0, acts=Acts.GROUPS, doc="its codec, numeric id"
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size",
        5 << 20,
        at_least(1),
        acts=Acts.GROUPS,
        doc="read size when loading it",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        10_080,
        at_least(1),
        acts=Acts.GROUPS,
        doc="how long offsets of an empty group live",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        at_least(1),
        type=LONG,
        acts=Acts.GROUPS,
        doc="how often that is checked",
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5000,
        at_least(1),
        acts=Acts.GROUPS,
        doc="wait for a commit to replicate",
    )
    offsets_commit_required_acks: int = setting(
        "offsets.commit.required.acks",
        -1,
        type=SHORT,
        acts=Acts.RETIRED,
        doc="acks of the write of a commit; only -1 is sound",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", 4 << 10, acts=Acts.GROUPS, doc="largest commit metadata string"
    )
