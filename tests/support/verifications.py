"""`k replica-verification` and Apache's script, which run until they are stopped.

with verifying(OURS, "--broker-list", address, *QUICK) as (process, lines):
    told = until(lines, "max lag is 0")
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.side_by_side import NEW
from tests.support.tools import K

DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ")
QUICK = ("--report-interval-ms", "100", "--max-wait-ms", "100")
OURS = [*K, "replica-verification"]
MAX_LINES = 300
"""Half a minute of lines, with QUICK."""


def apache_s(version: str = NEW) -> list[str]:
    """Return Apache's command, of a release that the brokers support: 4.3.1 does not work
    with 3.9.
    """
    script = "kafka-replica-verification.sh"
    return [sys.executable, apache_kafka.__file__, "tool", version, script]


@contextmanager
def verifying(
    command: Sequence[str], *words: str
) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """Yield the process, and its lines without their times; stop the process with the context."""
    environment = os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START}
    with subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, map(_undated, process.stdout)
        finally:
            process.terminate()


def _undated(line: str) -> str:
    date = DATE.match(line)
    assert date is not None, line
    return line[date.end() :].rstrip("\n")


def until(lines: Iterator[str], ends: str) -> list[str]:
    """Return the lines up to one that contains `ends`."""
    told = []
    for line in itertools.islice(lines, MAX_LINES):
        told.append(line)
        if ends in line:
            return told
    raise AssertionError(f"not told: {ends}, but: {told}")
