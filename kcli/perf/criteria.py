"""Criteria of --fail-if, and whether a run meets them.

Pure: texts and numbers in, verdicts out.

    p99>+10%                more than a tenth above the baseline
    records_per_s<-5%       more than a twentieth below it
    p99>50ms  max>1.5s      above a time; a plain number is in the metric's own unit
    records_per_s<100000    below a number
    p99>+10%,avg>20ms       any of several

A metric is the name of a field of -o; `_ms` may be left out, and p99.9 is p999_ms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CRITERION = re.compile(
    r"\s*(?P<metric>[a-z][a-z0-9_.]*)\s*(?P<side>[<>])\s*"
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>%|us|ms|s|)\s*"
)
_UNIT_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Criterion:
    """Fails a run whose metric is above (">") or below ("<") the bound: a number, or a share of the
    baseline: 0.1 for +10%.
    """

    text: str
    metric: str
    side: str
    bound: float
    is_relative: bool

    def limit(self, baseline: float) -> float:
        return baseline * (1 + self.bound) if self.is_relative else self.bound

    def finding(self, now: float, baseline: float, of: str) -> str | None:
        """Return why the run fails, or None; `baseline`, from the runs named `of`, is used for a
        relative bound.
        """
        limit = self.limit(baseline)
        if math.isnan(now):
            return f"{self.text}: {self.metric} has no value, as nothing was measured"
        if not (now > limit if self.side == ">" else now < limit):
            return None
        comparison = f"{self.text}: {self.metric} is {now:.10g} now"
        if not self.is_relative:
            return comparison
        change = f"{now / baseline - 1:+.1%} on " if baseline else ""
        return f"{comparison}, {change}the baseline of {baseline:.10g} ({of})"


def parse(text: str, metrics: Sequence[str]) -> list[Criterion]:
    """Parse criteria separated by commas. Raises ValueError with a message for the user."""
    return [_criterion(part.strip(), metrics) for part in text.split(",")]


def _criterion(text: str, metrics: Sequence[str]) -> Criterion:
    match = _CRITERION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"'{text}' is not METRIC>BOUND or METRIC<BOUND, such as p99>+10% or p99>5ms"
        )
    metric = _metric(match["metric"], metrics)
    number, sign, unit = float(match["number"]), match["sign"], match["unit"]
    if unit == "%":
        if not sign:
            raise ValueError(
                f"'{text}': use +{match['number']}% for above the baseline, -{match['number']}% "
                "for below it"
            )
        return Criterion(text, metric, match["side"], float(f"{sign}{number}") / 100, True)
    if sign:
        raise ValueError(f"'{text}': a bound with a sign is a share of the baseline, such as +10%")
    if unit and not metric.endswith("_ms"):
        raise ValueError(f"'{text}': {metric} is not a time")
    return Criterion(text, metric, match["side"], number * _UNIT_MS.get(unit, 1.0), False)


def _metric(name: str, metrics: Sequence[str]) -> str:
    plain = name.replace(".", "")
    for metric in metrics:
        if plain in (metric, metric.removesuffix("_ms")):
            return metric
    names = ", ".join(metric.removesuffix("_ms") for metric in metrics)
    raise ValueError(f"unknown metric '{name}'; metrics are {names}")


def findings(
    criteria: Sequence[Criterion],
    now: Mapping[str, float],
    baseline: Mapping[str, float],
    of: str = "",
) -> list[str]:
    """Return why a run fails. A relative criterion on a metric without a baseline finds nothing;
    `of` is the origin of the baseline in messages.
    """
    result = []
    for criterion in criteria:
        if criterion.is_relative and criterion.metric not in baseline:
            continue
        before = baseline.get(criterion.metric, math.nan)
        why = criterion.finding(now.get(criterion.metric, math.nan), before, of)
        if why is not None:
            result.append(why)
    return result
