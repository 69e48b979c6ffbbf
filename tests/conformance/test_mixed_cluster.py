"""Test a cluster of two brokers of Apache Kafka 3.9 and two of ours.

The tests run in order on one cluster under a steady load; the last test checks that no record was
lost or duplicated.
"""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from kserver.wire.batch import batches
from tests.support.brokers import OURS
from tests.support.mixed_cluster import APACHE, PATIENCE_S, REPLICATION, MixedCluster, until
from tests.support.process import BrokerProcess
from tests.support.steady_load import SteadyLoad

pytestmark = pytest.mark.story

KINDS = {1: OURS, 2: OURS, 3: APACHE, 4: APACHE}
LOAD, PARTITIONS = "load", 8
TRANSACTED = "transacted"
INTERNAL = ("__consumer_offsets", "__transaction_state")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with MixedCluster(tmp_path_factory.mktemp("mixed"), KINDS) as cluster:
        until(lambda: cluster.live == set(KINDS))
        cluster.create(LOAD, PARTITIONS)
        cluster.create(TRANSACTED, 4)
        yield cluster


@pytest.fixture(scope="module")
def load(cluster):
    with SteadyLoad(cluster.client, LOAD, PARTITIONS) as load:
        load.advance()
        yield load


def broker_output(broker):
    """Return all that the broker has logged."""
    if isinstance(broker, BrokerProcess):
        return "".join(broker.output)
    return (broker.directory / "output.txt").read_text()


def test_both_kinds_lead_and_follow(cluster, load):
    for id_ in KINDS:
        assert cluster.led_by(id_, LOAD, PARTITIONS) == PARTITIONS / len(KINDS)
    cluster.until_in_sync(LOAD, PARTITIONS)


@pytest.mark.parametrize("controller", [3, 1, 4], ids=["theirs", "ours", "theirs-again"])
@pytest.mark.parametrize("victim", [OURS, APACHE])
def test_a_leader_is_killed_and_comes_back(cluster, load, controller, victim):
    cluster.make_controller(controller)
    killed = next(id_ for id_, kind in KINDS.items() if kind == victim and id_ != controller)
    cluster.kill([killed])
    until(lambda: cluster.led_by(killed, LOAD, PARTITIONS) == 0)
    load.advance()
    cluster.start([killed])
    cluster.until_in_sync(LOAD, PARTITIONS)
    load.advance()


@pytest.mark.parametrize("controller", [2, 3], ids=["ours", "theirs"])
def test_the_controller_is_killed_and_another_takes_over(cluster, load, controller):
    cluster.make_controller(controller)
    load.advance()
    cluster.kill([controller])
    until(lambda: cluster.controller not in (-1, controller))
    until(lambda: cluster.led_by(controller, LOAD, PARTITIONS) == 0)
    load.advance()
    cluster.start([controller])
    cluster.until_in_sync(LOAD, PARTITIONS)


@pytest.mark.parametrize(("controller", "stopping"), [(1, 3), (3, 1)], ids=["theirs", "ours"])
def test_a_broker_that_stops_hands_over_first(cluster, load, controller, stopping):
    cluster.make_controller(controller)
    load.advance()
    broker = cluster.brokers[stopping]
    before = broker_output(broker)
    broker.stop()
    # By the end of its process, not of its session.
    assert cluster.led_by(stopping, LOAD, PARTITIONS) == 0
    assert all(stopping not in cluster.state(LOAD, p)["isr"] for p in range(PARTITIONS))
    output = broker_output(broker).removeprefix(before)
    if cluster.is_ours(stopping):
        assert "stopped" in output
        assert "controlled shutdown incomplete" not in output
    else:
        assert "Controlled shutdown request returned successfully" in output
        assert "unclean shutdown" not in output
    load.advance()
    cluster.start([stopping])
    cluster.until_in_sync(LOAD, PARTITIONS)


@pytest.mark.parametrize("controller", [1, 4], ids=["ours", "theirs"])
def test_topics_are_made_grown_and_deleted(cluster, load, controller):
    cluster.make_controller(controller)
    topic = f"made-{controller}"
    cluster.create(topic, 2)
    cluster.ask(lambda: cluster.admin.create_partitions([NewPartitions(topic, 6)]))
    cluster.until_in_sync(topic, 6)
    cluster.until_known(topic, 6)
    cluster.ask(lambda: cluster.admin.delete_topics([topic]))
    cluster.until_known(topic, 0)
    until(lambda: cluster.znode(f"/brokers/topics/{topic}") is None)
    until(lambda: not any(list(b.data.glob(f"{topic}-?")) for b in cluster.brokers.values()))


