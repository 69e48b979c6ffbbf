"""How rates are sampled."""

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
        "quota.window.num", 11, at_least(1), doc="samples kept for the quotas of clients"
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", 1, at_least(1), doc="length of each, in seconds"
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how fast replicas are moved between directories, all of them together",
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
