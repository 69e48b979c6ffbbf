"""A transactor with aiokafka."""

from __future__ import annotations

import asyncio
import logging

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from work import AT_ONCE, COPY, SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, options, tell, transfers

given = options()
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


async def main() -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=given.bootstrap_server,
        transactional_id=given.transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    await producer.start()
    await (copy(producer) if given.mode == COPY else transfer(producer))


async def copy(producer: aiokafka.AIOKafkaProducer) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        given.source,
        bootstrap_servers=given.bootstrap_server,
        group_id=given.group_id,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    await consumer.start()
    while True:
        read = await consumer.getmany(timeout_ms=100, max_records=AT_ONCE)
        if not read:
            continue
        try:
            async with producer.transaction():
                for partition, records in read.items():
                    for record in records:
                        await producer.send(
                            given.target, record.value, partition=partition.partition
                        )
                offsets = {partition: records[-1].offset + 1 for partition, records in read.items()}
                await producer.send_offsets_to_transaction(offsets, given.group_id)
            tell("committed")
        except KafkaError:
            tell("aborted")
            await consumer.seek_to_committed()


async def transfer(producer: aiokafka.AIOKafkaProducer) -> None:
    for amount, taken, to, is_kept in transfers(given.partitions):
        await producer.begin_transaction()
        await producer.send(given.target, str(-amount).encode(), partition=taken)
        if is_kept:
            await producer.send(given.target, str(amount).encode(), partition=to)
            await producer.commit_transaction()
        else:
            await producer.flush()
            await producer.abort_transaction()
        tell("committed" if is_kept else "aborted")


asyncio.run(main())
