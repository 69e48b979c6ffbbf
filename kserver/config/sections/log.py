"""Where logs lie, how they roll, flush and end."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLUSTER,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MINUTE_MS,
    PER_BROKER,
    Acts,
    Synonym,
    at_least,
    one_of,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LogSettings:
    """Log and retention."""

    log_dir: tuple[str, ...] = setting(
        "log.dir", ("/tmp/kafka-logs",), doc="single data directory, used when log.dirs is unset"
    )
    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs", None, type=LIST, doc="data directories, comma-separated"
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        "cordoned.log.dirs",
        (),
        dynamic=PER_BROKER,
        acts=Acts.LOG_DIRS,
        doc="log directories that get no new partitions",
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        1 << 30,
        at_least(14),
        dynamic=CLUSTER,
        doc="segment size before rolling",
    )
    log_roll_ms: int | None = setting(
        "log.roll.ms",
        None,
        type=LONG,
        dynamic=CLUSTER,
        synonyms=[Synonym("log.roll.hours", HOUR_MS)],
        doc="segment age before rolling; overrides hours",
    )
    log_roll_hours: int = setting("log.roll.hours", 168, at_least(1), doc="same in hours")
    log_roll_jitter_ms: int | None = setting(
        "log.roll.jitter.ms",
        None,
        type=LONG,
        dynamic=CLUSTER,
        synonyms=[Synonym("log.roll.jitter.hours", HOUR_MS)],
        doc="random reduction of the roll age",
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours", 0, at_least(0), doc="same in hours"
    )
    log_retention_ms: int | None = setting(
        "log.retention.ms",
        None,
        type=LONG,
        dynamic=CLUSTER,
        synonyms=[
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ],
        doc="age limit; overrides minutes and hours; -1 none",
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes", None, type=INT, doc="same in minutes"
    )
    log_retention_hours: int = setting("log.retention.hours", 168, doc="same in hours")
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        -1,
        type=LONG,
        dynamic=CLUSTER,
        doc="size limit per partition; -1 none",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        300_000,
        at_least(1),
        type=LONG,
        doc="how often retention is checked",
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        ("delete",),
        one_of("compact", "delete"),
        dynamic=CLUSTER,
        doc="delete, compact or both",
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms",
        60_000,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="delay between marking and deleting a file",
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes",
        10 << 20,
        at_least(4),
        dynamic=CLUSTER,
        doc="largest offset index file",
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        4 << 10,
        at_least(0),
        dynamic=CLUSTER,
        doc="bytes between index entries",
    )
    log_preallocate: bool = setting(
        "log.preallocate", False, dynamic=CLUSTER, doc="preallocate segment files"
    )
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="records before fsync",
    )
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms",
        None,
        type=LONG,
        dynamic=CLUSTER,
        synonyms=["log.flush.scheduler.interval.ms"],
        doc="age before fsync; null falls back to the scheduler interval",
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", LONG_MAX, type=LONG, doc="how often flushing is checked"
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        doc="recovery-point checkpoint period",
    )
    log_flush_before_ack: bool = setting(
        "log.flush.before.ack",
        False,
        dynamic=CLUSTER,
        doc=(
            "acknowledge a record, and show it to consumers, only once it is on disk; one fsync"
            " serves all that wait for it (group commit).  This is the visibility rule of the "
            "first Kafka paper (Kreps, Narkhede, Rao: Kafka, a Distributed Messaging System for"
            " Log Processing, NetDB 2011: messages are exposed to consumers only after they are"
            " flushed), extended to acknowledgements"
        ),
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        doc="log-start checkpoint period",
    )
    log_message_format_version: str = setting(
        "log.message.format.version", "3.0-IV1", acts=Acts.RETIRED, doc="deprecated format pin"
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=CLUSTER,
        doc="CreateTime or LogAppendTime",
    )
    log_message_timestamp_difference_max_ms: int = setting(
        "log.message.timestamp.difference.max.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.RETIRED,
        doc="deprecated timestamp tolerance",
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how far in the past a timestamp may be",
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        HOUR_MS,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how far in the future it may be",
    )
    log_validate_records: str = setting(
        "log.validate.records",
        "header",
        one_of("header", "full"),
        dynamic=CLUSTER,
        doc=(
            "header: what a batch's header claims is checked against itself, against its size "
            "and against its CRC-32C, which guards against torn and corrupted requests; full: "
            "every record is decoded and checked too, which guards against clients whose "
            "records disagree with their header"
        ),
    )
    log_message_downconversion_enable: bool = setting(
        "log.message.downconversion.enable",
        True,
        dynamic=CLUSTER,
        acts=Acts.RETIRED,
        doc="convert batches for old consumers",
    )
    log_local_retention_ms: int = setting(
        "log.local.retention.ms",
        -2,
        at_least(-2),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="local part of tiered retention; -2 follows log.retention",
    )
    log_local_retention_bytes: int = setting(
        "log.local.retention.bytes",
        -2,
        at_least(-2),
        type=LONG,
        dynamic=CLUSTER,
        acts=Acts.TIERED,
        doc="same by size",
    )
    log_dir_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms",
        30_000,
        at_least(1),
        type=LONG,
        acts=Acts.LOG_DIRS,
        doc="exit when a failed directory cannot be reported in time",
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        2,
        at_least(1),
        dynamic=CLUSTER,
        doc="threads for recovery and flush at start and stop",
    )
    delete_records_purgatory_purge_interval_requests: int = setting(
        "delete.records.purgatory.purge.interval.requests",
        1,
        acts=Acts.ABSENT,
        doc="purge period of the delete-records purgatory",
    )
