"""Consumer groups and the offsets they commit."""

from __future__ import annotations

from collections.abc import Iterator

from kserver.config.known import known_keys
from kserver.config.setting import (
    CLUSTER,
    INT_MAX,
    LONG,
    SHORT,
    at_least,
    one_of,
    section,
    setting,
)

BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""Settings of a consumer group: each may be set for one group, between what the broker says."""


@section
@known_keys("groups")
class GroupSettings:
    """Group coordinator and offsets."""

    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6000,
        doc="minimum session timeout of a member of a classic group",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        doc="maximum session timeout of a member of a classic group",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3000,
        doc="how long the first rebalance of a classic group waits for more members",
    )
    group_max_size: int = setting(
        "group.max.size", INT_MAX, at_least(1), doc="maximum members of a classic group"
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        one_of("consumer", "classic", "share", "streams"),
        doc="rebalance protocols that groups can use",
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        at_least(1),
        doc="session timeout of a consumer group (KIP-848)",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        45_000,
        at_least(1),
        doc="minimum session timeout that may be set for one group",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        60_000,
        at_least(1),
        doc="maximum session timeout that may be set for one group",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="time between two heartbeats of a member",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="minimum heartbeat interval that may be set for one group",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        doc="maximum heartbeat interval that may be set for one group",
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        1000,
        at_least(0),
        dynamic=CLUSTER,
        doc="minimum time between two assignments of a group",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        0,
        at_least(0),
        doc="minimum assignment interval that may be set for one group",
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        at_least(0),
        doc="maximum assignment interval that may be set for one group",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        INT_MAX,
        at_least(1),
        doc="maximum members of a consumer group (KIP-848)",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ("uniform", "range"),
        one_of("uniform", "range"),
        doc="server-side assignors; the first is the default",
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="whether groups with members can upgrade to the consumer protocol and downgrade",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        at_least(1),
        doc="partitions of __consumer_offsets; do not change it once the topic exists",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        at_least(1),
        type=SHORT,
        doc="replicas of __consumer_offsets; 1 without ZooKeeper",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        100 << 20,
        at_least(1),
        doc="segment size of __consumer_offsets",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        10_080,
        at_least(1),
        doc="how long the offsets of a group without members are kept",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        at_least(1),
        type=LONG,
        doc="how often expired offsets are removed",
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5000,
        at_least(1),
        doc="how long an offset commit waits for its replication",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4 << 10,
        doc="maximum size of the metadata text of an offset commit",
    )

    def group_conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a key and an error, with Kafka's text, for values that conflict with
        others."""
        if not self.group_consumer_assignors:
            yield "group.consumer.assignors", "group.consumer.assignors must not be empty"
        for key in BOUNDED:
            own, low, high = (f"group.consumer.{which}{key}" for which in ("", "min.", "max."))
            value, least, greatest = (
                getattr(self, name.replace(".", "_")) for name in (own, low, high)
            )
            if greatest < least:
                yield high, f"{high} must be greater than or equal to {low}"
            elif value < least:
                yield own, f"{own} must be greater than or equal to {low}"
            elif value > greatest:
                yield own, f"{own} must be less than or equal to {high}"
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            key = "group.consumer.heartbeat.interval.ms"
            yield key, f"{key} must be less than group.consumer.session.timeout.ms"
