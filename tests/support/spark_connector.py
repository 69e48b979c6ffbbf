"""Spark's own Kafka source and sink, format("kafka"), to compare with, and its Avro support, from
Maven Central.

Their jars lie in $XDG_CACHE_HOME/spark-jars, else ~/.cache/spark-jars, next to Apache's brokers.
"""

from __future__ import annotations

import functools

from tests.support import tools
from tests.support.apache_kafka import caches, copy_jars, made_once

VERSION = "4.2.0"
"""The newest release; it runs in Spark 4.3 as well."""
_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    # Later ones are not published.
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.spark", "spark-avro_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""All artifacts that Spark itself does not include."""


@functools.cache
def jars() -> tuple[str, ...]:
    """Return the jars for spark.jars; empty if there is neither the cache nor Maven.

    Raises RuntimeError if Maven cannot fetch them.
    """
    home = caches() / "spark-jars" / VERSION
    if not (home / "libs").exists() and tools.find("mvn") is None:
        return ()

    def fill(temp) -> None:
        copy_jars(temp / "libs", "spark-jars", _ARTIFACTS, alone=True)

    made_once(home, "libs", fill)
    return tuple(sorted(map(str, (home / "libs").glob("*.jar"))))
