"""Keys of a KRaft quorum, known so that its files can be used as they are."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import DAY_MS, HOUR_MS, LONG, STRING, Acts, at_least, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class KRaftSettings:
    """KRaft controller."""

    controller_quorum_voters: tuple[str, ...] = setting(
        "controller.quorum.voters", (), acts=Acts.KRAFT, doc="static voters, id@host:port list"
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        "controller.quorum.bootstrap.servers",
        (),
        acts=Acts.KRAFT,
        doc="controllers to find the quorum (dynamic voters)",
    )
    controller_quorum_auto_join_enable: bool = setting(
        "controller.quorum.auto.join.enable",
        False,
        acts=Acts.KRAFT,
        doc="let a controller add itself to the voters",
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names", (), doc="listener names of controllers; required in KRaft"
    )
    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        1000,
        at_least(0),
        acts=Acts.KRAFT,
        doc="time before starting an election",
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms",
        2000,
        at_least(0),
        acts=Acts.KRAFT,
        doc="time without a fetch from the leader before becoming candidate",
    )
    controller_quorum_fetch_max_bytes: int = setting(
        "controller.quorum.fetch.max.bytes",
        1 << 20,
        at_least(1),
        acts=Acts.KRAFT,
        doc="bytes of one fetch of the metadata log",
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        1 << 20,
        at_least(1),
        acts=Acts.KRAFT,
        doc="bytes of one fetch of a snapshot",
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        1000,
        at_least(0),
        acts=Acts.KRAFT,
        doc="upper bound of election back-off",
    )
    controller_quorum_append_linger_ms: int = setting(
        "controller.quorum.append.linger.ms",
        25,
        at_least(0),
        acts=Acts.KRAFT,
        doc="batching of metadata writes",
    )
    controller_quorum_request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms",
        2000,
        at_least(0),
        acts=Acts.KRAFT,
        doc="quorum request timeout",
    )
    controller_quorum_retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms",
        20,
        at_least(0),
        acts=Acts.KRAFT,
        doc="quorum retry pause",
    )
    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms", 2000, acts=Acts.KRAFT, doc="heartbeat period of brokers"
    )
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms", 9000, acts=Acts.KRAFT, doc="lease without heartbeats"
    )
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        60_000,
        acts=Acts.KRAFT,
        doc="time to register at start",
    )
    metadata_log_dir: str | None = setting(
        "metadata.log.dir",
        None,
        type=STRING,
        acts=Acts.KRAFT,
        doc="directory of the metadata log; null means first of log.dirs",
    )
    metadata_log_segment_bytes: int = setting(
        "metadata.log.segment.bytes",
        1 << 30,
        at_least(8 << 20),
        acts=Acts.KRAFT,
        doc="segment size",
    )
    metadata_log_segment_ms: int = setting(
        "metadata.log.segment.ms", 7 * DAY_MS, type=LONG, acts=Acts.KRAFT, doc="segment age"
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        20 << 20,
        at_least(1),
        type=LONG,
        acts=Acts.KRAFT,
        doc="bytes that trigger a snapshot",
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        HOUR_MS,
        at_least(0),
        type=LONG,
        acts=Acts.KRAFT,
        doc="time that triggers one",
    )
    metadata_max_retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        100 << 20,
        type=LONG,
        acts=Acts.KRAFT,
        doc="size limit of the metadata log and snapshots",
    )
    metadata_max_retention_ms: int = setting(
        "metadata.max.retention.ms", 7 * DAY_MS, type=LONG, acts=Acts.KRAFT, doc="age limit"
    )
    metadata_max_idle_interval_ms: int = setting(
        "metadata.max.idle.interval.ms",
        500,
        at_least(0),
        acts=Acts.KRAFT,
        doc="no-op record period; 0 off",
    )
