"""Share groups and the topic of their state."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import CLUSTER, SHORT, Acts, at_least, between, section, setting

later = partial(setting, acts=Acts.SHARE_GROUPS)


@section
class ShareGroupSettings:
    """Share groups."""

    group_share_delivery_count_limit: int = later(
        "group.share.delivery.count.limit",
        5,
        between(2, 10),
        doc="how often a record is delivered at most",
    )
    group_share_min_delivery_count_limit: int = later(
        "group.share.min.delivery.count.limit",
        2,
        between(2, 5),
        doc="least delivery count that may be set for one group",
    )
    group_share_max_delivery_count_limit: int = later(
        "group.share.max.delivery.count.limit",
        10,
        between(5, 25),
        doc="greatest delivery count that may be set for one group",
    )
    group_share_record_lock_duration_ms: int = later(
        "group.share.record.lock.duration.ms",
        30_000,
        between(1000, 3600000),
        doc="how long a consumer holds a record",
    )
    group_share_min_record_lock_duration_ms: int = later(
        "group.share.min.record.lock.duration.ms",
        15_000,
        between(1000, 30000),
        doc="shortest hold that may be set for one group",
    )
    group_share_max_record_lock_duration_ms: int = later(
        "group.share.max.record.lock.duration.ms",
        60_000,
        between(30000, 3600000),
        doc="longest hold that may be set for one group",
    )
    group_share_partition_max_record_locks: int = later(
        "group.share.partition.max.record.locks",
        2000,
        between(100, 10000),
        doc="records of a partition that are held at the same time",
    )
    group_share_min_partition_max_record_locks: int = later(
        "group.share.min.partition.max.record.locks",
        100,
        between(100, 2000),
        doc="least such number that may be set for one group",
    )
    group_share_max_partition_max_record_locks: int = later(
        "group.share.max.partition.max.record.locks",
        4000,
        between(2000, 10000),
        doc="greatest such number that may be set for one group",
    )
    group_share_max_groups: int = later(
        "group.share.max.groups", 10, between(1, 100), type=SHORT, doc="share groups"
    )
    group_share_max_size: int = later(
        "group.share.max.size", 200, between(1, 1000), doc="members of a share group"
    )
    group_share_max_share_sessions: int = later(
        "group.share.max.share.sessions", 2000, at_least(1), doc="share sessions that are kept"
    )
    group_share_assignors: tuple[str, ...] = later(
        "group.share.assignors", ("simple",), doc="assignors on the broker's side"
    )
    group_share_session_timeout_ms: int = later(
        "group.share.session.timeout.ms",
        45_000,
        at_least(1),
        doc="session timeout of a share group",
    )
    group_share_min_session_timeout_ms: int = later(
        "group.share.min.session.timeout.ms",
        45_000,
        at_least(1),
        doc="least session timeout that may be set for one group",
    )
    group_share_max_session_timeout_ms: int = later(
        "group.share.max.session.timeout.ms",
        60_000,
        at_least(1),
        doc="greatest session timeout that may be set for one group",
    )
    group_share_heartbeat_interval_ms: int = later(
        "group.share.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="time between two heartbeats of a member",
    )
    group_share_min_heartbeat_interval_ms: int = later(
        "group.share.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="least heartbeat interval that may be set for one group",
    )
    group_share_max_heartbeat_interval_ms: int = later(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        doc="greatest heartbeat interval that may be set for one group",
    )
    group_share_assignment_interval_ms: int = later(
        "group.share.assignment.interval.ms",
        1000,
        at_least(0),
        dynamic=CLUSTER,
        doc="least time from one assignment of a group to the next",
    )
    group_share_min_assignment_interval_ms: int = later(
        "group.share.min.assignment.interval.ms",
        0,
        at_least(0),
        doc="least assignment interval that may be set for one group",
    )
    group_share_max_assignment_interval_ms: int = later(
        "group.share.max.assignment.interval.ms",
        15_000,
        at_least(0),
        doc="greatest assignment interval that may be set for one group",
    )
    share_coordinator_state_topic_num_partitions: int = later(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        doc="partitions of __share_group_state",
    )
    share_coordinator_state_topic_replication_factor: int = later(
        "share.coordinator.state.topic.replication.factor",
        3,
        at_least(1),
        type=SHORT,
        doc="replicas of __share_group_state",
    )
    share_coordinator_state_topic_min_isr: int = later(
        "share.coordinator.state.topic.min.isr",
        2,
        at_least(1),
        type=SHORT,
        doc="in-sync replicas it needs to be written to",
    )
    share_coordinator_state_topic_segment_bytes: int = later(
        "share.coordinator.state.topic.segment.bytes",
        100 << 20,
        at_least(1),
        doc="size of its segments",
    )
    share_coordinator_state_topic_compression_codec: int = later(
        "share.coordinator.state.topic.compression.codec", 0, doc="number of its codec"
    )
    share_coordinator_threads: int = setting(
        "share.coordinator.threads",
        1,
        at_least(1),
        acts=Acts.ABSENT,
        doc="threads of the coordinator",
    )
    share_coordinator_load_buffer_size: int = later(
        "share.coordinator.load.buffer.size",
        5 << 20,
        at_least(1),
        doc="bytes read at a time when it is loaded",
    )
    share_coordinator_append_linger_ms: int = later(
        "share.coordinator.append.linger.ms",
        -1,
        at_least(-1),
        doc="how long the coordinator's writes are gathered",
    )
    share_coordinator_cached_buffer_max_bytes: int = setting(
        "share.coordinator.cached.buffer.max.bytes",
        1_048_588,
        at_least(512 << 10),
        dynamic=CLUSTER,
        acts=Acts.ABSENT,
        doc="largest buffer that is kept from one write to the next",
    )
    share_coordinator_write_timeout_ms: int = later(
        "share.coordinator.write.timeout.ms",
        5000,
        at_least(1),
        doc="how long a write may take to be replicated",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = later(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        between(0, 500),
        doc="updates from one snapshot to the next",
    )
    share_fetch_purgatory_purge_interval_requests: int = setting(
        "share.fetch.purgatory.purge.interval.requests",
        1000,
        acts=Acts.ABSENT,
        doc="waiting share fetches after which ended ones are removed",
    )
