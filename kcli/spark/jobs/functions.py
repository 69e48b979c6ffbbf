"""Functions of one's own that jobs are given: MODULE:FUNCTION, or FILE.py:FUNCTION."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcli.options import Refused, refuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def named(option: str, text: str) -> tuple[str, str]:
    """The module or file, and the function; what is no such thing is refused."""
    module, _, function = text.rpartition(":")
    if not module or not function.isidentifier():
        refuse(
            f"{option} must be MODULE:FUNCTION or FILE.py:FUNCTION, such as clean.py:errors, not"
            f" '{text}'"
        )
    if module.endswith(".py") and not os.path.isfile(module):
        raise Refused(f"{option}: the file {module} does not exist")
    return module, function


def function(spark: SparkSession, option: str, text: str) -> Callable[[DataFrame], DataFrame]:
    """What takes a frame and gives another.  Its file goes to the executors; a module has to be
    there, as --py-files brings it."""
    name, attribute = named(option, text)
    if name.endswith(".py"):
        file = Path(name).resolve()
        spark.sparkContext.addPyFile(str(file))
        sys.path.insert(0, str(file.parent))
        name = file.stem
    else:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise Refused(f"{option} {text}: {error}") from error

    def applied(frame: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame

        given = found(frame)
        if not isinstance(given, DataFrame):
            raise Refused(f"{option} {text} returned {type(given).__name__}, not a DataFrame")
        return given

    return applied
