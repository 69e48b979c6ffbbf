"""What a perf test prints, with a 0 for each digit that may differ from run to run."""

from __future__ import annotations

import re
from itertools import groupby

_NUMBER = re.compile(r"\d+(\.\d+)?")
_NANOSECONDS = re.compile(r"\d+\t\d+\.\d+")


def forms(out: str) -> list[str]:
    """The lines' forms, each as often as it stands in a row once: all that a program which reads
    them can rely on.  The digits after a point count; the e2e test's times have as many as it
    takes.
    """
    lines = (
        "0\t0.0" if _NANOSECONDS.fullmatch(line) else _NUMBER.sub(_zero, line)
        for line in out.splitlines()
    )
    return [form for form, _ in groupby(lines)]


def _zero(match: re.Match[str]) -> str:
    decimals = match[1] or ""
    return "0" + decimals[:1] + "0" * (len(decimals) - 1)
