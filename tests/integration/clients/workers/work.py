"""The work of a worker until SIGTERM, its options and its output; each worker uses one client
library.

    write       numbers from 0 on to partition 0 of --topic, each acknowledged with acks=all
    transact    the same, several per transaction; every fourth transaction is aborted and repeated
    read        as the only member of --group: the records of --topic, committed after each poll

Prints lines of JSON: {"done": [...]} has the numbers that were acknowledged, committed or read, in
that order; {"failed": TEXT} has the reason why the worker cannot continue. Retriable operations are
retried soon and for long: a request times out after REQUEST_TIMEOUT_MS, a record never before the
worker ends.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence

WRITE, TRANSACT, READ = "write", "transact", "read"
REQUEST_TIMEOUT_MS = 3_000
RETRY_MS, RETRY_MAX_MS = 50, 200
DELIVERY_TIMEOUT_MS = 120_000
SESSION_TIMEOUT_MS = 45_000
PAUSE_S = 0.01
AT_ONCE = 10
"""Numbers written between two pauses, and per transaction."""
ABORTED_EACH = 4
NONSENSE = b"-1"
"""Value of records in aborted transactions."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=[WRITE, TRANSACT, READ])
    for name in ("bootstrap-server", "topic", "group-id", "transactional-id"):
        parser.add_argument(f"--{name}")
    return parser.parse_args()


def stopped_by_sigterm() -> threading.Event:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    return stopped


def tell(name: str, what: Sequence[int] | str) -> None:
    sys.stdout.write(json.dumps({name: what}) + "\n")
    sys.stdout.flush()
