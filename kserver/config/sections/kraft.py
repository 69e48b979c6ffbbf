"""Keys of a KRaft quorum, known so that its files can be used as they are."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import DAY_MS, HOUR_MS, LONG, STRING, Acts, at_least, section, setting

never = partial(setting, acts=Acts.KRAFT)


@section
class KRaftSettings:
    """KRaft controller."""

    controller_quorum_voters: tuple[str, ...] = never(
        "controller.quorum.voters", (), doc="controllers, id@host:port, comma-separated"
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = never(
        "controller.quorum.bootstrap.servers", (), doc="controllers to find the quorum by"
    )
    controller_quorum_auto_join_enable: bool = never(
        "controller.quorum.auto.join.enable", False, doc="let a controller add itself to the voters"
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        (),
        doc=(
            "listeners of KRaft controllers; they are left out of listeners and "
            "advertised.listeners"
        ),
    )
    controller_quorum_election_timeout_ms: int = never(
        "controller.quorum.election.timeout.ms",
        1000,
        at_least(0),
        doc="how long a voter waits for votes",
    )
    controller_quorum_fetch_timeout_ms: int = never(
        "controller.quorum.fetch.timeout.ms",
        2000,
        at_least(0),
        doc="how long a voter goes without the leader before it stands for election",
    )
    controller_quorum_fetch_max_bytes: int = never(
        "controller.quorum.fetch.max.bytes",
        1 << 20,
        at_least(1),
        doc="bytes of one fetch of the metadata log",
    )
    controller_quorum_fetch_snapshot_max_bytes: int = never(
        "controller.quorum.fetch.snapshot.max.bytes",
        1 << 20,
        at_least(1),
        doc="bytes of one fetch of a snapshot",
    )
    controller_quorum_election_backoff_max_ms: int = never(
        "controller.quorum.election.backoff.max.ms",
        1000,
        at_least(0),
        doc="longest pause after a lost election",
    )
    controller_quorum_append_linger_ms: int = never(
        "controller.quorum.append.linger.ms", 25, at_least(0), doc="how long writes are gathered"
    )
    controller_quorum_request_timeout_ms: int = never(
        "controller.quorum.request.timeout.ms",
        2000,
        at_least(0),
        doc="how long a voter waits for an answer",
    )
    controller_quorum_retry_backoff_ms: int = never(
        "controller.quorum.retry.backoff.ms",
        20,
        at_least(0),
        doc="pause before a request is sent again",
    )
    broker_heartbeat_interval_ms: int = never(
        "broker.heartbeat.interval.ms", 2000, doc="time between two heartbeats of a broker"
    )
    broker_session_timeout_ms: int = never(
        "broker.session.timeout.ms", 9000, doc="how long a broker may miss them"
    )
    initial_broker_registration_timeout_ms: int = never(
        "initial.broker.registration.timeout.ms",
        60_000,
        doc="how long a broker may take to register",
    )
    metadata_log_dir: str | None = never(
        "metadata.log.dir",
        None,
        type=STRING,
        doc="directory of the metadata log; the first of log.dirs when unset",
    )
    metadata_log_segment_bytes: int = never(
        "metadata.log.segment.bytes",
        1 << 30,
        at_least(8 << 20),
        doc="size at which its segments are rolled",
    )
    metadata_log_segment_ms: int = never(
        "metadata.log.segment.ms", 7 * DAY_MS, type=LONG, doc="age at which its segments are rolled"
    )
    metadata_log_max_record_bytes_between_snapshots: int = never(
        "metadata.log.max.record.bytes.between.snapshots",
        20 << 20,
        at_least(1),
        type=LONG,
        doc="bytes from one snapshot to the next",
    )
    metadata_log_max_snapshot_interval_ms: int = never(
        "metadata.log.max.snapshot.interval.ms",
        HOUR_MS,
        at_least(0),
        type=LONG,
        doc="longest time from one snapshot to the next",
    )
    metadata_max_retention_bytes: int = never(
        "metadata.max.retention.bytes",
        100 << 20,
        type=LONG,
        doc="size of metadata log and snapshots above which the oldest go",
    )
    metadata_max_retention_ms: int = never(
        "metadata.max.retention.ms", 7 * DAY_MS, type=LONG, doc="age at which they go"
    )
    metadata_max_idle_interval_ms: int = never(
        "metadata.max.idle.interval.ms",
        500,
        at_least(0),
        doc="how often an idle leader writes; 0 for never",
    )
