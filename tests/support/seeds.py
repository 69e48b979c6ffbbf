"""Seeds of simulations: some that every run uses, and some that are new in each run.

The run's first lines show the first new seed; FIRST_SEED=4711 repeats it. CI sets FIRST_SEED, so
that a change does not fail by chance. CI's new seeds are those of `fresh`: their tests are named by
number alone. So a failed test runs again with other seeds, and is listed under FLAKY with the seed
that failed.
"""

from __future__ import annotations

import os
from random import SystemRandom

# Through the environment, so that all processes of a run collect the same tests.
FIRST_SEED = int(os.environ.setdefault("FIRST_SEED", str(SystemRandom().randrange(10**6, 10**9))))


def seeds(same: int, fresh: int = 2) -> list[int]:
    """Return this many seeds from 0 on, and this many that are new in each run."""
    return [*range(same), *range(FIRST_SEED, FIRST_SEED + fresh)]


def chunks(same: int, fresh: int, size: int) -> list[range]:
    """Return the same seeds, in ranges of `size`."""
    ends = ((0, same), (FIRST_SEED, FIRST_SEED + fresh))
    return [range(first, first + size) for begin, end in ends for first in range(begin, end, size)]


FRESH_SEED = int(os.environ.setdefault("FRESH_SEED", str(SystemRandom().randrange(10**9, 10**12))))


def fresh(number: int, size: int) -> range:
    """Return the seeds of test `number`, new in each run; FRESH_SEED=4711 repeats them."""
    return range(FRESH_SEED + number * size, FRESH_SEED + (number + 1) * size)
