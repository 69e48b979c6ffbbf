"""A record that librdkafka gives up when it aborts a transaction, though the broker may have it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support import brokers

TOPIC = "abandoned"
REQUEST_TIMEOUT_S = 1.0
PATIENCE_S = 30


def test_the_next_transaction_s_record_is_not_taken_for_it(tmp_path):
    """librdkafka uses its sequence again. Apache's broker (4.3.1) commits without the record."""
    with brokers.running(brokers.OURS, tmp_path) as broker:
        brokers.create_topic(broker.address, TOPIC)
        producer = Producer(
            {
                "bootstrap.servers": broker.address,
                "transactional.id": "t",
                "linger.ms": 0,
                "request.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
                "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
                "log_level": 0,
            }
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(TOPIC, "before", partition=0)
        producer.flush(PATIENCE_S)
        pid = broker.process.pid
        os.kill(pid, signal.SIGSTOP)
        producer.produce(TOPIC, "abandoned", partition=0)
        producer.flush(1.5 * REQUEST_TIMEOUT_S)  # until its request has timed out
        aborting = threading.Thread(target=again, args=[producer.abort_transaction])
        aborting.start()
        aborting.join(REQUEST_TIMEOUT_S / 2)
        os.kill(pid, signal.SIGCONT)
        aborting.join(PATIENCE_S)
        assert not aborting.is_alive()
        refused = 0
        while not committed(producer, "after"):
            refused += 1
            assert refused < 3
        assert refused == 1, "the broker did not have the abandoned record"
        assert read_committed(broker.address) == [b"after"]


def committed(producer: Producer, value: str) -> bool:
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    try:
        again(producer.commit_transaction)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        again(producer.abort_transaction)
        return False
    return True


def again(call: Callable[[float], object]) -> None:
    """Call until it succeeds; retry on retriable errors."""
    while True:
        try:
            call(PATIENCE_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def read_committed(address: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return values
        values.append(message.value())
