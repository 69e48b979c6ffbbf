"""Transactions, producer ids, and the topic of their state."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import CLUSTER, DAY_MS, HOUR_MS, SHORT, Acts, at_least, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionSettings:
    """Transactions and idempotence."""

    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="partitions of __transaction_state",
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        at_least(1),
        type=SHORT,
        acts=Acts.TRANSACTIONS,
        doc="its replication factor",
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        2,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="its minimum ISR",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        100 << 20,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="its segment size",
    )
    transaction_state_log_load_buffer_size: int = setting(
        "transaction.state.log.load.buffer.size",
        5 << 20,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="read size when loading it",
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="largest timeout a producer may ask for",
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        False,
        acts=Acts.TRANSACTIONS,
        doc="allow transactions that an outside coordinator ends (KIP-939)",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        7 * DAY_MS,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="idle transactional ids expire after this",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="how often timed-out transactions are aborted",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        HOUR_MS,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="how often expired ids are removed",
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        True,
        dynamic=CLUSTER,
        acts=Acts.TRANSACTIONS,
        doc="check a transaction's partitions before appending",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        at_least(1),
        acts=Acts.TRANSACTIONS,
        doc="wait before that check is tried again",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        at_least(0),
        acts=Acts.TRANSACTIONS,
        doc="upper bound of the waits together",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        at_least(1),
        dynamic=CLUSTER,
        doc="idle producer state in a partition expires after this",
    )
