"""Spark's Python workers, as far as they are ours to make quick."""

from __future__ import annotations

import functools
import gc


@functools.cache
def keep_modules() -> None:
    """Once in a worker, when what a task needs is imported.

    After each task Spark collects all garbage (pyspark/daemon.py), which looks at every object of
    every module: 40 ms a task, a sixth of the processor time that reads in micro-batches take.
    """
    gc.freeze()
