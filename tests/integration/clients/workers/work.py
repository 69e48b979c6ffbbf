"""What a worker does until SIGTERM, and what it is given and tells: each a client in one library.

    write      the numbers from 0 on to partition 0 of --topic, each acknowledged by all in sync
    transact   the same, some of them in each transaction; every fourth is aborted and done again
    read       as the only member of --group: what is in --topic, committed after each poll

Lines of JSON: {"done": [...]} has the numbers that were acknowledged, committed or read, in that
order; {"failed": TEXT} says why it cannot go on.  What may be tried again is tried again, soon and
for long: a request is given up after REQUEST_TIMEOUT_MS, a record never before the worker ends.
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
"""Numbers written between two pauses, and in a transaction."""
ABORTED_EACH = 4
NONSENSE = b"-1"
"""The value of what is aborted."""


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
