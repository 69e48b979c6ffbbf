"""Test transactional producers on clusters of each transaction version, and Apache's script for
transactions."""

import os
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic, topic_id
from tests.contract.api.transaction_calls import add, begun, state
from tests.contract.api.transaction_calls import write as write_by_hand
from tests.support import apache_kafka, brokers
from tests.support.brokers import QUICK_START, create_topic, until
from tests.support.tools import require
from tests.support.wire_client import WireClient

SAFE_DOWNGRADE, UPGRADE = 2, 1
TIMEOUT_S = 60
JAVA = "4.3.1"


@pytest.fixture(scope="module", params=[0, 1, 2])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def cluster(version, kind, tmp_path_factory):
    """A broker whose cluster has finalized the given transaction version."""
    settings = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
    with brokers.running(kind, tmp_path_factory.mktemp("cluster"), settings) as broker:
        if version < 2:
            lowered = {"feature": "transaction.version", "max_version_level": version}
            lowered["upgrade_type"] = SAFE_DOWNGRADE
            with WireClient(broker.address) as client:
                answer = client.call(ApiKey.UPDATE_FEATURES, 1, feature_updates=[lowered])
            assert answer.error_code.value == 0, answer
        yield broker


@pytest.fixture(autouse=True)
def _unharmed(cluster):
    with brokers.unharmed(cluster):
        yield


def read(address, topic, isolation):
    """Return all values of a topic of two partitions, as the isolation level allows."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    values, ended = [], set()
    while len(ended) < 2:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value().decode())
        else:
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def transactional(address, name):
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": name, "log_level": 0, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer, topic, *values):
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster, name):
    topic = create_topic(cluster.address, name, 2)
    producer = transactional(cluster.address, name)
    for number in range(6):
        producer.begin_transaction()
        write(producer, topic, f"{number}a", f"{number}b", f"{number}c")
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, topic, "open")
    committed = [f"{number}{letter}" for number in (0, 2, 4) for letter in "abc"]
    until(lambda: read(cluster.address, topic, "read_committed") == committed)
    assert len(read(cluster.address, topic, "read_uncommitted")) == 6 * 3 + 1
    transactional(cluster.address, name)
    with pytest.raises(Exception, match=r"(?i)fenced"):
        producer.commit_transaction(TIMEOUT_S)
    until(lambda: read(cluster.address, topic, "read_committed") == committed)


@pytest.fixture(scope="module")
def tool(cluster):
    require("java")
    apache_kafka.install(JAVA)

    def run(script, *words):
        done = subprocess.run(
            [
                *(sys.executable, apache_kafka.__file__, "tool", JAVA, script),
                *("--bootstrap-server", cluster.address, *words),
            ],
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT_S,
            env=os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_javas_producer_writes_transactions(cluster, version, tool, name):
    if version == 1:
        pytest.skip("clients do not tell it from version 0")
    topic = create_topic(cluster.address, name, 2)
    words = ["--topic", topic, "--num-records", "200", "--record-size", "10", "--throughput", "200"]
    words += ["--transactional-id", name, "--transaction-duration-ms", "100"]
    assert "200 records sent" in tool("kafka-producer-perf-test.sh", *words)
    with WireClient(cluster.address) as client:
        until(lambda: state(client, name).transaction_state == "CompleteCommit")
        # From version 2 on each transaction has its own producer epoch.
        assert (state(client, name).producer.producer_epoch > 1) is (version == 2)
    assert len(read(cluster.address, topic, "read_committed")) == 200


def test_apaches_script_lists_transactions_and_ends_one_that_hangs(cluster, version, tool, name):
    if version != 2:
        pytest.skip("the same in every version")
    with WireClient(cluster.address) as client:
        topic = Topic(create_topic(cluster.address, name, 2), topic_id(client, name))
        producer = begun(client, name)
        add(client, 3, producer, {topic.name: (0,)})
        write_by_hand(client, producer, topic, b"a", b"b")
        listed = tool("kafka-transactions.sh", "list").splitlines()
        (line,) = [line for line in listed if line.startswith(name)]
        assert line.split() == [name, *line.split()[1:2], str(producer.producer_id), "Ongoing"]
        place = ["--topic", topic.name, "--partition", "0"]
        tool("kafka-transactions.sh", "abort", *place, "--start-offset", "0")
    assert read(cluster.address, topic.name, "read_committed") == []
