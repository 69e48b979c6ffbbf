"""A worker with confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from work import (
    ABORTED_EACH,
    AT_ONCE,
    DELIVERY_TIMEOUT_MS,
    NONSENSE,
    PAUSE_S,
    READ,
    REQUEST_TIMEOUT_MS,
    RETRY_MAX_MS,
    RETRY_MS,
    SESSION_TIMEOUT_MS,
    WRITE,
    options,
    stopped_by_sigterm,
    tell,
)

given = options()
stopped = stopped_by_sigterm()
TRANSACTION_TIMEOUT_MS = 600_000
COMMON = {
    "bootstrap.servers": given.bootstrap_server,
    "socket.timeout.ms": REQUEST_TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": REQUEST_TIMEOUT_MS,
    "reconnect.backoff.ms": RETRY_MS,
    "reconnect.backoff.max.ms": RETRY_MAX_MS,
    "retry.backoff.ms": RETRY_MS,
    "retry.backoff.max.ms": RETRY_MAX_MS,
    "log_level": 0,
}
PRODUCER = COMMON | {
    "linger.ms": 0,
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
}
done: list[int] = []


def told(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        tell("failed", f"{message.value()!r}: {error}")
    else:
        done.append(int(message.value() or b""))


def tell_done() -> None:
    if done:
        tell("done", done)
        done.clear()


def write() -> None:
    producer = Producer(
        PRODUCER | {"enable.idempotence": True, "message.timeout.ms": DELIVERY_TIMEOUT_MS}
    )
    number = 0
    while not stopped.is_set():
        for each in range(number, number + AT_ONCE):
            producer.produce(given.topic, str(each), partition=0, on_delivery=told)
        number += AT_ONCE
        producer.poll(PAUSE_S)
        tell_done()
    producer.flush(DELIVERY_TIMEOUT_MS / 1000)
    tell_done()


def transact() -> None:
    producer = Producer(
        PRODUCER
        | {
            "transactional.id": given.transactional_id,
            # It may take longer than 60 s to notice that a coordinator is paused.
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
    )
    again(producer.init_transactions)
    number, times = 0, 0
    while not stopped.is_set():
        times += 1
        is_kept = times % ABORTED_EACH != 0
        numbers = range(number, number + AT_ONCE)
        producer.begin_transaction()
        try:
            for each in numbers:
                value = str(each) if is_kept else NONSENSE
                producer.produce(given.topic, value, partition=0)
            if not is_kept:
                # Until the partition is in the transaction: else EndTxn gets INVALID_TXN_STATE.
                producer.flush(DELIVERY_TIMEOUT_MS / 1000)
                again(producer.abort_transaction)
                continue
            again(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                tell("failed", str(error))
                return
            again(producer.abort_transaction)
            continue
        tell("done", [*numbers])
        number += AT_ONCE


def again(call: Callable[[], Any]) -> None:
    """Call until it succeeds; retry on retriable errors."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def read() -> None:
    consumer = Consumer(
        COMMON
        | {
            "group.id": given.group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": RETRY_MS,
        }
    )
    consumer.subscribe([given.topic])
    while not stopped.is_set():
        found = [m for m in consumer.consume(100, timeout=0.1) if m.error() is None]
        if not found:
            continue
        tell("done", [int(message.value()) for message in found])
        commit(consumer)
    consumer.close()


def commit(consumer: Consumer) -> None:
    """Commit offsets; retry while the coordinator is loading or has moved."""
    while not stopped.is_set():
        try:
            consumer.commit(asynchronous=False)
            return
        except KafkaException as error:
            if error.args[0].code() == KafkaError._NO_OFFSET:
                return


write() if given.mode == WRITE else read() if given.mode == READ else transact()
