"""Transactions, producer ids, and the topic with their state."""

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
        doc="partitions of __transaction_state; do not change it once the topic exists",
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
        doc="in-sync replicas that a write to __transaction_state needs; 1 without ZooKeeper",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        100 << 20,
        at_least(1),
        doc="segment size of __transaction_state",
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        doc="maximum transaction timeout that a producer may request",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        7 * DAY_MS,
        at_least(1),
        doc="how long an unused transactional id is kept",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        at_least(1),
        doc="how often timed-out transactions are aborted",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        HOUR_MS,
        at_least(1),
        doc="how often expired transactional ids are removed",
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        True,
        dynamic=CLUSTER,
        doc=(
            "verify with the transaction coordinator that a partition is part of the transaction "
            "before a transactional write to it"
        ),
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        at_least(1),
        doc="pause before verifying a partition with the transaction coordinator is retried",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        at_least(0),
        doc="how long verifying a partition with the transaction coordinator is retried",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        at_least(1),
        dynamic=CLUSTER,
        doc="how long a partition keeps the state of an idempotent producer that stopped writing",
    )
