"""The one line of pages of Spark's."""

from __future__ import annotations

import socket

import pytest

from kcli.command.options import Refused
from kcli.spark.jobs.spark_errors import (
    PEER_ENDED,
    SPARK_ENDED,
    WORKER_ENDED,
    innermost_reason,
    refusing_spark_errors,
)

SOURCE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance latestOffset: \
Traceback (most recent call last):
  File "/k/kcli/spark/stream.py", line 99, in latestOffset
    raise DataLost(", ".join(lost))
kcli.spark.offset_ranges.DataLost: topic t was made anew
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

CRASHED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted \
due to stage failure: Task 1 in stage 0.0 failed 1 times, most recent failure: Lost task 1.0 in \
stage 0.0 (TID 1) (host executor driver): org.apache.spark.SparkException: Python worker exited \
unexpectedly (crashed). Consider setting 'spark.python.worker.faulthandler.enabled'.
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.x(PythonRunner.scala:1136)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""
PIPE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Broken pipe \
SQLSTATE: XXKST
=== Streaming Query ===
Identifier: landed [id = 1, runId = 2]
"""
TRACED = """Job aborted: Python worker exited unexpectedly (crashed):
Traceback (most recent call last):
  File "worker.py", line 3, in f
BrokenPipeError: [Errno 32] Broken pipe
"""
RESET = """org.apache.spark.SparkException: Job aborted.
Caused by: java.net.SocketException: Connection reset by peer
\tat java.base/x
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CRASHED, WORKER_ENDED),
        (TRACED, WORKER_ENDED),
        (PIPE, f"{PEER_ENDED} (Broken pipe)"),
        (RESET, f"{PEER_ENDED} (Connection reset by peer)"),
        ("Job aborted\nCaused by: java.io.EOFException", f"{PEER_ENDED} (java.io.EOFException)"),
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
    assert innermost_reason(text) == line


def test_an_error_that_is_not_sparks_stays():
    with pytest.raises(KeyError), refusing_spark_errors():
        raise KeyError("x")


def test_an_error_of_sparks_is_refused_in_its_line():
    errors = pytest.importorskip("pyspark.errors")
    with pytest.raises(Refused, match=r"^Path does not exist$"), refusing_spark_errors():
        raise errors.AnalysisException("[PATH_NOT_FOUND] Path does not exist SQLSTATE: 42K03")


def test_a_driver_that_has_ended_is_named_and_nothing_else_is_logged(caplog):
    gateways = pytest.importorskip("py4j.clientserver")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no one listens
        parameters = gateways.JavaParameters(port=taken.getsockname()[1])
        gateway = gateways.ClientServer(parameters, gateways.PythonParameters(port=0))
        try:
            with pytest.raises(Refused) as caught, refusing_spark_errors():
                gateway.jvm.java.lang.System.currentTimeMillis()
        finally:
            gateway.shutdown_callback_server()
    assert str(caught.value) == SPARK_ENDED
    assert caplog.records == []


def test_a_connection_of_a_jobs_own_that_is_refused_stays():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError), refusing_spark_errors():
            socket.create_connection(taken.getsockname())
