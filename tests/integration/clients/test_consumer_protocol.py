"""Test groups of the consumer protocol (KIP-848), with librdkafka and the Java client in one group,
and groups that migrate from one protocol to the other."""

import contextlib
import os
import subprocess
import sys
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.support import apache_kafka
from tests.support.brokers import QUICK_START, create_topic
from tests.support.tools import require

VERSION = "4.3.1"
TIMEOUT_S = 60
PARTITIONS = 4
ALL = set(range(PARTITIONS))


@pytest.fixture
def topic(broker, name):
    return create_topic(broker.address, name, PARTITIONS)


@pytest.fixture
def admin(broker):
    return AdminClient({"bootstrap.servers": broker.address})


class Reader:
    """A consumer of librdkafka, and the partitions that it currently owns."""

    def __init__(self, broker, group, topic, protocol="consumer", **settings):
        self.owned = set()
        self.read = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                **({"session.timeout.ms": 6000} if protocol == "classic" else {}),
                **settings,
            }
        )
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, consumer, partitions):
        self.owned |= {p.partition for p in partitions}

    def _revoked(self, consumer, partitions):
        self.owned -= {p.partition for p in partitions}

    def poll(self):
        message = self.consumer.poll(0.05)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.read.append(message.value())
        else:  # an error of librdkafka's own: the broker is not reachable
            assert error.code() < 0, error
            assert not error.fatal(), error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.consumer.close()


def poll_until(readers, holds):
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s, [reader.owned for reader in readers]
        for reader in readers:
            reader.poll()


def are_shared(*readers):
    """Return whether the readers own all partitions, without overlap and evenly distributed."""
    parts = [reader.owned for reader in readers]
    together = sorted(n for part in parts for n in part)
    return together == sorted(ALL) and max(map(len, parts)) - min(map(len, parts)) <= 1


def produce(broker, topic, values):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def described(admin, group):
    return admin.describe_consumer_groups([group])[group].result()


def test_members_come_and_go_and_what_was_committed_is_not_read_again(broker, topic, admin):
    values = [str(n).encode() for n in range(200)]
    produce(broker, topic, values)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Reader(broker, "g-come", topic))
        poll_until([first], lambda: sorted(first.read) == sorted(values))
        second = stack.enter_context(Reader(broker, "g-come", "^" + topic))
        poll_until([first, second], lambda: are_shared(first, second))
        group = described(admin, "g-come")
        assert group.type.name == "CONSUMER"
        assert len(group.members) == 2
        first.consumer.close()
        poll_until([second], lambda: second.owned == ALL)
        assert second.read == []
        produce(broker, topic, [b"more"])
        poll_until([second], lambda: second.read == [b"more"])
    assert described(admin, "g-come").state.name == "EMPTY"


def test_a_static_member_takes_up_what_it_had(broker, topic):
    with Reader(broker, "g-static", topic, **{"group.instance.id": "i"}) as first:
        poll_until([first], lambda: first.owned == ALL)
    with Reader(broker, "g-static", topic, **{"group.instance.id": "i"}) as again:
        poll_until([again], lambda: again.owned == ALL)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_consumer_protocol_and_back_while_it_reads(
    broker, topic, admin, strategy
):
    group = f"g-moves-{strategy}"
    assignor = {"partition.assignment.strategy": strategy}
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(Reader(broker, group, topic, "classic", **assignor))
        poll_until([old], lambda: old.owned == ALL)
        assert described(admin, group).type.name == "CLASSIC"
        new = stack.enter_context(Reader(broker, group, topic))
        poll_until([old, new], lambda: are_shared(old, new))
        assert described(admin, group).type.name == "CONSUMER"
        new.consumer.close()
        poll_until([old], lambda: old.owned == ALL)
        assert described(admin, group).type.name == "CLASSIC"
        produce(broker, topic, [b"a"])
        poll_until([old], lambda: old.read == [b"a"])


@pytest.fixture
def java():
    require("java")
    apache_kafka.install(VERSION)

    def command(script, broker, *words):
        tool = [sys.executable, apache_kafka.__file__, "tool", VERSION, script]
        return [*tool, "--bootstrap-server", broker.address, *words]

    command.environment = os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START}
    return command


def test_the_java_consumer_shares_a_group_with_librdkafka(broker, topic, admin, java):
    words = ["--topic", topic, "--group", "g-java", "--from-beginning"]
    words += ["--command-property", "group.protocol=consumer", "--max-messages", "1"]
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Reader(broker, "g-java", topic))
        poll_until([first], lambda: first.owned == ALL)
        console = subprocess.Popen(
            java("kafka-console-consumer", broker, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=java.environment,
        )
        stack.callback(console.kill)
        poll_until([first], lambda: len(first.owned) == PARTITIONS // 2)
        missing = (ALL - first.owned).pop()
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
        producer.produce(topic, b"for java", partition=missing)
        producer.flush(TIMEOUT_S)
        poll_until([first], lambda: console.poll() is not None)
        assert console.stdout.read() == "for java\n"
        poll_until([first], lambda: first.owned == ALL)
        told = subprocess.run(
            java("kafka-consumer-groups", broker, "--describe", "--group", "g-java", "--state"),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=java.environment,
        )
        assert told.returncode == 0, told.stderr
        (line,) = (line.split() for line in told.stdout.splitlines() if line.startswith("g-java"))
        assert line[-3:] == ["uniform", "Stable", "1"]


def test_a_group_outlives_its_broker(mortal_broker, name):
    topic = create_topic(mortal_broker.address, name, PARTITIONS)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Reader(mortal_broker, "g-outlives", topic))
        second = stack.enter_context(Reader(mortal_broker, "g-outlives", topic))
        poll_until([first, second], lambda: are_shared(first, second))
        parts = first.owned, second.owned
        produce(mortal_broker, topic, [b"before"])
        poll_until([first, second], lambda: first.read + second.read == [b"before"])
        mortal_broker.kill()
        mortal_broker.start()
        produce(mortal_broker, topic, [b"after"])
        poll_until([first, second], lambda: b"after" in first.read + second.read)
        assert (first.owned, second.owned) == parts
