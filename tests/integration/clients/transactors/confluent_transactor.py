"""A transactor with confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from work import AT_ONCE, COPY, SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, options, tell, transfers

given = options()
SERVERS = {"bootstrap.servers": given.bootstrap_server, "log_level": 0}


def main() -> None:
    producer = Producer(
        SERVERS
        | {
            "transactional.id": given.transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 0,
        }
    )
    retry(producer.init_transactions)
    copy(producer) if given.mode == COPY else transfer(producer)


def retry(call: Callable[..., None], *arguments: object) -> None:
    """Call again after a timeout, as librdkafka requires of the application."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def copy(producer: Producer) -> None:
    consumer = Consumer(
        SERVERS
        | {
            "group.id": given.group_id,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([given.source])
    while True:
        read = [m for m in consumer.consume(AT_ONCE, timeout=0.1) if m.error() is None]
        if not read:
            continue
        producer.begin_transaction()
        try:
            for message in read:
                producer.produce(given.target, message.value(), partition=message.partition())
            offsets = consumer.position(consumer.assignment())
            retry(
                producer.send_offsets_to_transaction,
                [o for o in offsets if o.offset >= 0],
                consumer.consumer_group_metadata(),
            )
            retry(producer.commit_transaction)
            tell("committed")
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            retry(producer.abort_transaction)
            tell("aborted")
            committed = consumer.committed(consumer.assignment())
            for partition in committed:
                consumer.seek(
                    TopicPartition(partition.topic, partition.partition, max(partition.offset, 0))
                )


def transfer(producer: Producer) -> None:
    for amount, taken, to, is_kept in transfers(given.partitions):
        producer.begin_transaction()
        try:
            producer.produce(given.target, str(-amount), partition=taken)
            if is_kept:
                producer.produce(given.target, str(amount), partition=to)
                retry(producer.commit_transaction)
            else:
                producer.flush()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            is_kept = False
        if not is_kept:
            retry(producer.abort_transaction)
        tell("committed" if is_kept else "aborted")


main()
