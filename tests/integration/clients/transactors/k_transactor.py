"""A transactor with kcli.client."""

from __future__ import annotations

import asyncio

from work import AT_ONCE, COPY, SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, options, tell, transfers

from kcli.client import Consumer, KafkaError, Producer, TopicPartition

given = options()
SERVERS = {"bootstrap.servers": given.bootstrap_server}


async def main() -> None:
    properties = SERVERS | {
        "transactional.id": given.transactional_id,
        "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
    }
    async with Producer(properties) as producer:
        await producer.init_transactions()
        await (copy(producer) if given.mode == COPY else transfer(producer))


async def copy(producer: Producer) -> None:
    properties = SERVERS | {
        "group.id": given.group_id,
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "heartbeat.interval.ms": "500",
        "partition.assignment.strategy": "range",
        "max.poll.records": str(AT_ONCE),
    }
    async with Consumer(properties) as consumer:
        consumer.subscribe([given.source])
        while True:
            read = await consumer.poll(timeout_ms=100)
            if not read:
                continue
            try:
                async with producer.transaction():
                    for record in read:
                        await producer.send(given.target, record.value, partition=record.partition)
                    offsets = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in read}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                tell("committed")
            except KafkaError:
                tell("aborted")
                committed = await consumer.committed(consumer.assignment)
                for partition, offset in committed.items():
                    await consumer.seek(partition, offset.offset if offset else 0)


async def transfer(producer: Producer) -> None:
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
