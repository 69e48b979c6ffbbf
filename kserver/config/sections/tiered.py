"""Storage of old segments elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLUSTER,
    LONG,
    LONG_MAX,
    NON_EMPTY,
    STRING,
    Acts,
    at_least,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TieredSettings:
    """Tiered storage."""

    remote_log_storage_system_enable: bool = setting(
        "remote.log.storage.system.enable", False, acts=Acts.TIERED, doc="turn tiered storage on"
    )
    remote_log_storage_manager_class_name: str | None = setting(
        "remote.log.storage.manager.class.name",
        None,
        NON_EMPTY,
        type=STRING,
        acts=Acts.TIERED,
        doc="storage plug-in",
    )
    remote_log_storage_manager_class_path: str | None = setting(
        "remote.log.storage.manager.class.path",
        None,
        type=STRING,
        acts=Acts.TIERED,
        doc="its class path",
    )
    remote_log_storage_manager_impl_prefix: str = setting(
        "remote.log.storage.manager.impl.prefix",
        "rsm.config.",
        NON_EMPTY,
        acts=Acts.TIERED,
        doc="prefix of its settings",
    )
    remote_log_metadata_manager_class_name: str = setting(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NON_EMPTY,
        acts=Acts.TIERED,
        doc="metadata plug-in",
    )
    remote_log_metadata_manager_class_path: str | None = setting(
        "remote.log.metadata.manager.class.path",
        None,
        type=STRING,
        acts=Acts.TIERED,
        doc="its class path",
    )
    remote_log_metadata_manager_impl_prefix: str = setting(
        "remote.log.metadata.manager.impl.prefix",
        "rlmm.config.",
        NON_EMPTY,
        acts=Acts.TIERED,
        doc="prefix of its settings",
    )
    remote_log_metadata_manager_listener_name: str | None = setting(
        "remote.log.metadata.manager.listener.name",
        None,
        NON_EMPTY,
        type=STRING,
        acts=Acts.TIERED,
        doc="listener it connects to",
    )
    remote_log_metadata_custom_metadata_max_bytes: int = setting(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        at_least(0),
        acts=Acts.TIERED,
        doc="custom metadata limit",
    )
    remote_log_index_file_cache_total_size_bytes: int = setting(
        "remote.log.index.file.cache.total.size.bytes",
        1 << 30,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="index cache size",
    )
    remote_log_manager_thread_pool_size: int = setting(
        "remote.log.manager.thread.pool.size", 2, at_least(1), acts=Acts.TIERED, doc="task threads"
    )
    remote_log_manager_copier_thread_pool_size: int = setting(
        "remote.log.manager.copier.thread.pool.size",
        10,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="copy threads; -1 follows the pool size",
    )
    remote_log_manager_expiration_thread_pool_size: int = setting(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="expiry threads; -1 follows",
    )
    remote_log_manager_follower_thread_pool_size: int = setting(
        "remote.log.manager.follower.thread.pool.size",
        2,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="threads of followers",
    )
    remote_log_manager_task_interval_ms: int = setting(
        "remote.log.manager.task.interval.ms",
        30_000,
        at_least(1),
        type=LONG,
        acts=Acts.TIERED,
        doc="task period",
    )
    remote_log_reader_threads: int = setting(
        "remote.log.reader.threads",
        10,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="read threads",
    )
    remote_log_reader_max_pending_tasks: int = setting(
        "remote.log.reader.max.pending.tasks", 100, at_least(1), acts=Acts.TIERED, doc="read queue"
    )
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="copy throttle",
    )
    remote_log_manager_copy_quota_window_num: int = setting(
        "remote.log.manager.copy.quota.window.num",
        11,
        at_least(1),
        acts=Acts.TIERED,
        doc="samples for it",
    )
    remote_log_manager_copy_quota_window_size_seconds: int = setting(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        at_least(1),
        acts=Acts.TIERED,
        doc="length of a sample",
    )
    remote_log_manager_fetch_max_bytes_per_second: int = setting(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="read throttle",
    )
    remote_log_manager_fetch_quota_window_num: int = setting(
        "remote.log.manager.fetch.quota.window.num",
        11,
        at_least(1),
        acts=Acts.TIERED,
        doc="samples for it",
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = setting(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        at_least(1),
        acts=Acts.TIERED,
        doc="length of a sample",
    )
    remote_fetch_max_wait_ms: int = setting(
        "remote.fetch.max.wait.ms",
        500,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="wait for a remote read",
    )
    remote_list_offsets_request_timeout_ms: int = setting(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="timeout of remote offset lookups",
    )
    follower_fetch_last_tiered_offset_enable: bool = setting(
        "follower.fetch.last.tiered.offset.enable",
        False,
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="let a new follower start at the last tiered offset",
    )
