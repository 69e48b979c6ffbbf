"""Settings of both ends of a job out of one file."""

from __future__ import annotations

from kcli.spark.jobs.ends import for_reading, for_writing, of_producer

BOTH = {"kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "SSL", "kafka.misspelt": "x"}
READS, WRITES = {"kafka.isolation.level": "read_committed"}, {"kafka.linger.ms": "5"}


def test_each_end_is_told_what_it_knows_and_what_nobody_knows():
    assert for_reading(BOTH | READS | WRITES) == BOTH | READS
    assert for_writing(BOTH | READS | WRITES) == BOTH | WRITES
    assert of_producer({"linger.ms": "5", "isolation.level": "x", "acks": "1"}) == {
        "linger.ms": "5",
        "acks": "1",
    }
