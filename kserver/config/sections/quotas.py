"""How rates are sampled."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import CLASS, Acts, at_least, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class QuotaSettings:
    """Quotas."""

    quota_window_num: int = setting(
        "quota.window.num", 11, at_least(1), acts=Acts.QUOTAS, doc="samples kept for client quotas"
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", 1, at_least(1), acts=Acts.QUOTAS, doc="length of a sample"
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num",
        11,
        at_least(1),
        acts=Acts.QUOTAS,
        doc="samples for replication throttles",
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds",
        1,
        at_least(1),
        acts=Acts.QUOTAS,
        doc="length of a sample",
    )
    alter_log_dirs_replication_quota_window_num: int = setting(
        "alter.log.dirs.replication.quota.window.num",
        11,
        at_least(1),
        acts=Acts.QUOTAS,
        doc="samples for directory moves",
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        at_least(1),
        acts=Acts.QUOTAS,
        doc="length of a sample",
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        11,
        at_least(1),
        acts=Acts.QUOTAS,
        doc="samples for controller mutations",
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        1,
        at_least(1),
        acts=Acts.QUOTAS,
        doc="length of a sample",
    )
    client_quota_callback_class: str | None = setting(
        "client.quota.callback.class", None, type=CLASS, acts=Acts.JAVA, doc="custom quota logic"
    )
