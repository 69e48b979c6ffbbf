"""Runs first in each Python of Spark, because this directory is on its PYTHONPATH.

Spark's workers import PySpark from a zip, which has no compiled files: each worker compiles it
again, 0.7 s of a processor, several times before the first row. Here the installed and compiled
PySpark, which is the same, is put before it.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_here = os.path.dirname(__file__)
# HOME/python/lib/pyspark.zip, where HOME is the installed package.
_homes = tuple(os.path.join(path, "pyspark", "python", "lib", "") for path in sys.path)
_zips = [path for path in sys.path if path.startswith(_homes)]
sys.path[:] = [path for path in sys.path if path not in _zips] + _zips

# Run the sitecustomize that this one hides.
_others = [path for path in sys.path if path != _here]
if (_next := PathFinder.find_spec("sitecustomize", _others)) is not None and _next.loader:
    _next.loader.exec_module(module_from_spec(_next))
