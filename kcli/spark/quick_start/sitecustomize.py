"""Run as each Python of Spark begins, for this directory is on its PYTHONPATH.

Spark has its workers take PySpark out of a zip, where nothing is compiled: each compiles it anew,
0.7 s of a processor, several times before the first row.  The same PySpark that is installed, and
compiled, goes before it.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_here = os.path.dirname(__file__)
# HOME/python/lib/pyspark.zip, where HOME is the package that is installed.
_homes = tuple(os.path.join(path, "pyspark", "python", "lib", "") for path in sys.path)
_zips = [path for path in sys.path if path.startswith(_homes)]
sys.path[:] = [path for path in sys.path if path not in _zips] + _zips

# The one that would have been run is run.
_others = [path for path in sys.path if path != _here]
if (_next := PathFinder.find_spec("sitecustomize", _others)) is not None and _next.loader:
    _next.loader.exec_module(module_from_spec(_next))
