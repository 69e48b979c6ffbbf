"""A topic's configuration: its own overrides, else the broker's configs.

Pure: no I/O, no clock, no await.

Nearly every topic key falls back to a key of the broker (`broker_key`), often with another name;
`TopicConfig()` has the values of a broker with default configs.  A key with `acts` is accepted and
described, but has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.config.setting import (
    CLUSTER,
    DAY_MS,
    GZIP_LEVEL,
    HOUR_MS,
    LONG,
    LONG_MAX,
    Acts,
    GivenValue,
    Setting,
    SettingCheck,
    Source,
    at_least,
    between,
    effective,
    one_of,
    setting,
    settings_of,
)
from kserver.errors import ConfigError


def _throttled_replicas(replicas: tuple[str, ...]) -> str | None:
    def is_pair(entry: str) -> bool:
        parts = entry.split(":")
        return len(parts) == 2 and all(p.isascii() and p.isdigit() for p in parts)

    if replicas == ("*",) or all(map(is_pair, replicas)):
        return None
    return f"must be the literal '*' or a list of replicas in the following format: {PAIRS}"


PAIRS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
THROTTLED_REPLICAS = SettingCheck(PAIRS, _throttled_replicas)


# All configs of a topic are dynamic.
topic_setting = partial(setting, dynamic=CLUSTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicConfig:
    """Config of one topic. Attributes are its keys with `_` for `.`; times in ms, sizes in
    bytes."""

    segment_bytes: int = topic_setting(
        "segment.bytes",
        1 << 30,
        at_least(14),
        broker_key="log.segment.bytes",
        doc="size at which a segment is rolled",
    )
    segment_ms: int = topic_setting(
        "segment.ms",
        7 * DAY_MS,
        at_least(1),
        type=LONG,
        broker_key="log.roll.ms",
        doc="age at which a segment is rolled",
    )
    segment_jitter_ms: int = topic_setting(
        "segment.jitter.ms",
        0,
        at_least(0),
        type=LONG,
        broker_key="log.roll.jitter.ms",
        doc="maximum random time subtracted from segment.ms",
    )
    segment_index_bytes: int = topic_setting(
        "segment.index.bytes",
        10 << 20,
        at_least(4),
        broker_key="log.index.size.max.bytes",
        doc="size of an offset index at which its segment is rolled",
    )
    flush_messages: int = topic_setting(
        "flush.messages",
        LONG_MAX,
        at_least(1),
        type=LONG,
        broker_key="log.flush.interval.messages",
        doc="number of new records after which a partition is flushed to disk",
    )
    flush_ms: int = topic_setting(
        "flush.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        broker_key="log.flush.interval.ms",
        doc="age of a record at which its partition is flushed to disk",
    )
    flush_before_ack: bool = topic_setting(
        "flush.before.ack",
        False,
        broker_key="log.flush.before.ack",
        doc="acknowledge a record, and make it visible to consumers, only after it is on disk",
    )
    retention_bytes: int = topic_setting(
        "retention.bytes",
        -1,
        type=LONG,
        broker_key="log.retention.bytes",
        doc="size of a partition above which its oldest segments are deleted; -1 for no limit",
    )
    retention_ms: int = topic_setting(
        "retention.ms",
        7 * DAY_MS,
        at_least(-1),
        type=LONG,
        broker_key="log.retention.ms",
        doc="age at which a segment is deleted; -1 for never",
    )
    max_message_bytes: int = topic_setting(
        "max.message.bytes",
        1_048_588,
        at_least(0),
        broker_key="message.max.bytes",
        doc="largest record batch accepted, in bytes, after compression if it is compressed",
    )
    index_interval_bytes: int = topic_setting(
        "index.interval.bytes",
        4 << 10,
        at_least(0),
        broker_key="log.index.interval.bytes",
        doc="bytes of records between two index entries",
    )
    delete_retention_ms: int = topic_setting(
        "delete.retention.ms",
        DAY_MS,
        at_least(0),
        type=LONG,
        broker_key="log.cleaner.delete.retention.ms",
        doc="how long tombstones and transaction markers are kept",
    )
    min_compaction_lag_ms: int = topic_setting(
        "min.compaction.lag.ms",
        0,
        at_least(0),
        type=LONG,
        broker_key="log.cleaner.min.compaction.lag.ms",
        doc="minimum age of a record before compaction can remove it",
    )
    max_compaction_lag_ms: int = topic_setting(
        "max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        type=LONG,
        broker_key="log.cleaner.max.compaction.lag.ms",
        doc="maximum age of an uncompacted record; an older one triggers compaction of its log",
    )
    file_delete_delay_ms: int = topic_setting(
        "file.delete.delay.ms",
        60_000,
        at_least(0),
        type=LONG,
        broker_key="log.segment.delete.delay.ms",
        doc="how long the files of a deleted segment are kept",
    )
    min_cleanable_dirty_ratio: float = topic_setting(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        broker_key="log.cleaner.min.cleanable.ratio",
        doc="fraction of uncompacted bytes at which a log is compacted",
    )
    cleanup_policy: tuple[str, ...] = topic_setting(
        "cleanup.policy",
        ("delete",),
        one_of("compact", "delete"),
        broker_key="log.cleanup.policy",
        doc="cleanup of old segments: delete, compact, or both; if empty, segments are kept",
    )
    unclean_leader_election_enable: bool = topic_setting(
        "unclean.leader.election.enable",
        False,
        broker_key="unclean.leader.election.enable",
        doc="elect a replica that is not in sync if no in-sync replica is online: the partition"
        " becomes available, but records are lost",
    )
    min_insync_replicas: int = topic_setting(
        "min.insync.replicas",
        1,
        at_least(1),
        broker_key="min.insync.replicas",
        doc="minimum number of in-sync replicas; with fewer, a write with acks=all is refused",
    )
    compression_type: str = topic_setting(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_key="compression.type",
        doc="compression codec on disk; producer keeps the codec of the producer",
    )
    compression_gzip_level: int = topic_setting(
        "compression.gzip.level",
        -1,
        GZIP_LEVEL,
        broker_key="compression.gzip.level",
        doc="compression level if compression.type is gzip",
    )
    compression_lz4_level: int = topic_setting(
        "compression.lz4.level",
        9,
        between(1, 17),
        broker_key="compression.lz4.level",
        doc="compression level if compression.type is lz4",
    )
    compression_zstd_level: int = topic_setting(
        "compression.zstd.level",
        3,
        between(-131072, 22),
        broker_key="compression.zstd.level",
        doc="compression level if compression.type is zstd",
    )
    preallocate: bool = topic_setting(
        "preallocate",
        False,
        broker_key="log.preallocate",
        doc="preallocate the file of a new segment",
    )
    message_timestamp_type: str = topic_setting(
        "message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        broker_key="log.message.timestamp.type",
        doc="source of a record's timestamp: CreateTime, set by the producer, or LogAppendTime, set"
        " by the broker",
    )
    message_timestamp_before_max_ms: int = topic_setting(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        broker_key="log.message.timestamp.before.max.ms",
        doc="how far in the past a record's timestamp may lie",
    )
    message_timestamp_after_max_ms: int = topic_setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        at_least(0),
        type=LONG,
        broker_key="log.message.timestamp.after.max.ms",
        doc="how far in the future a record's timestamp may lie",
    )
    validate_records: str = topic_setting(
        "validate.records",
        "full",
        one_of("header", "full"),
        broker_key="log.validate.records",
        doc="header: check the header of each batch; full: also check every record",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = topic_setting(
        "leader.replication.throttled.replicas",
        (),
        THROTTLED_REPLICAS,
        doc="replicas that are throttled on the leader side: partition:broker pairs, or *",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = topic_setting(
        "follower.replication.throttled.replicas",
        (),
        THROTTLED_REPLICAS,
        doc="replicas that are throttled on the follower side: partition:broker pairs, or *",
    )
    remote_storage_enable: bool = topic_setting(
        "remote.storage.enable", False, acts=Acts.TIERED, doc="copy segments to tiered storage"
    )
    local_retention_ms: int = topic_setting(
        "local.retention.ms",
        -2,
        at_least(-2),
        type=LONG,
        acts=Acts.TIERED,
        broker_key="log.local.retention.ms",
        doc="like retention.ms, for segments copied to tiered storage; -2 uses retention.ms",
    )
    local_retention_bytes: int = topic_setting(
        "local.retention.bytes",
        -2,
        at_least(-2),
        type=LONG,
        acts=Acts.TIERED,
        broker_key="log.local.retention.bytes",
        doc="like retention.bytes, for segments copied to tiered storage; -2 uses retention.bytes",
    )
    remote_log_copy_disable: bool = topic_setting(
        "remote.log.copy.disable",
        False,
        acts=Acts.TIERED,
        doc="stop copying segments to tiered storage, and only read those already copied",
    )
    remote_log_delete_on_disable: bool = topic_setting(
        "remote.log.delete.on.disable",
        False,
        acts=Acts.TIERED,
        doc="delete the copies when remote.storage.enable is turned off",
    )
    message_timestamp_difference_max_ms: int = topic_setting(
        "message.timestamp.difference.max.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        acts=Acts.RETIRED,
        broker_key="log.message.timestamp.difference.max.ms",
        doc="maximum difference of a timestamp from the broker's clock; use"
        " message.timestamp.before.max.ms and message.timestamp.after.max.ms instead",
    )
    message_format_version: str = topic_setting(
        "message.format.version",
        "3.0-IV1",
        acts=Acts.RETIRED,
        broker_key="log.message.format.version",
        doc="format version of batches on disk",
    )
    message_downconversion_enable: bool = topic_setting(
        "message.downconversion.enable",
        True,
        acts=Acts.RETIRED,
        broker_key="log.message.downconversion.enable",
        doc="convert batches for consumers that do not support format version 2",
    )
    explicit: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The topic's own overrides, as text."""
    broker: BrokerConfig = field(default_factory=BrokerConfig, compare=False, repr=False)

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """Apply `overrides` to the broker's configs.  Raises ConfigError, with Kafka's text, if
        one is invalid."""
        table = settings_of(cls)
        for name in overrides:
            if name not in table:
                raise ConfigError(f"Unknown topic config name: {name}")
        config = cls._build(overrides, broker)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError(
                "conflict topic config setting min.compaction.lag.ms "
                f"({config.min_compaction_lag_ms}) > max.compaction.lag.ms "
                f"({config.max_compaction_lag_ms})"
            )
        return config

    @classmethod
    def stored(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """Apply stored overrides, which this or another release accepted: invalid ones
        are ignored."""
        table = settings_of(cls)
        usable = {n: v for n, v in overrides.items() if n in table and not table[n].refusal(v)}
        return cls._build(usable, broker)

    def upon(self, broker: BrokerConfig) -> TopicConfig:
        """Return the same overrides applied to other broker configs."""
        return self._build(self.explicit, broker)

    @classmethod
    def _build(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        values = {
            s.attribute: s.parse(overrides[s.name])
            if s.name in overrides
            else _inherited(s, broker)
            for s in settings_of(cls).values()
        }
        return cls(**values, explicit=dict(overrides), broker=broker)

    def given(self, setting: Setting) -> list[GivenValue]:
        own = self.explicit.get(setting.name)
        topic = [] if own is None else [GivenValue(setting.name, own, Source.DYNAMIC_TOPIC_CONFIG)]
        if setting.broker_key is None:
            return topic
        return topic + self.broker.given(settings_of(BrokerConfig)[setting.broker_key])


def _inherited(setting: Setting, broker: BrokerConfig) -> Any:
    if setting.broker_key is None:
        return setting.default
    return effective(broker, settings_of(BrokerConfig)[setting.broker_key])
