"""A group member with aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError
from events import options, tell, tell_partitions, tell_record

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
STRATEGIES = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(aiokafka.ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        tell_partitions("partitions_revoked", revoked)

    def on_partitions_assigned(self, assigned):
        tell_partitions("partitions_assigned", assigned)


async def main() -> None:
    given = options()
    consumer = aiokafka.AIOKafkaConsumer(
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
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer.subscribe([given.topic], listener=Listener())
    await consumer.start()
    while not stopped.is_set():
        read = await consumer.getmany(timeout_ms=100)
        for partition, records in read.items():
            for record in records:
                tell_record(partition.topic, partition.partition, record.offset, record.value)
        if read:
            # A commit is refused if a rebalance came in between.
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                await consumer.commit()
    await consumer.stop()
    tell("shutdown_complete")


asyncio.run(main())
