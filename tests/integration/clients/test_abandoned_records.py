"""A record that librdkafka gives up when it aborts a transaction, though the broker has it.

BROKERS=4.3.1 pytest tests/integration/clients/test_abandoned_records.py     what Apache's does
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.integration.clients.transacting import read_by_confluent
from tests.support import brokers

TOPIC = "abandoned"
REQUEST_TIMEOUT_S = 1.0
PATIENCE_S = 30


def test_the_next_transaction_s_record_is_not_taken_for_it(kind, tmp_path):
    """librdkafka uses its sequence again. Apache's broker commits without the record."""
    with brokers.running(kind, tmp_path) as broker:
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
        again(producer.init_transactions)
        producer.begin_transaction()
        producer.produce(TOPIC, "before", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        abandon(producer, "abandoned", broker.process.pid)
        refused = 0
        while not is_committed(producer, "after"):
            refused += 1
            assert refused < 3
        found = read_by_confluent(broker.address, TOPIC, "read_committed")
        assert (refused, found) == ((1, ["after"]) if kind == brokers.OURS else (0, []))
        assert "abandoned" in read_by_confluent(broker.address, TOPIC, "read_uncommitted")


def abandon(producer: Producer, value: str, pid: int) -> None:
    """Abort the transaction while the broker `pid` is paused and has a request with `value`."""
    is_given_up = threading.Event()

    def delivered(error: KafkaError | None, _: object) -> None:
        assert error is not None
        is_given_up.set()

    aborting = threading.Thread(target=again, args=[producer.abort_transaction], daemon=True)
    os.kill(pid, signal.SIGSTOP)
    try:
        producer.produce(TOPIC, value, partition=0, on_delivery=delivered)
        producer.flush(3 * REQUEST_TIMEOUT_S)  # until its request has timed out
        aborting.start()
        assert is_given_up.wait(PATIENCE_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    aborting.join(PATIENCE_S)
    assert not aborting.is_alive()


def is_committed(producer: Producer, value: str) -> bool:
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
    """Call until it succeeds; retry on retriable errors for a while."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call(PATIENCE_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
