"""A process that uses one Python client, on a topic of one partition.

    python -m tests.bench.python CLIENT produce ADDRESS TOPIC SHAPE SECONDS
    python -m tests.bench.python CLIENT consume ADDRESS TOPIC SHAPE MESSAGES

Producing ends with the last acknowledgement, or with acks=0 when the broker has all messages; no
callbacks are set. Consuming reads every field of every message, and is timed from the first message
to the last, which excludes the connection to the broker. Prints one line of JSON: messages,
seconds, and the CPU seconds of the whole process.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

from tests.bench.servers import end_offset
from tests.bench.shapes import SHAPES

ARRIVED_S = 30


def main(client: str, mode: str, address: str, topic: str, shape: str, amount: str) -> None:
    module = importlib.import_module(f"tests.bench.python.with_{client}")
    if mode == "produce":
        messages, seconds = module.produce(address, topic, SHAPES[shape], float(amount))
        if SHAPES[shape].acks == "0":
            seconds += arrival_s(address, topic, messages)
    else:
        messages, seconds = module.consume(address, topic, int(amount))
    print(json.dumps({"messages": messages, "seconds": seconds, "cpu_s": time.process_time()}))


def arrival_s(address: str, topic: str, messages: int) -> float:
    """Return the seconds until the broker has all messages."""
    began = time.perf_counter()
    while end_offset(address, topic) < messages:
        if time.perf_counter() - began > ARRIVED_S:
            sys.exit(f"{topic} did not get all {messages} messages")
        time.sleep(0.001)
    return time.perf_counter() - began


main(*sys.argv[1:])
