"""Fixtures: one broker of each kind and one Spark session for all tests of the data source `k`.

BROKERS=4.3.1 runs them on Apache's broker. They are skipped if the extra is not installed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcli.spark import quick_start
from tests.support import brokers, connector_topics, spark_connector, tools
from tests.support.brokers import create_topic

pytest.importorskip("pyspark", reason="the extra spark")
pytest.importorskip("pyarrow", reason="the extra spark")

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "log.retention.ms": -1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
"""Records have timestamps of years ago, and tests of transaction timeouts wait for the cleanup."""
_names = brokers.names("s")


@pytest.fixture(scope="session", params=brokers.KINDS)
def broker(request, tmp_path_factory) -> Iterator[brokers.Broker]:
    with brokers.running(request.param, tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One session for all tests; it finds the source through `pyspark_k`.

    Spark's own source, `format("kafka")`, is available too if its jars can be downloaded.
    """
    given = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{quick_start.DIRECTORY}:{ROOT}"}
    before = {name: os.environ.get(name) for name in [*given, "SPARK_HOME"]}
    os.environ.update(given)
    os.environ.pop("SPARK_HOME", None)
    from pyspark.sql import SparkSession

    jars: tuple[str, ...] = ()
    with contextlib.suppress(RuntimeError):  # tests that need them report it
        jars = spark_connector.jars()
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.jars", ",".join(jars))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    for name, text in before.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text


@pytest.fixture(autouse=True)
def _queries_end(request):
    """Stop all queries after each test, because those of a failed test would continue to run."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


@pytest.fixture
def topic(broker) -> str:
    return create_topic(broker.address, next(_names), partitions=2)


@pytest.fixture(scope="session", params=brokers.KINDS)
def either(request, tmp_path_factory) -> Iterator[brokers.Broker]:
    """A broker for comparisons with Spark's own source."""
    if not spark_connector.jars():
        tools.require("mvn")
    directory = tmp_path_factory.mktemp("either")
    with brokers.running(request.param, directory, connector_topics.SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def topics(either) -> Iterator[dict[str, str]]:
    with connector_topics.compared(either) as names:
        yield names
