"""A group member with kafka-python."""

from __future__ import annotations

import contextlib
import logging

import kafka
from events import options, stopped_by_sigterm, tell, tell_partitions, tell_record
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import CommitFailedError, KafkaError

logging.getLogger("kafka").setLevel(logging.CRITICAL)
STRATEGIES = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(kafka.ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        tell_partitions("partitions_revoked", revoked)

    def on_partitions_assigned(self, assigned):
        tell_partitions("partitions_assigned", assigned)


def main() -> None:
    given = options()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=given.bootstrap_server,
        group_id=given.group_id,
        group_instance_id=given.group_instance_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        session_timeout_ms=given.session_timeout,
        heartbeat_interval_ms=min(given.session_timeout // 3, 500),
        partition_assignment_strategy=[STRATEGIES[given.assignment_strategy or "range"]],
    )
    stopped = stopped_by_sigterm()
    consumer.subscribe([given.topic], listener=Listener())
    # A leader that joins before it knows the topic assigns nothing and rejoins once it knows it. If
    # that coincides with the end of a poll, 3.0.12 never adopts its own assignment.
    consumer.topics()
    while not stopped.is_set():
        read = consumer.poll(timeout_ms=100)
        for partition, records in read.items():
            for record in records:
                tell_record(partition.topic, partition.partition, record.offset, record.value)
        if read:
            # A commit is refused if a rebalance came in between; the records are then read again.
            with contextlib.suppress(CommitFailedError):
                consumer.commit()
    with contextlib.suppress(KafkaError):
        consumer.close()
    tell("shutdown_complete")


main()
