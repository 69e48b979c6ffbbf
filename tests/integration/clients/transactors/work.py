"""What a transactor does, over and over until SIGTERM or kill -9, and what it is given.

    copy       a transaction: records of --source to --target, each to the partition of its number,
               and the group's offsets
    transfer   a transaction: an amount taken in one partition of --target, and given in another;
               every fourth is aborted before it is given

A line of JSON a transaction: {"name": "committed" | "aborted"}.  A transactor that cannot go on,
since another took its place or the broker forgot it, ends; it is to be started again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from random import Random

COPY, TRANSFER = "copy", "transfer"
AT_ONCE = 20
"""Records of a copying transaction, at most."""
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
    """Amount, from, to, and whether it is to be committed."""
    random = Random()
    number = 0
    while True:
        taken, given = random.sample(range(partitions), 2)
        number += 1
        yield random.randint(1, 1000), taken, given, number % 4 != 0


def tell(name: str) -> None:
    sys.stdout.write(json.dumps({"name": name}) + "\n")
    sys.stdout.flush()