@pytest.mark.parametrize("controller", [2, 3], ids=["ours", "theirs"])
@pytest.mark.parametrize("asked", KINDS)
def test_a_topic_that_a_client_names_is_made_whichever_broker_it_asks(cluster, asked, controller):
    cluster.make_controller(controller)
    topic = f"named-{controller}-{asked}"
    producer = Producer({"bootstrap.servers": cluster.brokers[asked].address})
    told = []
    producer.produce(topic, b"1", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert told == [None]


@pytest.mark.parametrize("asked", KINDS)
def test_settings_are_told_to_all_whichever_broker_takes_them(cluster, load, asked):
    value = str(100_000_000 + asked)
    topic = ConfigResource(ConfigResource.Type.TOPIC, TRANSACTED)
    topic.add_incremental_config(
        ConfigEntry("segment.bytes", value, incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient({"bootstrap.servers": cluster.brokers[asked].address})
    (done,) = admin.incremental_alter_configs([topic]).values()
    done.result(PATIENCE_S)
    wanted = ConfigResource(ConfigResource.Type.TOPIC, TRANSACTED)
    for broker in cluster.brokers.values():
        teller = AdminClient({"bootstrap.servers": broker.address})

        def tells(teller=teller):
            (told,) = teller.describe_configs([wanted]).values()
            return told.result(PATIENCE_S)["segment.bytes"].value == value

        until(tells)


def coordinated_by(cluster, topic, name):
    """Return a function that finds a name coordinated by a given broker, using Java's string
    hash."""

    def hash_of(text):
        value = 0
        for character in text:
            value = (31 * value + ord(character)) & 0xFFFFFFFF
        return abs(value - (1 << 32) if value >= 1 << 31 else value)

    def find(id_):
        return next(
            text
            for text in (f"{name}-{id_}-{n}" for n in range(1000))
            if cluster.state(topic, hash_of(text) % 8)["leader"] == id_
        )

    return find


@pytest.mark.parametrize("coordinator", KINDS)
def test_transactions_are_whole_whichever_broker_coordinates_them(cluster, load, coordinator):
    if cluster.znode("/brokers/topics/__transaction_state") is None:
        first = Producer(cluster.client | {"transactional.id": "first"})
        first.init_transactions(PATIENCE_S)
        cluster.until_in_sync("__transaction_state", 8)
    id_ = coordinated_by(cluster, "__transaction_state", "tx")(coordinator)
    producer = Producer(cluster.client | {"transactional.id": id_})
    producer.init_transactions(PATIENCE_S)
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        for partition in range(4):
            word = "kept" if ends == producer.commit_transaction else "dropped"
            producer.produce(TRANSACTED, f"{id_} {word} {number}", partition=partition)
        ends(PATIENCE_S)
    found = read_committed(cluster, id_)
    assert found == {partition: ["kept 0", "kept 2"] for partition in range(4)}


def read_committed(cluster, id_):
    consumer = Consumer(
        cluster.client
        | {"group.id": "none", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TRANSACTED, partition, 0) for partition in range(4)])
    found = {partition: [] for partition in range(4)}
    ended = set()
    while len(ended) < 4:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            ended.add(message.partition())
        else:
            writer, _, value = message.value().decode().partition(" ")
            if writer == id_:
                found[message.partition()].append(value)
    consumer.close()
    return found


@pytest.mark.parametrize("coordinator", KINDS)
def test_a_group_goes_on_when_its_coordinator_is_killed(cluster, load, coordinator):
    group = coordinated_by(cluster, "__consumer_offsets", "g")(coordinator)
    consumer = Consumer(
        cluster.client
        | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([LOAD])
    assert consumer.poll(PATIENCE_S) is not None
    positions = consumer.position(consumer.assignment())
    committed = {p.partition: p.offset for p in positions if p.offset >= 0}
    consumer.commit(offsets=[p for p in positions if p.offset >= 0], asynchronous=False)
    cluster.kill([coordinator])
    until(lambda: coordinator not in cluster.live)
    assert consumer.poll(PATIENCE_S) is not None
    asked = [TopicPartition(LOAD, partition) for partition in committed]
    kept = []

    def told():
        try:
            kept[:] = consumer.committed(asked, timeout=PATIENCE_S)
        except KafkaException as error:
            # librdkafka passes on the error that the next coordinator does not know of its role
            # yet.
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False
        return True

    until(told)
    assert {p.partition: p.offset for p in kept} == committed
    consumer.close()
    cluster.start([coordinator])
    cluster.until_in_sync("__consumer_offsets", 8)
    cluster.until_in_sync(LOAD, PARTITIONS)


def appended_twice(log):
    """Return producer id, epoch and first sequence of each batch that is in the log twice."""
    counts = Counter(
        (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        for batch in batches(memoryview(log))
        if batch.producer_id >= 0 and batch.base_sequence >= 0
    )
    return [batch for batch, count in counts.items() if count > 1]


def test_in_the_end_every_record_is_there_once_and_replicas_are_byte_equal(cluster, load):
    load.__exit__()
    load.check()
    topics = {LOAD: PARTITIONS, TRANSACTED: 4} | dict.fromkeys(INTERNAL, 8)
    for topic, partitions in topics.items():
        cluster.until_in_sync(topic, partitions)
    cluster.kill(KINDS)
    for topic, partitions in topics.items():
        for partition in range(partitions):
            replicas = cluster.znode(f"/brokers/topics/{topic}")["partitions"][str(partition)]
            logs = {cluster.log_of(id_, topic, partition) for id_ in replicas}
            assert len(replicas) == REPLICATION
            assert len(logs) == 1, f"{topic}-{partition} on {replicas}"
            assert appended_twice(*logs) == [], f"{topic}-{partition}"
