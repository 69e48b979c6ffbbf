"""Configuration of a producer, a consumer and an admin client, with Kafka 4.3's keys and defaults.

Pure: tables, and the rules that hold between keys.

    config = ProducerConfig.of({"bootstrap.servers": "localhost:9092", "linger.ms": "20"})
    config.linger_ms       20
    config.warnings        unknown keys, a line each

Serializers, interceptors and partitioners are named by Kafka's Java class where an equivalent
exists (`serialization.py`, `partitioner.py`), else as package.module.name of Python code. Unlike
Java's clients these leave socket buffers to the system unless configured: the system grows them
with the distance, and a fixed 64 KB halves the throughput on one machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from kcli.client.old_config_names import CONSUMER_NAMES, PRODUCER_NAMES, Names
from kcli.client.security import SecurityConfig
from kcli.client.settings import any_case_of
from kserver.config.setting import (
    INT_MAX,
    NON_EMPTY,
    Acts,
    SettingCheck,
    Type,
    at_least,
    between,
    one_of,
    setting,
)
from kserver.errors import ConfigError

_START = re.compile(r"latest|earliest|none|by_duration:P.+")
START = SettingCheck(
    "[latest, earliest, none, by_duration:PnDTnHnMn.nS]",
    lambda value: None if _START.fullmatch(value) else "Invalid value",
)
GZIP_LEVEL = SettingCheck(
    "[1,...,9] or -1",
    lambda value: None if value == -1 or 1 <= value <= 9 else "Value must be in [1, 9] or -1",
)

NO_TWO_PHASES = SettingCheck(
    "[false]",
    lambda value: "two-phase commit (KIP-939) is not supported" if value else None,
)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ClientConfig(SecurityConfig):
    """Keys of all clients."""

    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers", (), doc="host:port of the first brokers to ask"
    )
    client_dns_lookup: str = setting(
        "client.dns.lookup",
        "use_all_dns_ips",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        acts=Acts.SECURITY,
        doc="use_all_dns_ips, or the canonical name of each bootstrap host",
    )
    client_id: str = setting("client.id", "", doc="name in logs, quotas, metrics")
    config_providers: tuple[str, ...] = setting(
        "config.providers", (), acts=Acts.JAVA, doc="providers of values that other keys refer to"
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        540000,
        type=Type.LONG,
        doc="close a connection unused for this long",
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push", True, acts=Acts.METRICS, doc="push telemetry when the broker asks"
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        300000,
        at_least(0),
        type=Type.LONG,
        doc="ask for metadata again after this long",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        300000,
        at_least(0),
        type=Type.LONG,
        acts=Acts.ABSENT,
        doc="how long without metadata before a new bootstrap; here it is immediate",
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        "rebootstrap",
        any_case_of("REBOOTSTRAP", "NONE"),
        doc="none, or rebootstrap when no known broker answers",
    )
    metric_reporters: tuple[str, ...] = setting(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        acts=Acts.METRICS,
        doc="metric plug-ins",
    )
    metrics_num_samples: int = setting(
        "metrics.num.samples", 2, at_least(1), acts=Acts.METRICS, doc="samples kept"
    )
    metrics_recording_level: str = setting(
        "metrics.recording.level",
        "INFO",
        one_of("INFO", "DEBUG", "TRACE"),
        acts=Acts.METRICS,
        doc="INFO, DEBUG, TRACE",
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms",
        30000,
        at_least(0),
        type=Type.LONG,
        acts=Acts.METRICS,
        doc="sample length",
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes", 65536, at_least(-1), doc="SO_RCVBUF; -1 leaves the system's"
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        1000,
        at_least(0),
        type=Type.LONG,
        doc="upper bound of the pause between connection attempts",
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms",
        50,
        at_least(0),
        type=Type.LONG,
        doc="first pause between connection attempts",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", 30000, at_least(0), doc="how long to wait for a response"
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms",
        1000,
        at_least(0),
        type=Type.LONG,
        doc="upper bound of the pause between retries",
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", 100, at_least(0), type=Type.LONG, doc="first pause between retries"
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes", 131072, at_least(-1), doc="SO_SNDBUF; -1 leaves the system's"
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        30000,
        type=Type.LONG,
        doc="upper bound of the time to connect",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms", 10000, type=Type.LONG, doc="time to connect"
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ProducerConfig(ClientConfig):
    _old_names: ClassVar[Names] = PRODUCER_NAMES
    acks: str = setting("acks", "all", one_of("all", "-1", "0", "1"), doc="0, 1 or all (-1)")
    batch_size: int = setting(
        "batch.size", 16384, at_least(0), doc="bytes of one partition's batch"
    )
    buffer_memory: int = setting(
        "buffer.memory",
        33554432,
        at_least(0),
        type=Type.LONG,
        doc="bytes of records that are buffered or in flight",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level", -1, GZIP_LEVEL, doc="1 to 9; -1 is zlib's default"
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level", 9, between(1, 17), doc="lz4 level"
    )
    compression_type: str = setting(
        "compression.type",
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        doc="none, gzip, snappy, lz4 or zstd",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", 3, between(-131072, 22), doc="zstd level"
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        120000,
        at_least(0),
        doc="from send to delivery; at least linger.ms plus request.timeout.ms",
    )
    enable_idempotence: bool = setting(
        "enable.idempotence",
        True,
        doc="no duplicates and no gaps; needs acks=all, retries, at most 5 requests in flight",
    )
    interceptor_classes: tuple[str, ...] = setting(
        "interceptor.classes", (), doc="inspect and change records"
    )
    key_serializer: str | None = setting(
        "key.serializer", None, type=Type.CLASS, doc="turns keys into bytes"
    )
    linger_ms: int = setting(
        "linger.ms", 5, at_least(0), type=Type.LONG, doc="how long a batch waits for more records"
    )
    max_block_ms: int = setting(
        "max.block.ms",
        60000,
        at_least(0),
        type=Type.LONG,
        doc="how long send waits for metadata and memory",
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection",
        5,
        at_least(1),
        doc="unanswered requests to one broker",
    )
    max_request_size: int = setting(
        "max.request.size",
        1048576,
        at_least(0),
        doc="bytes of the largest request, and thus of the largest record",
    )
    metadata_max_idle_ms: int = setting(
        "metadata.max.idle.ms",
        300000,
        at_least(5000),
        type=Type.LONG,
        doc="forget a topic unused for this long",
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        "partitioner.adaptive.partitioning.enable",
        True,
        doc="send more to partitions whose broker is faster",
    )
    partitioner_availability_timeout_ms: int = setting(
        "partitioner.availability.timeout.ms",
        0,
        at_least(0),
        type=Type.LONG,
        doc="avoid partitions stuck for this long; 0 never does",
    )
    partitioner_class: str | None = setting(
        "partitioner.class",
        None,
        type=Type.CLASS,
        doc="chooses partitions; unset: murmur2 of the key, else sticky",
    )
    partitioner_ignore_keys: bool = setting(
        "partitioner.ignore.keys",
        False,
        doc="ignore keys: spread all records like those without keys",
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes", 32768, at_least(-1), doc="SO_RCVBUF; -1 leaves the system's"
    )
    retries: int = setting("retries", INT_MAX, between(0, INT_MAX), doc="how often to retry")
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        60000,
        doc="how long a transaction may be open before the broker aborts it",
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        False,
        NO_TWO_PHASES,
        doc="an external coordinator decides on commits; only false",
    )
    transactional_id: str | None = setting(
        "transactional.id",
        None,
        NON_EMPTY,
        type=Type.STRING,
        doc="enables transactions, under an id that survives restarts",
    )
    value_serializer: str | None = setting(
        "value.serializer", None, type=Type.CLASS, doc="turns values into bytes"
    )

    @classmethod
    def _derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Derive as Java's ProducerConfig.postProcessParsedConfig: configured values win over
        defaults.
        """
        config = cls(**values)
        idempotent = {
            "Must set acks to all in order to use the idempotent producer.": config.required_acks
            == -1,
            "Must set retries to non-zero when using the idempotent producer.": config.retries > 0,
            "Must set max.in.flight.requests.per.connection to at most 5 to use the idempotent"
            " producer.": config.max_in_flight_requests_per_connection <= 5,
        }
        refusals = [text for text, holds in idempotent.items() if not holds]
        if refusals and values.get("enable_idempotence"):
            raise ConfigError(refusals[0])
        if config.transactional_id is not None and (refusals or not config.enable_idempotence):
            raise ConfigError("Cannot set a transactional.id without also enabling idempotence.")
        least_ms = config.linger_ms + config.request_timeout_ms
        if config.delivery_timeout_ms < least_ms and "delivery_timeout_ms" in values:
            raise ConfigError(
                "delivery.timeout.ms should be equal to or larger than"
                " linger.ms + request.timeout.ms"
            )
        return values | {
            "enable_idempotence": config.enable_idempotence and not refusals,
            "delivery_timeout_ms": max(config.delivery_timeout_ms, min(least_ms, INT_MAX)),
        }

    @property
    def required_acks(self) -> int:
        """acks as a number of the protocol: -1 is all."""
        return -1 if self.acks == "all" else int(self.acks)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ConsumerConfig(ClientConfig):
    _old_names: ClassVar[Names] = CONSUMER_NAMES
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics", True, doc="a metadata request may create the topic"
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 5000, at_least(0), doc="commit period"
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "latest",
        START,
        doc="where to start without a position: latest, earliest, by_duration:..., none",
    )
    check_crcs: bool = setting("check.crcs", True, doc="verify each batch's checksum")
    client_rack: str = setting(
        "client.rack",
        "",
        doc="rack to fetch from, where the brokers choose the replica by it",
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms", 60000, at_least(0), doc="total time of a call"
    )
    enable_auto_commit: bool = setting("enable.auto.commit", True, doc="background commits")
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        True,
        doc="hide internal topics from pattern subscriptions",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", 52428800, at_least(0), doc="bytes of one response"
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms", 500, at_least(0), doc="how long the broker waits for fetch.min.bytes"
    )
    fetch_min_bytes: int = setting(
        "fetch.min.bytes",
        1,
        at_least(0),
        doc="bytes that the broker waits for before it responds",
    )
    group_id: str | None = setting("group.id", None, type=Type.STRING, doc="group")
    group_instance_id: str | None = setting(
        "group.instance.id",
        None,
        NON_EMPTY,
        type=Type.STRING,
        doc="static member id",
    )
    group_protocol: str = setting(
        "group.protocol",
        "classic",
        any_case_of("CONSUMER", "CLASSIC"),
        doc="classic, or consumer (KIP-848)",
    )
    group_remote_assignor: str | None = setting(
        "group.remote.assignor",
        None,
        type=Type.STRING,
        doc="server-side assignor",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms", 3000, doc="heartbeat period (classic)"
    )
    interceptor_classes: tuple[str, ...] = setting(
        "interceptor.classes", (), doc="inspect and change records"
    )
    isolation_level: str = setting(
        "isolation.level",
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        doc="read_committed hides aborted and undecided records",
    )
    key_deserializer: str | None = setting(
        "key.deserializer", None, type=Type.CLASS, doc="turns bytes into keys"
    )
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes",
        1048576,
        at_least(0),
        doc="bytes of one partition in one response",
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        300000,
        at_least(1),
        doc="longest gap between polls",
    )
    max_poll_records: int = setting("max.poll.records", 500, at_least(1), doc="records of one poll")
    partition_assignment_strategy: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        (
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ),
        doc="client-side assignors (classic)",
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms", 45000, doc="failure detection (classic)"
    )
    share_acknowledgement_mode: str = setting(
        "share.acknowledgement.mode",
        "implicit",
        one_of("implicit", "explicit"),
        acts=Acts.SHARE_GROUPS,
        doc="implicit or explicit",
    )
    share_acquire_mode: str = setting(
        "share.acquire.mode",
        "BATCH_OPTIMIZED",
        any_case_of("batch_optimized", "record_limit"),
        acts=Acts.SHARE_GROUPS,
        doc="batch_optimized or record_limit",
    )
    value_deserializer: str | None = setting(
        "value.deserializer", None, type=Type.CLASS, doc="turns bytes into values"
    )

    @classmethod
    def _derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Check as Java's ConsumerConfig.postProcessParsedConfig."""
        config = cls(**values)
        protocol = config.group_protocol.upper()
        for key in _OF_ANOTHER_PROTOCOL[protocol]:
            if values.get(key.replace(".", "_")) is not None:
                raise ConfigError(f"{key} cannot be set when group.protocol={protocol}")
        if config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise ConfigError(
                "heartbeat.interval.ms must be set lower than session.timeout.ms:"
                f" {config.heartbeat_interval_ms} is not lower than {config.session_timeout_ms}"
            )
        if config.group_id is not None and not config.group_id.strip():
            raise ConfigError(
                "The configured group.id should not be an empty string or whitespace."
            )
        if config.group_id is None and values.get("enable_auto_commit"):
            raise ConfigError(
                "enable.auto.commit cannot be set to true when default group id (null) is used."
            )
        return values


_OF_ANOTHER_PROTOCOL = {
    "CLASSIC": ("group.remote.assignor",),
    "CONSUMER": (
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "partition.assignment.strategy",
    ),
}


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AdminConfig(ClientConfig):
    bootstrap_controllers: tuple[str, ...] = setting(
        "bootstrap.controllers",
        (),
        acts=Acts.KRAFT,
        doc="host:port of controllers to ask instead of brokers",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        300000,
        type=Type.LONG,
        doc="close a connection unused for this long",
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms", 60000, at_least(0), doc="total time of a call"
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push", False, acts=Acts.METRICS, doc="push telemetry when the broker asks"
    )
    retries: int = setting("retries", INT_MAX, between(0, INT_MAX), doc="how often to retry")
