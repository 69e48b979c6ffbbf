"""Sampling of rates."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import (
    CLUSTER,
    LONG,
    LONG_MAX,
    at_least,
    section,
    setting,
)


@section
@known_keys("quotas")
class QuotaSettings:
    """Quotas."""

    quota_window_num: int = setting(
        "quota.window.num", 11, at_least(1), doc="number of samples kept for client quotas"
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        1,
        at_least(1),
        doc="length of each sample for client quotas, in seconds",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="maximum bytes per second of all replica moves between log directories",
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num",
        11,
        at_least(1),
        doc="number of samples kept for throttled replication",
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds",
        1,
        at_least(1),
        doc="length of each sample for throttled replication, in seconds",
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="maximum bytes per second that leaders send to throttled replicas",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="maximum bytes per second that throttled replicas fetch from their leaders",
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        11,
        at_least(1),
        doc="number of samples kept for the quotas of topic creation and deletion",
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        1,
        at_least(1),
        doc="length of each sample for the quotas of topic creation and deletion, in seconds",
    )
