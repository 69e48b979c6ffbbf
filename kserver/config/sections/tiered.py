"""Storage of old segments elsewhere."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import (
    CLUSTER,
    LONG,
    LONG_MAX,
    NON_EMPTY,
    STRING,
    Acts,
    at_least,
    section,
    setting,
)

later = partial(setting, acts=Acts.TIERED)


@section
class TieredSettings:
    """Tiered storage."""

    remote_log_storage_system_enable: bool = later(
        "remote.log.storage.system.enable", False, doc="turn tiered storage on"
    )
    remote_log_storage_manager_class_name: str | None = later(
        "remote.log.storage.manager.class.name",
        None,
        NON_EMPTY,
        type=STRING,
        doc="plug-in that stores segments",
    )
    remote_log_storage_manager_class_path: str | None = later(
        "remote.log.storage.manager.class.path", None, type=STRING, doc="where that plug-in lies"
    )
    remote_log_storage_manager_impl_prefix: str = later(
        "remote.log.storage.manager.impl.prefix",
        "rsm.config.",
        NON_EMPTY,
        doc="prefix of the plug-in's own keys",
    )
    remote_log_metadata_manager_class_name: str = later(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NON_EMPTY,
        doc="plug-in that remembers what is stored",
    )
    remote_log_metadata_manager_class_path: str | None = later(
        "remote.log.metadata.manager.class.path", None, type=STRING, doc="where that plug-in lies"
    )
    remote_log_metadata_manager_impl_prefix: str = later(
        "remote.log.metadata.manager.impl.prefix",
        "rlmm.config.",
        NON_EMPTY,
        doc="prefix of the plug-in's own keys",
    )
    remote_log_metadata_manager_listener_name: str | None = later(
        "remote.log.metadata.manager.listener.name",
        None,
        NON_EMPTY,
        type=STRING,
        doc="listener that the plug-in uses",
    )
    remote_log_metadata_custom_metadata_max_bytes: int = later(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        at_least(0),
        doc="most that the storing plug-in may remember of a segment",
    )
    remote_log_index_file_cache_total_size_bytes: int = later(
        "remote.log.index.file.cache.total.size.bytes",
        1 << 30,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="size of the cache of indexes",
    )
    remote_log_manager_thread_pool_size: int = later(
        "remote.log.manager.thread.pool.size", 2, at_least(1), doc="threads of tasks"
    )
    remote_log_manager_copier_thread_pool_size: int = later(
        "remote.log.manager.copier.thread.pool.size",
        10,
        at_least(1),
        dynamic=CLUSTER,
        doc="threads that copy segments",
    )
    remote_log_manager_expiration_thread_pool_size: int = later(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        at_least(1),
        dynamic=CLUSTER,
        doc="threads that delete copies",
    )
    remote_log_manager_follower_thread_pool_size: int = later(
        "remote.log.manager.follower.thread.pool.size",
        2,
        at_least(1),
        dynamic=CLUSTER,
        doc="threads of followers",
    )
    remote_log_manager_task_interval_ms: int = later(
        "remote.log.manager.task.interval.ms",
        30_000,
        at_least(1),
        type=LONG,
        doc="how often segments are looked through",
    )
    remote_log_reader_threads: int = later(
        "remote.log.reader.threads", 10, at_least(1), dynamic=CLUSTER, doc="threads that read"
    )
    remote_log_reader_max_pending_tasks: int = later(
        "remote.log.reader.max.pending.tasks", 100, at_least(1), doc="reads that may wait"
    )
    remote_log_manager_copy_max_bytes_per_second: int = later(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="bytes copied a second",
    )
    remote_log_manager_copy_quota_window_num: int = later(
        "remote.log.manager.copy.quota.window.num", 11, at_least(1), doc="samples kept for that"
    )
    remote_log_manager_copy_quota_window_size_seconds: int = later(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        at_least(1),
        doc="length of each, in seconds",
    )
    remote_log_manager_fetch_max_bytes_per_second: int = later(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="bytes read a second",
    )
    remote_log_manager_fetch_quota_window_num: int = later(
        "remote.log.manager.fetch.quota.window.num", 11, at_least(1), doc="samples kept for that"
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = later(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        at_least(1),
        doc="length of each, in seconds",
    )
    remote_fetch_max_wait_ms: int = later(
        "remote.fetch.max.wait.ms",
        500,
        at_least(1),
        dynamic=CLUSTER,
        doc="how long a fetch waits for what is stored elsewhere",
    )
    remote_list_offsets_request_timeout_ms: int = later(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="how long looking up an offset by time may take there",
    )
    follower_fetch_last_tiered_offset_enable: bool = later(
        "follower.fetch.last.tiered.offset.enable",
        False,
        dynamic=CLUSTER,
        doc="let a new follower start at the last tiered offset",
    )
