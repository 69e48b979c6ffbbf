"""Print lines of a web server's access log, as JSON, 100 to 140 per minute; always the same lines.

    python lines.py 05:58 06:03                     lines written from 05:58 to 06:03
    python lines.py 07:00 07:02 --late 05:59        also late lines of a server that was cut off

    1758779880233<TAB>{"at":"2025-09-25T05:58:00.233Z","host":"10.0.0.32", ...

Each line starts with the time at which it was written, in ms since 1970.  Some lines are truncated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

DAY = datetime(2025, 9, 25, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PATHS = ("/", "/cart", "/login", "/orders", "/search")
STATUSES = (200, 200, 200, 200, 200, 200, 304, 404, 500)


def minute(text: str) -> datetime:
    hour, minute = text.split(":")
    return DAY + timedelta(hours=int(hour), minutes=int(minute))


def requests(begin: datetime) -> Iterator[tuple[datetime, str]]:
    """Yield the time and the line of each request in a minute."""
    random = Random(begin.isoformat())
    for at_ms in sorted(random.sample(range(60_000), random.randint(100, 140))):
        at = begin + timedelta(milliseconds=at_ms)
        fields = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "host": f"10.0.0.{random.randint(1, 40)}",
            "path": random.choice(PATHS),
            "status": random.choice(STATUSES),
        }
        line = json.dumps(fields, separators=(",", ":"))
        yield at, line if random.random() < 0.995 else line[: len(line) // 2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=minute)
    parser.add_argument("last", type=minute)
    parser.add_argument("--late", type=minute, help="also print late lines of this minute")
    given = parser.parse_args()
    begin = given.first
    while begin <= given.last:
        for at, line in requests(begin):
            print(f"{at.timestamp() * 1000:.0f}\t{line}")
        begin += MINUTE
    if given.late:
        for _, line in list(requests(given.late))[::10]:
            print(f"{begin.timestamp() * 1000:.0f}\t{line}")


if __name__ == "__main__":
    main()
