"""Test the requests that exporters and consoles send through Go's clients: kafka_exporter and
Burrow with sarama; kminion, rpk and Redpanda Console with franz-go's kadm."""

import contextlib
import json
import subprocess

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.clients.catalogue import built
from tests.support import brokers

TIMEOUT_S = 120
RECORDS = [(1000 + n, b"key", b"value", ()) for n in range(5)]
WEEK, DAY = "604800000", "86400000"

KMINION = {
    "api versions: what is missing": [],
    "metadata: brokers, controller, partitions": [1, True, ["0 true", "1 true", "2 true"]],
    "internal and other topics": True,
    "end offsets": [0, 0, 5],
    "start offsets": [0, 0, 0],
    "offsets after a time": [0, 0, 3],
    "topic configs": [WEEK, "DEFAULT_CONFIG"],
    "broker configs": ["3", "STATIC_BROKER_CONFIG"],
    "log dirs: bytes of the topic": True,
    "incremental alter configs": [
        [DAY, "DYNAMIC_TOPIC_CONFIG"],
        ["delete,compact", "DYNAMIC_TOPIC_CONFIG"],
        [WEEK, "DEFAULT_CONFIG"],
    ],
    "incremental alter configs, validated only": [WEEK, "DEFAULT_CONFIG"],
    "alter configs": ["2000000", "DYNAMIC_TOPIC_CONFIG"],
    "a setting that is none": "INVALID_CONFIG",
    "client quotas": [["producer_byte_rate=1.048576e+06"], []],
    "delete records": [2, [0, 0, 2]],
    "create partitions": 4,
    "a topic with its assignment": [0, 2],
    "groups by state": ["Stable consumer", "Empty "],
    "groups described": ["Empty  0", "Stable range 1 true [0 1 2]"],
    "committed offsets of many groups": [3, 4],
    "lag": [2, 1],
    "the topic of committed offsets": [3, 4, 1],
    "commit for a group without members": [7, "by hand"],
    "a live group is not deleted": "NON_EMPTY_GROUP",
    "delete offsets": False,
    "delete groups": False,
    "transactions": [True, "Ongoing", 1],
    "producers": [True, 0],
    "a topic that is not there": "UNKNOWN_TOPIC_OR_PARTITION",
    "delete topics": False,
}
EXPORTER = {
    "brokers": 1,
    "topics": True,
    "partitions: leader, replicas, in sync": ["0 true", "1 true", "2 true"],
    "newest offsets": [5, 0, 0],
    "oldest offsets": [0, 0, 0],
    "offsets of many partitions at their leader": [5, 0, 0],
    "cluster": True,
    "topic details": [3, 1, "1048576"],
    "topic config": [WEEK, "Default"],
    "broker config": ["3", "StaticBroker"],
    "log dirs: bytes of the topic": True,
    "incremental alter config": ["604800001", "Topic"],
    "alter config": [DAY, "Topic"],
    "client quotas": [["consumer_byte_rate=1.048576e+06"], []],
    "delete records": [2, 0, 0],
    "create partitions": 4,
    "a topic made and deleted": 2,
    "groups": ["consumer", ""],
    "groups described": ["Empty 0", "Stable 1 3"],
    "committed offsets": [3, -1, 4, -1],
    "coordinator": True,
    "delete an offset": -1,
    "delete a group": False,
}
EXPECTED = {"kminion": KMINION, "exporter": EXPORTER}


@pytest.fixture(scope="module")
def found(broker, tmp_path_factory):
    """The result or the error of each check of each program."""
    results = {}
    for program in EXPECTED:
        path = built(program, tmp_path_factory.mktemp(program))
        topic = brokers.create_topic(broker.address, f"for-{program}", 3, segment_bytes=1 << 20)
        brokers.append(broker.address, topic, RECORDS)
        with groups(broker.address, topic) as names:
            command = [path, broker.address, topic, *names]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert ran.returncode == 0, ran.stderr
        lines = map(json.loads, ran.stdout.splitlines())
        results[program] = {line["check"]: line["error"] or line["found"] for line in lines}
    return results


@contextlib.contextmanager
def groups(address, topic):
    """Yield the names of two groups: one with a member, which committed offset 3, and one without
    members, which committed 4."""
    live, left = f"{topic}-live", f"{topic}-left"
    settings = {"bootstrap.servers": address, "enable.auto.commit": False, "log_level": 0}
    for name, offset in ((live, 3), (left, 4)):
        by_hand = Consumer(settings | {"group.id": brokers.await_coordinator(address, name)})
        by_hand.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        by_hand.close()
    member = Consumer(settings | {"group.id": live, "partition.assignment.strategy": "range"})
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.1)
    yield live, left
    member.close()


@pytest.mark.parametrize(
    ("program", "check"), [(p, check) for p, checks in EXPECTED.items() for check in checks]
)
def test_what_is_asked_is_answered(found, program, check):
    answer, expected = found[program][check], EXPECTED[program][check]
    if isinstance(expected, str):
        assert answer.startswith(f"{expected}: ")
    else:
        assert answer == expected


@pytest.mark.parametrize("program", EXPECTED)
def test_every_check_of_a_program_is_looked_at(found, program):
    assert found[program].keys() == EXPECTED[program].keys()
