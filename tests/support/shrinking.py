"""Shrinking of a failing swarm run: fewer workloads and faults, as long as it still fails.

    smallest = shrink(Drawn(["append", "money"], ["kill", "pause"], 4711), fails)

A smaller run draws other numbers, so it is another run: each is tried with SEEDS seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.support.checks import Anomalies

SEEDS = 5


class Drawn(NamedTuple):
    """A run of a swarm. `simulate(partial(swarm, workloads=..., faults=...), seed)` runs it, but a
    run that drew its workloads and faults itself is repeated by its seed alone.
    """

    workloads: Sequence[str]
    faults: Sequence[str]
    seed: int


def failure(error: BaseException) -> frozenset[str]:
    """Return the kind of a failure: the checks that failed, or the type of the error."""
    return error.names if isinstance(error, Anomalies) else frozenset({type(error).__name__})


def shrink(drawn: Drawn, fails: Callable[[Drawn], bool]) -> Drawn:
    """Return the smallest failing run; `drawn` itself if every smaller one passes."""
    found: Drawn | None = drawn
    while found is not None:
        drawn = found
        found = next(filter(fails, _smaller(drawn)), None)
    return drawn


def _smaller(drawn: Drawn) -> Iterator[Drawn]:
    """Yield runs with one workload or one fault less."""
    for seed in range(drawn.seed, drawn.seed + SEEDS):
        for workloads in _with_one_less(drawn.workloads):
            yield Drawn(workloads, drawn.faults, seed)
        for faults in _with_one_less(drawn.faults):
            yield Drawn(drawn.workloads, faults, seed)


def _with_one_less(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names without one of them; nothing if there is only one."""
    if len(names) > 1:
        yield from ([*names[:i], *names[i + 1 :]] for i in range(len(names)))
