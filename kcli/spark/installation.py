"""Finds the scripts of this environment's PySpark, and the environment variables they need.

It does not import PySpark, which takes longer than most commands.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from kcli.command.options import Refused
from kcli.spark import quick_start
from kcli.spark.submission import environment

QUIET_JAVA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs", "java")
EXTRA = "install k-kafka with the extra spark: pip install 'k-kafka[spark]'"


def script(name: str) -> tuple[str, dict[str, str]]:
    """Return the path of one of Spark's scripts, and additional environment variables. Raises
    Refused if Spark cannot run.
    """
    specs = {}
    for package in ("pyspark", "pyarrow", "numpy"):
        if (spec := importlib.util.find_spec(package)) is None:
            raise Refused(f"{package} is not installed next to k: {EXTRA}")
        specs[package] = spec
    _java()
    home = os.path.dirname(str(specs["pyspark"].origin))
    variables = environment(
        os.environ, spark_home=home, python=sys.executable, sources=_beside(home)
    )
    paths = variables.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")
    variables["PYTHONPATH"] = ":".join(
        dict.fromkeys([quick_start.DIRECTORY, *filter(None, paths.split(":"))])
    )
    return os.path.join(home, "bin", name), variables


def quiet_java() -> dict[str, str]:
    """Return variables that make Spark's scripts start a Java without warnings about how Spark
    starts it.
    """
    if os.environ.get("JAVA_HOME") == QUIET_JAVA:  # a job has started this process
        return {}
    return {"K_JAVA": _java(), "JAVA_HOME": QUIET_JAVA}


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if (path := shutil.which(java)) is None:
        raise Refused(
            f"Spark requires Java 17 or later, but {java} does not exist; install Java, or set"
            " JAVA_HOME"
        )
    return path


def sources() -> str | None:
    """Return this package's directory, unless a Python with PySpark finds it by itself."""
    spec = importlib.util.find_spec("pyspark")
    return None if spec is None else _beside(os.path.dirname(str(spec.origin)))


def _beside(spark_home: str) -> str | None:
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return None if ours == os.path.dirname(spark_home) else ours
