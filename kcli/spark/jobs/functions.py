"""User functions of jobs: MODULE:FUNCTION, or FILE.py:FUNCTION."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcli.command.options import Refused, refuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def parse_name(option: str, text: str) -> tuple[str, str]:
    """Return the module or file, and the function. Refuses an invalid text."""
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
    """Return a function from frame to frame. Its file is sent to the executors; a module has to
    exist there, for example by --py-files.
    """
    name, attribute = parse_name(option, text)
    if name.endswith(".py"):
        file = Path(name).resolve()
        spark.sparkContext.addPyFile(str(file))
        sys.path.insert(0, str(file.parent))
        name = file.stem
    else:
        sys.path.insert(0, os.getcwd())
    try:
        user_function: Any = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise Refused(f"{option} {text}: {error}") from error

    def applied(frame: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame

        result = user_function(frame)
        if not isinstance(result, DataFrame):
            raise Refused(f"{option} {text} returned {type(result).__name__}, not a DataFrame")
        return result

    return applied
