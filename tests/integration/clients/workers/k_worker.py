"""A worker with kcli.client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

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

from kcli.client import Consumer, KafkaError, Producer
from kcli.client.errors import ClientError, TimedOut, TransactionAborted, TransactionFailed

given = options()
stopped = stopped_by_sigterm()
COMMON = {
    "bootstrap.servers": given.bootstrap_server,
    "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
    "reconnect.backoff.ms": str(RETRY_MS),
    "reconnect.backoff.max.ms": str(RETRY_MAX_MS),
    "retry.backoff.ms": str(RETRY_MS),
    "retry.backoff.max.ms": str(RETRY_MAX_MS),
    "socket.connection.setup.timeout.ms": str(REQUEST_TIMEOUT_MS),
}


async def write() -> None:
    done: list[int] = []

    def tell_done() -> None:
        if done:
            tell("done", done)
            done.clear()

    def told(number: int, outcome: asyncio.Future[Any]) -> None:
        if error := outcome.exception():
            tell("failed", f"{number}: {error}")
        else:
            done.append(number)

    settings = {"enable.idempotence": "true", "delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS)}
    async with Producer(COMMON | settings) as producer:
        number = 0
        while not stopped.is_set():
            for each in range(number, number + AT_ONCE):
                sent = await producer.send(given.topic, str(each).encode(), partition=0)
                sent.add_done_callback(lambda outcome, each=each: told(each, outcome))
            number += AT_ONCE
            await asyncio.sleep(PAUSE_S)
            tell_done()
        await producer.flush()
    tell_done()


async def transact() -> None:
    settings = {"transactional.id": given.transactional_id}
    async with Producer(COMMON | settings) as producer:
        await again(producer.init_transactions)
        number, times = 0, 0
        while not stopped.is_set():
            times += 1
            is_kept = times % ABORTED_EACH != 0
            numbers = range(number, number + AT_ONCE)
            await producer.begin_transaction()
            try:
                for each in numbers:
                    value = str(each).encode() if is_kept else NONSENSE
                    sent = await producer.send(given.topic, value, partition=0)
                    sent.add_done_callback(look_at)
                if not is_kept:
                    await producer.flush()
                    await again(producer.abort_transaction)
                    continue
                await again(producer.commit_transaction)
            except TransactionFailed as error:
                if not error.abortable:
                    tell("failed", str(error))
                    return
                await again(producer.abort_transaction)
                continue
            tell("done", [*numbers])
            number += AT_ONCE


def look_at(outcome: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a send; the failure is reported by its transaction."""
    error = outcome.exception()
    assert error is None or isinstance(error, KafkaError | ClientError | TransactionAborted)


async def again(call: Callable[[], Awaitable[None]]) -> None:
    """Call until it succeeds; retry after a timeout."""
    while True:
        try:
            await call()
            return
        except TimedOut:
            pass


async def read() -> None:
    settings = {
        "group.id": given.group_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "fetch.max.wait.ms": "100",
    }
    async with Consumer(COMMON | settings) as consumer:
        consumer.subscribe([given.topic])
        while not stopped.is_set():
            found = await consumer.poll(100)
            if not found:
                continue
            tell("done", [int(record.value) for record in found])
            while not stopped.is_set():
                try:
                    await consumer.commit()
                    break
                except (KafkaError, TimedOut):
                    await asyncio.sleep(RETRY_MS / 1000)


asyncio.run(write() if given.mode == WRITE else read() if given.mode == READ else transact())
