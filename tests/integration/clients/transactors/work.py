"""The work of a transactor, repeated until SIGTERM or kill -9, and its options.

    copy        per transaction: records of --source to --target, each to the partition with
                the same number, and the group's offsets
    transfer    per transaction: an amount withdrawn in one partition of --target and deposited
                in another; every fourth is aborted before the deposit

Prints a line of JSON per transaction: {"name": "committed" | "aborted"}. A transactor that cannot
continue, because another one took over its id or the broker has forgotten it, ends and must be
restarted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from random import Random

COPY, TRANSFER = "copy", "transfer"
AT_ONCE = 20
"""Maximum number of records in a transaction of `copy`."""
SESSION_TIMEOUT_MS = 3000
TRANSACTION_TIMEOUT_MS = 20_000


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=[COPY, TRANSFER])
    for name in ("bootstrap-server", "source", "target", "group-id", "transactional-id"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--partitions", type=int)
    return parser.parse_args()


def transfers(partitions: int) -> Iterator[tuple[int, int, int, bool]]:
    """Yield amount, source partition, target partition, and whether to commit."""
    random = Random()
    number = 0
    while True:
        taken, given = random.sample(range(partitions), 2)
        number += 1
        yield random.randint(1, 1000), taken, given, number % 4 != 0


def tell(name: str) -> None:
    sys.stdout.write(json.dumps({"name": name}) + "\n")
    sys.stdout.flush()
