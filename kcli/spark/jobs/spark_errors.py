"""Spark's errors in one line.

Spark's errors are pages: a class in brackets, the plan, Java's stack and, somewhere in it, that of
Python. A person needs the innermost reason, so each is converted to a Refused with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import traceback
from collections.abc import Iterator

from kcli.command.options import Refused

_START_AGAIN = "killed, perhaps for lack of memory, or crashed; start the job again"
SPARK_ENDED = f"Spark's driver, a Java process, has ended: it was {_START_AGAIN}"
WORKER_ENDED = f"a Python worker of Spark has ended in the middle of a task: it was {_START_AGAIN}"
PEER_ENDED = (
    "a process that Spark was connected to, such as a Python worker, has ended: it was"
    f" {_START_AGAIN}"
)
_CRASHED = "Python worker exited unexpectedly"
_HUNG_UP = (
    "Broken pipe",
    "Connection reset",
    "Connection reset by peer",
    "Socket closed",
    "java.io.EOFException",
)
"""Java's texts for a peer that has ended."""

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers that print a query's error in JSON, on standard error."""
_PYTHON_ERROR = re.compile(r"((?:\w+\.)*)([A-Z]\w*): (.+)")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)")
_QUERY = re.compile(r"^Query .*?\[id = .*?\] terminated with exception: ")
_CLASS = re.compile(r"^\[[A-Z_.0-9]+\] ")
_STATE = re.compile(r" SQLSTATE: \w{5}\b.*$")
_OURS = ("kserver.", "kcli.")
"""The packages whose errors are sentences, printed without their class."""


@contextlib.contextmanager
def refusing_spark_errors() -> Iterator[None]:
    """Raise Refused in place of Spark's errors, and silence Spark's own loggers of them."""
    from pyspark.logger import PySparkLogger

    for name in LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    if not os.environ.get("K_DEBUG"):
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    try:
        yield
    except Exception as error:
        if (text := _error_text(error)) is None:
            raise
        raise Refused(innermost_reason(text)) from error


def _error_text(error: Exception) -> str | None:
    """Return the text of an error of Spark's; None for any other."""
    module = type(error).__module__
    if module.startswith("pyspark."):
        return str(error)
    if isinstance(error, OSError):
        # Py4J does not wrap some errors of its socket.
        frames = traceback.walk_tb(error.__traceback__)
        names = [frame.f_globals.get("__name__", "") for frame, _ in frames]
        return SPARK_ENDED if any(name.startswith("py4j.") for name in names) else None
    if not module.startswith("py4j."):
        return None
    java = getattr(error, "java_exception", None)
    if java is not None:
        return str(java.toString())
    return SPARK_ENDED if type(error).__name__ == "Py4JNetworkError" else str(error)


def innermost_reason(text: str) -> str:
    """Return the most informative line: that of Python's own error, else the innermost cause, else
    the first line.
    """
    if _CRASHED in text:
        return WORKER_ENDED
    lines = [line for line in text.splitlines() if line.strip()]
    python = _of_traceback(lines)
    if python is not None:
        return python
    causes = [match[1] for line in lines if (match := _CAUSE.match(line.strip()))]
    first = causes[-1] if causes else lines[0] if lines else "Spark gives no reason"
    for beside in (_CLASS, _QUERY, _CLASS, _STATE):
        first = beside.sub("", first)
    first = first.strip()
    return f"{PEER_ENDED} ({first})" if first in _HUNG_UP else first


def _of_traceback(lines: list[str]) -> str | None:
    """Return the end of the last Python traceback: the error that resulted from the others."""
    begins = [n for n, line in enumerate(lines) if "Traceback (most recent call" in line]
    for begin in begins[-1:]:
        for line in lines[begin + 1 :]:
            if match := _PYTHON_ERROR.match(line):
                package, kind, reason = match.groups()
                return reason if package.startswith(_OURS) else f"{kind}: {reason}"
    return None
