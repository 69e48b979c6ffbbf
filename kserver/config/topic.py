"""A topic's configuration: its own overrides, else the broker's settings.

Pure: no I/O, no clock, no await.

Every topic key but a few falls back to a key of the broker (`broker_key`), often of another name;
`TopicConfig()` alone has the defaults of a broker that was told nothing.
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
    Check,
    GivenValue,
    Setting,
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
THROTTLED_REPLICAS = Check(PAIRS, _throttled_replicas)


# A topic's settings can all be changed while the broker runs.
topic_setting = partial(setting, dynamic=CLUSTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicConfig:
    segment_bytes: int = topic_setting(
        "segment.bytes", 1 << 30, at_least(14), broker_key="log.segment.bytes", doc="segment size"
    )
    segment_ms: int = topic_setting(
        "segment.ms",
        7 * DAY_MS,
        at_least(1),
        type=LONG,
        broker_key="log.roll.ms",
        doc="segment age",
    )
    segment_jitter_ms: int = topic_setting(
        "segment.jitter.ms",
        0,
        at_least(0),
        type=LONG,
        broker_key="log.roll.jitter.ms",
        doc="random reduction of segment.ms",
    )
    segment_index_bytes: int = topic_setting(
        "segment.index.bytes",
        10 << 20,
        at_least(4),
        broker_key="log.index.size.max.bytes",
        doc="index size",
    )
    flush_messages: int = topic_setting(
        "flush.messages",
        LONG_MAX,
        at_least(1),
        type=LONG,
        broker_key="log.flush.interval.messages",
        doc="records before fsync",
    )
    flush_ms: int = topic_setting(
        "flush.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        broker_key="log.flush.interval.ms",
        doc="time before fsync",
    )
    flush_before_ack: bool = topic_setting(
        "flush.before.ack", False, broker_key="log.flush.before.ack", doc="see log.flush.before.ack"
    )
    retention_bytes: int = topic_setting(
        "retention.bytes",
        -1,
        type=LONG,
        broker_key="log.retention.bytes",
        doc="size limit; -1 none",
    )
    retention_ms: int = topic_setting(
        "retention.ms",
        7 * DAY_MS,
        at_least(-1),
        type=LONG,
        broker_key="log.retention.ms",
        doc="age limit; -1 none",
    )
    max_message_bytes: int = topic_setting(
        "max.message.bytes",
        1_048_588,
        at_least(0),
        broker_key="message.max.bytes",
        doc="largest batch",
    )
    index_interval_bytes: int = topic_setting(
        "index.interval.bytes",
        4 << 10,
        at_least(0),
        broker_key="log.index.interval.bytes",
        doc="bytes between index entries",
    )
    delete_retention_ms: int = topic_setting(
        "delete.retention.ms",
        DAY_MS,
        at_least(0),
        type=LONG,
        acts=Acts.COMPACTION,
        broker_key="log.cleaner.delete.retention.ms",
        doc="how long tombstones stay",
    )
    min_compaction_lag_ms: int = topic_setting(
        "min.compaction.lag.ms",
        0,
        at_least(0),
        type=LONG,
        acts=Acts.COMPACTION,
        broker_key="log.cleaner.min.compaction.lag.ms",
        doc="age before compaction",
    )
    max_compaction_lag_ms: int = topic_setting(
        "max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        type=LONG,
        acts=Acts.COMPACTION,
        broker_key="log.cleaner.max.compaction.lag.ms",
        doc="age that forces compaction",
    )
    file_delete_delay_ms: int = topic_setting(
        "file.delete.delay.ms",
        60_000,
        at_least(0),
        type=LONG,
        broker_key="log.segment.delete.delay.ms",
        doc="delay before files are removed",
    )
    min_cleanable_dirty_ratio: float = topic_setting(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        acts=Acts.COMPACTION,
        broker_key="log.cleaner.min.cleanable.ratio",
        doc="dirty share that makes it cleanable",
    )
    cleanup_policy: tuple[str, ...] = topic_setting(
        "cleanup.policy",
        ("delete",),
        one_of("compact", "delete"),
        broker_key="log.cleanup.policy",
        doc="delete, compact or both",
    )
    unclean_leader_election_enable: bool = topic_setting(
        "unclean.leader.election.enable",
        False,
        acts=Acts.REPLICATION,
        broker_key="unclean.leader.election.enable",
        doc="allow out-of-sync leaders",
    )
    min_insync_replicas: int = topic_setting(
        "min.insync.replicas",
        1,
        at_least(1),
        broker_key="min.insync.replicas",
        doc="ISR needed for acks=all",
    )
    compression_type: str = topic_setting(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_key="compression.type",
        doc="codec kept on disk",
    )
    compression_gzip_level: int = topic_setting(
        "compression.gzip.level",
        -1,
        GZIP_LEVEL,
        broker_key="compression.gzip.level",
        doc="level when compression.type is gzip",
    )
    compression_lz4_level: int = topic_setting(
        "compression.lz4.level",
        9,
        between(1, 17),
        broker_key="compression.lz4.level",
        doc="level for lz4",
    )
    compression_zstd_level: int = topic_setting(
        "compression.zstd.level",
        3,
        between(-131072, 22),
        broker_key="compression.zstd.level",
        doc="level for zstd",
    )
    preallocate: bool = topic_setting(
        "preallocate", False, broker_key="log.preallocate", doc="preallocate segments"
    )
    message_timestamp_type: str = topic_setting(
        "message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        broker_key="log.message.timestamp.type",
        doc="CreateTime or LogAppendTime",
    )
    message_timestamp_before_max_ms: int = topic_setting(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        broker_key="log.message.timestamp.before.max.ms",
        doc="past tolerance",
    )
    message_timestamp_after_max_ms: int = topic_setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        at_least(0),
        type=LONG,
        broker_key="log.message.timestamp.after.max.ms",
        doc="future tolerance",
    )
    validate_records: str = topic_setting(
        "validate.records",
        "header",
        one_of("header", "full"),
        broker_key="log.validate.records",
        doc="see log.validate.records",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = topic_setting(
        "leader.replication.throttled.replicas",
        (),
        THROTTLED_REPLICAS,
        acts=Acts.QUOTAS,
        doc="`partition:broker` list or `*`",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = topic_setting(
        "follower.replication.throttled.replicas",
        (),
        THROTTLED_REPLICAS,
        acts=Acts.QUOTAS,
        doc="`partition:broker` list or `*`",
    )
    remote_storage_enable: bool = topic_setting(
        "remote.storage.enable", False, acts=Acts.TIERED, doc="tiering on"
    )
    local_retention_ms: int = topic_setting(
        "local.retention.ms",
        -2,
        at_least(-2),
        type=LONG,
        acts=Acts.TIERED,
        broker_key="log.local.retention.ms",
        doc="local age limit with tiering; -2 follows retention.ms",
    )
    local_retention_bytes: int = topic_setting(
        "local.retention.bytes",
        -2,
        at_least(-2),
        type=LONG,
        acts=Acts.TIERED,
        broker_key="log.local.retention.bytes",
        doc="local size limit with tiering; -2 follows retention.bytes",
    )
    remote_log_copy_disable: bool = topic_setting(
        "remote.log.copy.disable", False, acts=Acts.TIERED, doc="stop copying to tiered storage"
    )
    remote_log_delete_on_disable: bool = topic_setting(
        "remote.log.delete.on.disable",
        False,
        acts=Acts.TIERED,
        doc="delete remote data when tiering is turned off",
    )
    message_timestamp_difference_max_ms: int = topic_setting(
        "message.timestamp.difference.max.ms",
        LONG_MAX,
        at_least(0),
        type=LONG,
        acts=Acts.RETIRED,
        broker_key="log.message.timestamp.difference.max.ms",
        doc="deprecated tolerance",
    )
    message_format_version: str = topic_setting(
        "message.format.version",
        "3.0-IV1",
        acts=Acts.RETIRED,
        broker_key="log.message.format.version",
        doc="deprecated",
    )
    message_downconversion_enable: bool = topic_setting(
        "message.downconversion.enable",
        True,
        acts=Acts.RETIRED,
        broker_key="log.message.downconversion.enable",
        doc="convert for old consumers",
    )
    explicit: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The topic's own overrides, as text."""
    broker: BrokerConfig = field(default_factory=BrokerConfig, compare=False, repr=False)

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """`overrides` upon the broker's settings.  ConfigError, in Kafka's words, for a bad one."""
        table = settings_of(cls)
        for name in overrides:
            if name not in table:
                raise ConfigError(f"Unknown topic config name: {name}")
        values = {
            s.attribute: s.parse(overrides[s.name])
            if s.name in overrides
            else _inherited(s, broker)
            for s in table.values()
        }
        config = cls(**values, explicit=dict(overrides), broker=broker)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError(
                "conflict topic config setting min.compaction.lag.ms "
                f"({config.min_compaction_lag_ms}) > max.compaction.lag.ms "
                f"({config.max_compaction_lag_ms})"
            )
        return config

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
