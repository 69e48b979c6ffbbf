"""Transactions, producer ids, and the topic of their state."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import CLUSTER, DAY_MS, HOUR_MS, SHORT, at_least, section, setting


@section
@known_keys("transactions")
class TransactionSettings:
    """Transactions and idempotence."""

    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        at_least(1),
        doc="partitions of __transaction_state; not to be changed once it exists",
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        at_least(1),
        type=SHORT,
        doc="replicas of __transaction_state; 1 without ZooKeeper",
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        2,
        at_least(1),
        doc="in-sync replicas it needs to be written to; 1 without ZooKeeper",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", 100 << 20, at_least(1), doc="size of its segments"
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        doc="longest timeout that a producer may ask for",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        7 * DAY_MS,
        at_least(1),
        doc="how long a transactional id is remembered without use",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        at_least(1),
        doc="how often transactions that timed out are aborted",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        HOUR_MS,
        at_least(1),
        doc="how often transactional ids without use are removed",
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        True,
        dynamic=CLUSTER,
        doc=(
            "ask the coordinator whether a partition belongs to a transaction before it is "
            "written to"
        ),
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        at_least(1),
        doc="pause before the coordinator is asked again",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        at_least(0),
        doc="how long it is asked again",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        at_least(1),
        dynamic=CLUSTER,
        doc="how long a partition remembers an idempotent producer that writes no more",
    )
