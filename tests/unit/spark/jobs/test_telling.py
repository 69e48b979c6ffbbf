"""The one line of pages of Spark's."""

from __future__ import annotations

import pytest

from kcli.options import Refused
from kcli.spark.jobs.telling import telling, told

SOURCE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance latestOffset: \
Traceback (most recent call last):
  File "/k/kcli/spark/stream.py", line 99, in latestOffset
    raise DataLost(", ".join(lost))
kcli.spark.planning.DataLost: topic t was made anew
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: landed [id = 1, runId = 2]
"""
CHAINED = """Job aborted: Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in f
ValueError: no x: give one
\tat org.apache.spark.Foo: bar
"""
JAVA = """org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.A.b(C.scala:1)
Caused by: org.apache.spark.SparkException: Task failed.
\tat org.apache.spark.A.b(C.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/x
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SOURCE, "topic t was made anew"),
        (CHAINED, "ValueError: no x: give one"),
        (JAVA, "No space left on device"),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/a. SQLSTATE: 42K03",
            "Path does not exist: file:/a.",
        ),
        (
            "[STREAM_FAILED] Query late [id = 1, runId = 2] terminated with exception: "
            "[A_B] Out of memory. SQLSTATE: XXKST SQLSTATE: XXKST",
            "Out of memory.",
        ),
        ("", "Spark gives no reason"),
    ],
)
def test_the_line_that_says_most(text, line):
    assert telling(text) == line


def test_an_error_that_is_not_sparks_stays():
    with pytest.raises(KeyError), told():
        raise KeyError("x")


def test_an_error_of_sparks_is_refused_in_its_line():
    errors = pytest.importorskip("pyspark.errors")
    with pytest.raises(Refused, match=r"^Path does not exist$"), told():
        raise errors.AnalysisException("[PATH_NOT_FOUND] Path does not exist SQLSTATE: 42K03")
