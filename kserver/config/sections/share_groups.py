"""Share groups and the topic of their state."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import CLUSTER, SHORT, Acts, at_least, between, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareGroupSettings:
    """Share groups."""

    group_share_delivery_count_limit: int = setting(
        "group.share.delivery.count.limit",
        5,
        between(2, 10),
        acts=Acts.SHARE_GROUPS,
        doc="delivery attempts per record",
    )
    group_share_min_delivery_count_limit: int = setting(
        "group.share.min.delivery.count.limit",
        2,
        between(2, 5),
        acts=Acts.SHARE_GROUPS,
        doc="lower bound",
    )
    group_share_max_delivery_count_limit: int = setting(
        "group.share.max.delivery.count.limit",
        10,
        between(5, 25),
        acts=Acts.SHARE_GROUPS,
        doc="upper bound",
    )
    group_share_record_lock_duration_ms: int = setting(
        "group.share.record.lock.duration.ms",
        30_000,
        between(1000, 3600000),
        acts=Acts.SHARE_GROUPS,
        doc="acquisition lock time",
    )
    group_share_min_record_lock_duration_ms: int = setting(
        "group.share.min.record.lock.duration.ms",
        15_000,
        between(1000, 30000),
        acts=Acts.SHARE_GROUPS,
        doc="lower bound",
    )
    group_share_max_record_lock_duration_ms: int = setting(
        "group.share.max.record.lock.duration.ms",
        60_000,
        between(30000, 3600000),
        acts=Acts.SHARE_GROUPS,
        doc="upper bound",
    )
    group_share_partition_max_record_locks: int = setting(
        "group.share.partition.max.record.locks",
        2000,
        between(100, 10000),
        acts=Acts.SHARE_GROUPS,
        doc="in-flight records per partition",
    )
    group_share_min_partition_max_record_locks: int = setting(
        "group.share.min.partition.max.record.locks",
        100,
        between(100, 2000),
        acts=Acts.SHARE_GROUPS,
        doc="lower bound",
    )
    group_share_max_partition_max_record_locks: int = setting(
        "group.share.max.partition.max.record.locks",
        4000,
        between(2000, 10000),
        acts=Acts.SHARE_GROUPS,
        doc="upper bound",
    )
    group_share_max_groups: int = setting(
        "group.share.max.groups",
        10,
        between(1, 100),
        type=SHORT,
        acts=Acts.SHARE_GROUPS,
        doc="share groups allowed",
    )
    group_share_max_size: int = setting(
        "group.share.max.size",
        200,
        between(1, 1000),
        acts=Acts.SHARE_GROUPS,
        doc="members per group",
    )
    group_share_max_share_sessions: int = setting(
        "group.share.max.share.sessions",
        2000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="share sessions per broker",
    )
    group_share_assignors: tuple[str, ...] = setting(
        "group.share.assignors",
        ("simple",),
        acts=Acts.SHARE_GROUPS,
        doc="server-side assignors of share groups",
    )
    group_share_session_timeout_ms: int = setting(
        "group.share.session.timeout.ms",
        45_000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="session timeout",
    )
    group_share_min_session_timeout_ms: int = setting(
        "group.share.min.session.timeout.ms",
        45_000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="lower bound",
    )
    group_share_max_session_timeout_ms: int = setting(
        "group.share.max.session.timeout.ms",
        60_000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="upper bound",
    )
    group_share_heartbeat_interval_ms: int = setting(
        "group.share.heartbeat.interval.ms",
        5000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="heartbeat interval",
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        "group.share.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="lower bound",
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="upper bound",
    )
    group_share_assignment_interval_ms: int = setting(
        "group.share.assignment.interval.ms",
        1000,
        at_least(0),
        dynamic=CLUSTER,
        acts=Acts.SHARE_GROUPS,
        doc="least time between two assignments of one group",
    )
    group_share_min_assignment_interval_ms: int = setting(
        "group.share.min.assignment.interval.ms",
        0,
        at_least(0),
        acts=Acts.SHARE_GROUPS,
        doc="lower bound",
    )
    group_share_max_assignment_interval_ms: int = setting(
        "group.share.max.assignment.interval.ms",
        15_000,
        at_least(0),
        acts=Acts.SHARE_GROUPS,
        doc="upper bound",
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="partitions of __share_group_state",
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        "share.coordinator.state.topic.replication.factor",
        3,
        at_least(1),
        type=SHORT,
        acts=Acts.SHARE_GROUPS,
        doc="its replication factor",
    )
    share_coordinator_state_topic_min_isr: int = setting(
        "share.coordinator.state.topic.min.isr",
        2,
        at_least(1),
        type=SHORT,
        acts=Acts.SHARE_GROUPS,
        doc="its minimum ISR",
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        "share.coordinator.state.topic.segment.bytes",
        100 << 20,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="its segment size",
    )
    share_coordinator_state_topic_compression_codec: int = setting(
        "share.coordinator.state.topic.compression.codec",
        0,
        acts=Acts.SHARE_GROUPS,
        doc="its codec id",
    )
    share_coordinator_threads: int = setting(
        "share.coordinator.threads", 1, at_least(1), acts=Acts.ABSENT, doc="coordinator threads"
    )
    share_coordinator_load_buffer_size: int = setting(
        "share.coordinator.load.buffer.size",
        5 << 20,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="read size when loading",
    )
    share_coordinator_append_linger_ms: int = setting(
        "share.coordinator.append.linger.ms",
        -1,
        at_least(-1),
        acts=Acts.SHARE_GROUPS,
        doc="batching of writes",
    )
    share_coordinator_cached_buffer_max_bytes: int = setting(
        "share.coordinator.cached.buffer.max.bytes",
        1_048_588,
        at_least(512 << 10),
        dynamic=CLUSTER,
        acts=Acts.ABSENT,
        doc="largest buffer kept for coordinator writes",
    )
    share_coordinator_write_timeout_ms: int = setting(
        "share.coordinator.write.timeout.ms",
        5000,
        at_least(1),
        acts=Acts.SHARE_GROUPS,
        doc="write timeout",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        between(0, 500),
        acts=Acts.SHARE_GROUPS,
        doc="updates between snapshots",
    )
    share_fetch_purgatory_purge_interval_requests: int = setting(
        "share.fetch.purgatory.purge.interval.requests",
        1000,
        acts=Acts.ABSENT,
        doc="purge period of waiting share fetches",
    )
