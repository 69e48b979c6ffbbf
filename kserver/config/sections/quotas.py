"""How rates are sampled."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import (
    CLASS,
    CLUSTER,
    LONG,
    LONG_MAX,
    Acts,
    at_least,
    section,
    setting,
)

later = partial(setting, acts=Acts.REPLICATION)


@section
class QuotaSettings:
    """Quotas."""

    quota_window_num: int = setting(
        "quota.window.num", 11, at_least(1), doc="samples kept for the quotas of clients"
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", 1, at_least(1), doc="length of each, in seconds"
    )
    replication_quota_window_num: int = later(
        "replication.quota.window.num",
        11,
        at_least(1),
        doc="samples kept for throttled replication",
    )
    replication_quota_window_size_seconds: int = later(
        "replication.quota.window.size.seconds", 1, at_least(1), doc="length of each, in seconds"
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how fast replicas are moved between directories, all of them together",
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.REPLICATION,
        doc="bytes a second that leaders send to throttled replicas",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.REPLICATION,
        doc="bytes a second that throttled replicas take from their leaders",
    )
    alter_log_dirs_replication_quota_window_num: int = setting(
        "alter.log.dirs.replication.quota.window.num",
        11,
        at_least(1),
        acts=Acts.ABSENT,
        doc="samples kept for throttled moves between directories",
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        at_least(1),
        acts=Acts.ABSENT,
        doc="length of each, in seconds",
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        11,
        at_least(1),
        doc="samples kept for the quotas of creating and deleting topics",
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", 1, at_least(1), doc="length of each, in seconds"
    )
    client_quota_callback_class: str | None = setting(
        "client.quota.callback.class",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that says which quota holds for whom",
    )
