"""Run clusters under random mixes of faults and workloads with many more seeds, in one process.

    SEEDS=50000 FIRST_SEED=10000 pytest -s tests/soak/soak_swarm.py

Prints each failing seed with the smallest run that fails in the same way, progress now and then,
and totals at the end or after Ctrl-C (SIGINT). To use several cores, start one process for each,
with different values of FIRST_SEED.
"""

from __future__ import annotations

import logging
import os
import time
from functools import partial

from tests.support.loop import simulate
from tests.support.shrinking import Drawn, failure, shrink
from tests.support.swarm import Run, swarm

SEEDS = int(os.environ.get("SEEDS", "1000"))
FIRST = int(os.environ.get("FIRST_SEED", "10000"))
SEEDS_PER_LINE = 100


class Sums:
    def __init__(self) -> None:
        self.seeds = self.faults = self.operations = 0
        self.virtual_s = 0.0
        self.failing: list[int] = []
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()

    def add(self, run: Run) -> None:
        self.virtual_s += run.virtual_s
        self.faults += run.faults
        self.operations += run.operations

    def __str__(self) -> str:
        wall_s = time.monotonic() - self._began_s
        cpu_s = time.process_time() - self._cpu_s
        return (
            f"{self.seeds} seeds, {len(self.failing)} failing {self.failing},"
            f" {self.virtual_s / 3600:.1f} virtual hours, {self.faults} faults,"
            f" {self.operations} operations acknowledged, {wall_s:.0f} s, {cpu_s:.0f} s of CPU"
        )


def failed(drawn: Drawn, kind: frozenset[str]) -> bool:
    """Return whether the run fails in the way `kind`."""
    run = partial(swarm, workloads=drawn.workloads, faults=drawn.faults)
    try:
        simulate(run, drawn.seed)
    except Exception as error:
        return not kind.isdisjoint(failure(error))
    return False


def test_whatever_breaks_everything_promised_holds() -> None:
    # pytest keeps a test's log records until the test ends, and with them all objects they refer
    # to.
    logging.disable(logging.CRITICAL)
    sums = Sums()
    try:
        for seed in range(FIRST, FIRST + SEEDS):
            drawn: list[Drawn] = []
            try:
                sums.add(simulate(partial(swarm, on_draw=drawn.append), seed))
            except Exception as error:
                sums.failing.append(seed)
                told = " ".join(str(error).split())
                print(f"seed {seed} fails: {type(error).__name__}: {told[:300]}", flush=True)
                smallest = shrink(drawn[0], partial(failed, kind=failure(error)))
                print(f"  drawn: {drawn[0]}", f"  smallest: {smallest}", sep="\n", flush=True)
            sums.seeds += 1
            if sums.seeds % SEEDS_PER_LINE == 0:
                print(sums, flush=True)
    finally:
        logging.disable(logging.NOTSET)
        print(sums, flush=True)
    assert not sums.failing
