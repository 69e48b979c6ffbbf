"""Aims of figures, and the reduction of samples to lines of the table. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Sample = Mapping[str, float]
"""Figures of one measurement of a row, by name."""


@dataclass(frozen=True)
class Aim:
    """A bound on our figure: absolute, or a multiple of the rival's figure or of another figure."""

    bound: float
    at_most: bool = False
    times: bool = False
    of: str = ""
    """Name of that other figure, of the same row and broker."""

    def met(self, ours: float, rival: float | None) -> bool | None:
        """Return whether the aim is met; None if there is no rival's figure to compare with.

        With `of`, `rival` is that other figure.
        """
        if self.times and not rival:
            return None
        value = ours / rival if self.times and rival else ours
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return f"{sign} {shown(self.bound)}{'x' if self.times else ''} {self.of}".rstrip()


def at_least(bound: float) -> Aim:
    return Aim(bound)


def at_most(bound: float) -> Aim:
    return Aim(bound, at_most=True)


def at_least_times(bound: float) -> Aim:
    return Aim(bound, times=True)


def at_least_times_of(of: str, bound: float) -> Aim:
    return Aim(bound, times=True, of=of)


def at_most_times(bound: float) -> Aim:
    return Aim(bound, at_most=True, times=True)


class Line(NamedTuple):
    row: str
    figure: str
    ours: float
    rival: float | None
    aim: Aim | None
    is_short: bool
    compiled: float | None = None
    is_short_compiled: bool = False
    elder: float | None = None
    """Figure of the second rival, if there is one."""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.rival if self.rival else None

    @property
    def ratio_elder(self) -> float | None:
        return self.ours / self.elder if self.elder else None

    @property
    def ratio_compiled(self) -> float | None:
        return self.compiled / self.rival if self.rival and self.compiled is not None else None


def lines(
    row: str,
    aims: Mapping[str, Aim | None],
    ours: Sequence[Sample],
    rival: Sequence[Sample] = (),
    compiled: Sequence[Sample] = (),
    elder: Sequence[Sample] = (),
) -> list[Line]:
    """Return one line for each figure of the row, each the median over its rounds.

    Rivals may lack some figures. With two rivals, a relative aim is met if it is met against both.
    """

    def is_short(samples: Sequence[Sample], aim: Aim | None, *theirs: float | None) -> bool:
        if aim is None or not samples:
            return False
        held_to = (median(samples, aim.of),) if aim.of else theirs
        return any(aim.met(median(samples, figure), each) is False for each in held_to)

    def of_rival(samples: Sequence[Sample], figure: str) -> float | None:
        return median(samples, figure) if samples and figure in samples[0] else None

    found = []
    for figure, aim in aims.items():
        theirs, elders = of_rival(rival, figure), of_rival(elder, figure)
        found.append(
            Line(
                row,
                figure,
                median(ours, figure),
                theirs,
                aim,
                is_short(ours, aim, theirs, elders),
                median(compiled, figure) if compiled else None,
                is_short(compiled, aim, theirs),
                elders,
            )
        )
    return found


def median(samples: Sequence[Sample], figure: str) -> float:
    return statistics.median(sample[figure] for sample in samples)


def shown(value: float | None) -> str:
    """Format with three significant digits, without an exponent: 2,521; 78.4; 0.38."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 or not value else f"{value:.5f}"
