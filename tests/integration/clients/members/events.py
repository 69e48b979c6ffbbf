"""Events that a group member prints, one line of JSON each, as Apache's VerifiableConsumer does.

    partitions_assigned, partitions_revoked     {"partitions": [{"topic", "partition"}]}
    record_data                                 {"topic", "partition", "offset", "value"}
    shutdown_complete

Each member program takes VerifiableConsumer's options, commits the records that it has printed
after each poll, and leaves its group on SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Any


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-server", "topic", "group-id"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("group-instance-id", "assignment-strategy"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--session-timeout", type=int, default=30_000)
    parser.add_argument("--group-protocol", default="classic")
    return parser.parse_args()


def tell(name: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"name": name} | fields) + "\n")
    sys.stdout.flush()


def tell_partitions(name: str, partitions: Iterable[Any]) -> None:
    """Print an event with objects that have a topic and a partition."""
    named = [{"topic": p.topic, "partition": p.partition} for p in partitions]
    tell(name, partitions=named)


def tell_record(topic: str, partition: int, offset: int, value: bytes) -> None:
    tell("record_data", topic=topic, partition=partition, offset=offset, value=value.decode())


def stopped_by_sigterm() -> threading.Event:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    return stopped
