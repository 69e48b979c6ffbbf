"""Settings of Spark's Python workers for speed."""

from __future__ import annotations

import functools
import gc


@functools.cache
def keep_modules() -> None:
    """Exempt imported modules from garbage collection; to be called once a task's imports are done.

    After each task Spark collects all garbage (pyspark/daemon.py), which visits every object of
    every module: 40 ms a task, a sixth of the processor time of reads in micro-batches.
    """
    gc.freeze()
