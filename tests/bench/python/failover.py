"""A producer of this project's client that sends a record every few milliseconds and tells of each
that is acknowledged by all in sync.

    python -m tests.bench.python.failover ADDRESSES TOPIC

A line a record, when it was sent and when that was known to be acknowledged: seconds of the
machine's monotonic clock.  It is told to try again soon, which its defaults are not.
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
