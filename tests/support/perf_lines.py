"""Output of a perf test, with a 0 for each number, since numbers differ from run to run."""

from __future__ import annotations

import re
from collections import Counter

_NUMBER = re.compile(r"\d+(\.\d+)?")
_NANOSECONDS = re.compile(r"\d+\t\d+\.\d+")


def forms(out: str) -> tuple[set[str], list[str]]:
    """Return the forms of lines, and in order those that occur once: all that a program that parses
    them can rely on. The number of decimals counts, except for the e2e test's times.
    """
    lines = [
        "0\t0.0" if _NANOSECONDS.fullmatch(line) else _NUMBER.sub(_zero, line)
        for line in out.splitlines()
    ]
    times = Counter(lines)
    return set(lines), [line for line in lines if times[line] == 1]


def _zero(match: re.Match[str]) -> str:
    decimals = match[1] or ""
    return "0" + decimals[:1] + "0" * (len(decimals) - 1)
