"""A producer of this project's client that sends a record every few milliseconds and prints each
acknowledgement.

    python -m tests.bench.python.failover ADDRESSES TOPIC

Prints for each record when it was sent and when its acknowledgement (acks=all) arrived, in seconds
of the machine's monotonic clock. Its retry intervals are shorter than the defaults.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from kcli.client import Producer

SETTINGS = {
    "enable.idempotence": "true",
    "linger.ms": "0",
    "request.timeout.ms": "10000",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "100",
}
PAUSE_S = 0.005


async def main(addresses: str, topic: str) -> None:
    async with Producer({"bootstrap.servers": addresses} | SETTINGS) as producer:
        while True:
            sent = time.monotonic()

            def told(outcome: asyncio.Future[Any], sent: float = sent) -> None:
                outcome.result()
                print(sent, time.monotonic(), flush=True)

            (await producer.send(topic, b"v" * 200)).add_done_callback(told)
            await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
