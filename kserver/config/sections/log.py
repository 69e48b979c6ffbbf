"""Log directories, and how logs are rolled, flushed and deleted."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import (
    CLUSTER,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MINUTE_MS,
    PER_BROKER,
    SettingCheck,
    Synonym,
    at_least,
    one_of,
    section,
    setting,
)

RETENTION = SettingCheck(
    "-1 or [1,...]",
    lambda age: None if age == -1 or age >= 1 else "Value must be -1, for never, or at least 1",
)


@section
@known_keys("log")
class LogSettings:
    """Log and retention."""

    log_dir: tuple[str, ...] = setting(
        "log.dir", ("/tmp/kafka-logs",), doc="log directory if log.dirs is unset"
    )
    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs",
        None,
        type=LIST,
        doc="log directories, comma-separated; new partitions go to the one with the fewest",
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        "cordoned.log.dirs",
        (),
        dynamic=PER_BROKER,
        doc="log directories that get no new partitions as long as another one is available",
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        1 << 30,
        at_least(14),
        dynamic=CLUSTER,
        doc=(
            "size at which a segment is rolled; Kafka 4 requires at least 1048576, k allows "
            "smaller segments, as Kafka 3 does"
        ),
    )
    log_roll_ms: int | None = setting(
        "log.roll.ms",
        None,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        synonyms=[Synonym("log.roll.hours", HOUR_MS)],
        doc="age at which a segment is rolled; log.roll.hours when unset",
    )
    log_roll_hours: int = setting(
        "log.roll.hours", 168, at_least(1), doc="age at which a segment is rolled, in hours"
    )
    log_roll_jitter_ms: int | None = setting(
        "log.roll.jitter.ms",
        None,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        synonyms=[Synonym("log.roll.jitter.hours", HOUR_MS)],
        doc=(
            "maximum random time subtracted from the age at which a segment is rolled; "
            "log.roll.jitter.hours when unset"
        ),
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        0,
        at_least(0),
        doc="maximum random time subtracted from log.roll.hours, in hours",
    )
    log_retention_ms: int | None = setting(
        "log.retention.ms",
        None,
        RETENTION,
        type=LONG,
        dynamic=CLUSTER,
        synonyms=[
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ],
        doc="age at which a segment is deleted, -1 for never; log.retention.minutes when unset",
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        None,
        RETENTION,
        type=INT,
        synonyms=[Synonym("log.retention.hours", 60)],
        doc=(
            "age at which a segment is deleted, in minutes, -1 for never; log.retention.hours "
            "when unset"
        ),
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        168,
        RETENTION,
        doc="age at which a segment is deleted, in hours, -1 for never",
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        -1,
        type=LONG,
        dynamic=CLUSTER,
        doc="size of a partition above which its oldest segments are deleted; -1 for no limit",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        300_000,
        at_least(1),
        type=LONG,
        doc="how often the broker checks for segments to delete",
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        ("delete",),
        one_of("compact", "delete"),
        dynamic=CLUSTER,
        doc="cleanup of old segments: delete, compact, or both; if empty, segments are kept",
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms",
        60_000,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how long the files of a deleted segment are kept",
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes",
        10 << 20,
        at_least(4),
        dynamic=CLUSTER,
        doc="size of an offset index at which its segment is rolled",
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        4 << 10,
        at_least(0),
        dynamic=CLUSTER,
        doc="bytes of records between two index entries",
    )
    log_preallocate: bool = setting(
        "log.preallocate", False, dynamic=CLUSTER, doc="preallocate the file of a new segment"
    )
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages",
        LONG_MAX,
        at_least(1),
        type=LONG,
        dynamic=CLUSTER,
        doc="number of new records after which a partition is flushed to disk",
    )
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms",
        None,
        type=LONG,
        dynamic=CLUSTER,
        synonyms=["log.flush.scheduler.interval.ms"],
        doc=(
            "age of a record at which its partition is flushed to disk; "
            "log.flush.scheduler.interval.ms when unset"
        ),
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        type=LONG,
        doc="how often the broker checks for partitions to flush",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        doc="how often the recovery points of the partitions are written to disk",
    )
    log_flush_before_ack: bool = setting(
        "log.flush.before.ack",
        False,
        dynamic=CLUSTER,
        doc=(
            "acknowledge a record, and make it visible to consumers, only after it is on disk; "
            "one fsync serves all waiting requests (group commit).  This is the visibility rule "
            "of the first Kafka paper (Kreps, Narkhede, Rao: Kafka, a Distributed Messaging "
            "System for Log Processing, NetDB 2011: messages are exposed to consumers only "
            "after they are flushed), extended to acknowledgements"
        ),
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        doc="how often the log start offsets of the partitions are written to disk",
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=CLUSTER,
        doc=(
            "source of a record's timestamp: CreateTime, set by the producer, or "
            "LogAppendTime, set by the broker"
        ),
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how far in the past a record's timestamp may lie",
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        HOUR_MS,
        at_least(0),
        type=LONG,
        dynamic=CLUSTER,
        doc="how far in the future a record's timestamp may lie",
    )
    log_validate_records: str = setting(
        "log.validate.records",
        "full",
        one_of("header", "full"),
        dynamic=CLUSTER,
        doc=(
            "header: check that the header of a batch is consistent, and that the batch matches "
            "its size and its CRC-32C, which detects truncated and corrupted requests; full: also "
            "decompress and check every record, which protects consumers from clients whose "
            "records do not match the header.  If no C compiler was available when k was "
            "installed, the default is header, and the broker logs a warning at startup"
        ),
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        2,
        at_least(1),
        dynamic=CLUSTER,
        doc="threads per log directory that recover logs at startup and flush them at shutdown",
    )
