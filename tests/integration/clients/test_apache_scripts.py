"""Test Apache's own scripts, of the two most common releases."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.integration.clients.client import Record
from tests.integration.clients.promises import write, written
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START, create_topic, served_versions, until
from tests.support.tools import require

VERSIONS = ("4.3.1", "3.9.2")
TIMEOUT_S = 120
OUT_OF_RANGE = (
    "error: org.apache.kafka.common.errors.OffsetOutOfRangeException: The requested offset is not "
    "within the range of offsets maintained by the server."
)


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    require("java")
    apache_kafka.install(request.param)
    return request.param


@pytest.fixture
def run(version, broker):
    """run(script, *words, stdin="") returns the script's output."""
    at = ("--bootstrap-server", broker.address)

    def run(script, *words, stdin="", at=at):
        done = subprocess.run(
            [
                *(sys.executable, apache_kafka.__file__, "tool", version, script),
                *(*at, *words),
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_kafka_topics_creates_lists_describes_grows_and_deletes(run, broker, name):
    run(
        "kafka-topics",
        *("--create", "--topic", name, "--partitions", "2"),
        *("--config", "retention.ms=123456"),
    )
    assert name in run("kafka-topics", "--list").split()
    head, *partitions = run("kafka-topics", "--describe", "--topic", name).splitlines()
    assert f"Topic: {name}\t" in head
    assert "PartitionCount: 2\tReplicationFactor: 1\t" in head
    assert "retention.ms=123456" in head
    assert [p.split("\t")[2] for p in partitions] == ["Partition: 0", "Partition: 1"]
    run("kafka-topics", "--alter", "--topic", name, "--partitions", "3")
    until(lambda: (broker.data / f"{name}-2").is_dir())
    run("kafka-topics", "--delete", "--topic", name)
    until(lambda: not (broker.data / f"{name}-2").is_dir())


def test_kafka_configs_describes_topics_and_brokers(run, broker, name):
    create_topic(broker.address, name, retention_ms=123456)
    told = run("kafka-configs", "--describe", "--topic", name)
    assert "retention.ms=123456 sensitive=false" in told
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=123456" in told
    told = run("kafka-configs", "--describe", "--topic", name, "--all")
    assert "max.message.bytes=1048588 sensitive=false" in told
    told = run("kafka-configs", "--describe", "--entity-type", "brokers", "--all")
    assert "num.partitions=3 sensitive=false" in told


def test_what_the_console_producer_writes_the_console_consumer_reads(run, version, broker, name):
    create_topic(broker.address, name)
    property_ = "--reader-property" if version.startswith("4.") else "--property"
    lines = "".join(f"h:{n}\tk{n}\tv{n}\n" for n in range(10))
    run(
        "kafka-console-producer",
        *("--topic", name, "--compression-codec", "lz4"),
        *(property_, "parse.key=true", property_, "parse.headers=true"),
        stdin=lines,
    )
    assert [(r.key, r.value) for r in written(broker, name)] == [
        (b"k%d" % n, b"v%d" % n) for n in range(10)
    ]
    property_ = "--formatter-property" if version.startswith("4.") else "--property"
    shown = [f"print.{part}=true" for part in ("key", "headers", "offset", "partition")]
    read = run(
        "kafka-console-consumer",
        *("--topic", name, "--partition", "0", "--offset", "4", "--max-messages", "6"),
        *(word for one in shown for word in (property_, one)),
    )
    assert read.splitlines() == [
        f"Partition:0\tOffset:{n}\th:{n}\tk{n}\tv{n}" for n in range(4, 10)
    ]


def test_kafka_get_offsets_finds_ends_starts_and_times(run, broker, name):
    create_topic(broker.address, name, partitions=2)
    now_ms = int(time.time() * 1000)
    write(broker, name, [Record(b"x", timestamp=now_ms + 10 * n) for n in range(10)])
    asked = {"latest": (10, 0), "earliest": (0, 0), str(now_ms + 35): (4, None)}
    for when, (first, second) in asked.items():
        told = run("kafka-get-offsets", "--topic", name, "--time", when).split()
        assert f"{name}:0:{first}" in told
        assert second is None or f"{name}:1:{second}" in told


def test_kafka_delete_records_moves_the_start_and_kafka_log_dirs_tells_the_size(
    run, broker, name, tmp_path
):
    create_topic(broker.address, name)
    write(broker, name, [Record(b"x") for _ in range(10)])
    file = tmp_path / "offsets.json"
    for offset, told in ((7, "low_watermark: 7"), (-1, "low_watermark: 10"), (11, OUT_OF_RANGE)):
        asked = {"topic": name, "partition": 0, "offset": offset}
        file.write_text(json.dumps({"partitions": [asked]}))
        lines = run("kafka-delete-records", "--offset-json-file", str(file)).splitlines()
        assert lines[-1] == f"partition: {name}-0\t{told}"
    told = run("kafka-log-dirs", "--describe", "--topic-list", name).splitlines()
    (of_broker,) = json.loads(told[-1])["brokers"]
    (directory,) = of_broker["logDirs"]
    size = sum(file.stat().st_size for file in (broker.data / f"{name}-0").glob("*.log"))
    replica = {"partition": f"{name}-0", "size": size, "offsetLag": 0, "isFuture": False}
    assert directory == {"logDir": str(broker.data), "error": None, "partitions": [replica]}


def test_kafka_broker_api_versions_lists_what_the_broker_serves(run, broker):
    told = run("kafka-broker-api-versions")
    assert told.startswith(f"{broker.address} (id: ")
    served = served_versions(broker.address)
    for name, key in (("Produce", 0), ("Fetch", 1), ("Metadata", 3), ("CreateTopics", 19)):
        assert f"{name}({key}): {served[key].start} to {served[key].stop - 1} [usable: " in told


def test_the_producers_that_measure_and_verify_reach_the_log(run, broker, name):
    create_topic(broker.address, name)
    told = run("kafka-verifiable-producer", "--topic", name, "--max-messages", "50")
    assert told.count('"name":"producer_send_success"') == 50
    assert [r.value for r in written(broker, name)] == [b"%d" % n for n in range(50)]
    told = run(
        "kafka-producer-perf-test",
        *("--topic", name, "--num-records", "1000", "--record-size", "100"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.address}"),
        at=(),
    )
    assert "1000 records sent" in told
    assert len(written(broker, name)) == 1050
