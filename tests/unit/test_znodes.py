"""Bytes as an Apache Kafka 3.9.2 broker wrote them, each read and written again."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver import znodes
from kserver.cluster_config.entity_names import quota_entity, quota_entity_name
from kserver.errors import StorageError
from kserver.model import Endpoint, LeaderAndIsr, QuotaEntity, TopicPartition
from kserver.znodes import (
    BrokerRegistration,
    MemberRegistration,
    ProducerIdBlock,
    TopicAssignment,
)

BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://127.0.0.1:23192"],"rack":"r1","jmx_port":-1,"port":23192,'
    b'"host":"127.0.0.1","version":5,"timestamp":"1795270415454"}'
)
BROKER_WITH_TWO_LISTENERS = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"SASL_PLAINTEXT",'
    b'"INTERNAL":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:23193",'
    b'"INTERNAL://127.0.0.1:23194"],"jmx_port":-1,"port":23194,"host":"127.0.0.1","version":5,'
    b'"timestamp":"1795270512531"}'
)
TOPIC = (
    b'{"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"btWmoId8Th6Oovk8E4RutQ",'
    b'"adding_replicas":{},"removing_replicas":{},"version":3}'
)
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
CONFIG = (
    b'{"version":1,"config":{"cleanup.policy":"compact,delete","retention.ms":"1000",'
    b'"segment.bytes":"2000"}}'
)
CONTROLLER = b'{"version":2,"brokerid":1,"timestamp":"1795270415596","kraftControllerEpoch":-1}'
CLUSTER_ID = b'{"version":"1","id":"GtpmxLNKRCigQmHa3HocTQ"}'
CONFIG_CHANGE = b'{"version":2,"entity_path":"brokers/<default>"}'
PRODUCER_ID_BLOCK = b'{"version":1,"broker":0,"block_start":"0","block_end":"999"}'


@pytest.mark.parametrize("data", [BROKER, BROKER_WITH_TWO_LISTENERS])
def test_a_broker_is_written_as_it_was_read(data):
    assert znodes.encode_broker(znodes.decode_broker(7, data)) == data


def test_a_broker_tells_its_listeners_in_their_order():
    broker = znodes.decode_broker(1001, BROKER_WITH_TWO_LISTENERS)
    assert broker == BrokerRegistration(
        1001,
        (
            Endpoint("PLAINTEXT", "SASL_PLAINTEXT", "127.0.0.1", 23193),
            Endpoint("INTERNAL", "PLAINTEXT", "127.0.0.1", 23194),
        ),
        1795270512531,
    )


def test_a_broker_without_a_plain_listener_has_no_host_for_old_clients():
    broker = BrokerRegistration(1, (Endpoint("TLS", "SSL", "::1", 9093),), 5)
    fields = json.loads(znodes.encode_broker(broker))
    assert (fields["host"], fields["port"]) == (None, -1)
    assert fields["endpoints"] == ["TLS://[::1]:9093"]
    assert znodes.decode_broker(1, znodes.encode_broker(broker)) == broker


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"7"}',
        b'{"version":3,"host":"h","port":9092,"jmx_port":9999,"timestamp":"7",'
        b'"endpoints":["PLAINTEXT://h:9092"],"rack":null}',
    ],
)
def test_brokers_of_older_versions_are_read(data):
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
    assert znodes.decode_broker(1, data) == BrokerRegistration(1, (endpoint,), 7, None, 9999)


def test_a_topic_is_written_as_it_was_read():
    topic = znodes.decode_topic("plain", TOPIC)
    assert topic == TopicAssignment(
        UUID("6ed5a6a0-877c-4e1e-8ea2-f93c13846eb5"), {0: (1, 2), 1: (2, 1)}
    )
    assert znodes.encode_topic(topic) == TOPIC


def test_a_topic_from_before_topic_ids_has_none():
    topic = znodes.decode_topic("old", b'{"version":1,"partitions":{"0":[1]}}')
    assert topic == TopicAssignment(None, {0: (1,)})
    assert b"topic_id" not in znodes.encode_topic(topic)


def test_replicas_on_their_way_are_kept():
    topic = TopicAssignment(UUID(int=5), {0: (1, 2)}, {0: (2,)}, {0: (3,)})
    assert znodes.decode_topic("moving", znodes.encode_topic(topic)) == topic


def test_partitions_are_written_in_their_order():
    topic = TopicAssignment(UUID(int=5), dict.fromkeys(reversed(range(12)), (1,)))
    fields = json.loads(znodes.encode_topic(topic))
    assert list(fields["partitions"]) == [str(p) for p in range(12)]


def test_a_partitions_epoch_is_the_version_of_its_znode():
    state = znodes.decode_state("t", 0, STATE, 4)
    assert state == LeaderAndIsr(1, 0, (1,), controller_epoch=1, partition_epoch=4)
    assert znodes.encode_state(state) == STATE


def test_a_config_is_written_as_it_was_read():
    config = znodes.decode_config("topics", "t", CONFIG)
    assert config["cleanup.policy"] == "compact,delete"
    assert znodes.encode_config(config) == CONFIG
    assert znodes.encode_config({}) == b'{"version":1,"config":{}}'
    assert znodes.decode_config("topics", "t", b"") == {}


def test_text_beyond_ascii_stays_as_it_is():
    assert znodes.encode_config({"k": "é"}) == '{"version":1,"config":{"k":"é"}}'.encode()


def test_the_controller_is_written_as_kafka_writes_it():
    assert znodes.decode_controller(CONTROLLER) == 1
    assert znodes.encode_controller(1, 1795270415596) == CONTROLLER
    assert znodes.decode_controller_epoch(b"17") == 17
    assert znodes.encode_controller_epoch(17) == b"17"


def test_the_cluster_id_is_written_as_kafka_writes_it():
    assert znodes.decode_cluster_id(CLUSTER_ID) == "GtpmxLNKRCigQmHa3HocTQ"
    assert znodes.encode_cluster_id("GtpmxLNKRCigQmHa3HocTQ") == CLUSTER_ID


def test_a_config_change_names_whose():
    assert znodes.decode_config_change(CONFIG_CHANGE) == ("brokers", "<default>")
    assert znodes.encode_config_change("brokers", "<default>") == CONFIG_CHANGE
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change(old) == ("topics", "t")


def test_a_failed_disk_is_told_as_kafka_writes_it():
    data = b'{"version":1,"broker":3,"event":1}'
    assert znodes.encode_log_dir_event(3) == data
    assert znodes.decode_log_dir_event(data) == 3


@pytest.mark.parametrize("decode", [znodes.decode_isr_change, znodes.decode_preferred_election])
def test_partitions_are_named_as_kafka_writes_them(decode):
    data = b'{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":7}]}'
    named = [TopicPartition("a", 0), TopicPartition("b", 7)]
    assert znodes.encode_partitions(named) == data
    assert decode(data) == named
    with pytest.raises(StorageError, match="which is not what Kafka writes there"):
        decode(b'{"version":1,"partitions":[{"topic":"a"}]}')


def test_a_block_of_producer_ids_is_written_as_kafka_writes_it():
    assert znodes.decode_producer_id_block(PRODUCER_ID_BLOCK) == ProducerIdBlock(0, 0, 999)
    assert znodes.encode_producer_id_block(ProducerIdBlock(0, 0, 999)) == PRODUCER_ID_BLOCK


@pytest.mark.parametrize(
    ("decode", "path"),
    [
        (lambda data: znodes.decode_broker(3, data), "/brokers/ids/3"),
        (lambda data: znodes.decode_topic("t", data), "/brokers/topics/t"),
        (lambda data: znodes.decode_state("t", 1, data, 0), "/brokers/topics/t/partitions/1/state"),
        (lambda data: znodes.decode_config("topics", "t", data), "/config/topics/t"),
        (znodes.decode_config_change, "/config/changes"),
        (znodes.decode_controller, "/controller"),
        (znodes.decode_controller_epoch, "/controller_epoch"),
        (znodes.decode_cluster_id, "/cluster/id"),
        (znodes.decode_producer_id_block, "/latest_producer_id_block"),
    ],
)
@pytest.mark.parametrize("data", [b"{", b"\xff", b"[]", b'"x"', b'{"version":1,"config":[]}'])
def test_what_kafka_would_not_write_is_refused_by_the_znodes_name(decode, path, data):
    with pytest.raises(StorageError, match=f"^{path} holds "):
        decode(data)


@given(st.uuids())
def test_ids_are_22_characters_and_come_back(value):
    text = znodes.uuid_to_text(value)
    assert len(text) == 22
    assert znodes.uuid_from_text(text) == value


@given(st.text(max_size=30))
def test_no_other_text_is_an_id(text):
    try:
        value = znodes.uuid_from_text(text)
    except ValueError:
        return
    assert len(value.bytes) == 16


brokers = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True).map(tuple)
by_partition = st.dictionaries(st.integers(0, 20), brokers, max_size=5)


all_partitions = st.lists(brokers, min_size=1, max_size=20).map(lambda r: dict(enumerate(r)))


@given(st.builds(TopicAssignment, st.uuids(), all_partitions, by_partition, by_partition))
def test_any_assignment_comes_back(topic):
    assert znodes.decode_topic("t", znodes.encode_topic(topic)) == topic


def test_a_topic_with_a_gap_in_its_partitions_is_refused():
    with pytest.raises(StorageError, match="/brokers/topics/t holds"):
        znodes.decode_topic("t", b'{"version":1,"partitions":{"1":[1]}}')


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (QuotaEntity("alice"), "/config/users/alice"),
        (QuotaEntity(""), "/config/users/<default>"),
        (QuotaEntity("alice", "c"), "/config/users/alice/clients/c"),
        (QuotaEntity("", ""), "/config/users/<default>/clients/<default>"),
        (QuotaEntity(client_id="a b/ü~*+%"), "/config/clients/a%20b%2F%C3%BC%7E%2A%2B%25"),
        (QuotaEntity(client_id="<default>"), "/config/clients/%3Cdefault%3E"),
        (QuotaEntity(ip="::1"), "/config/ips/%3A%3A1"),
        (QuotaEntity(ip=""), "/config/ips/<default>"),
    ],
)
def test_a_quota_lies_where_kafka_keeps_it(entity, path):
    kind, name = quota_entity_name(entity)
    assert znodes.config_path(kind, name) == path
    assert quota_entity(kind, name) == entity


def test_the_parents_of_a_path_begin_with_the_uppermost():
    assert znodes.parents_of("/config/users/u/clients/c") == [
        "/config",
        "/config/users",
        "/config/users/u",
        "/config/users/u/clients",
    ]


MEMBER = b'{"version":1,"subscription":{"orders":2},"pattern":"static","timestamp":"1430000000000"}'


def test_a_member_of_a_group_in_zookeeper_is_written_as_kafka_0_8_does():
    member = znodes.decode_member("g", "g_host-1", MEMBER)
    assert member == MemberRegistration({"orders": 2}, 1430000000000)
    assert znodes.encode_member(member) == MEMBER


def test_a_member_that_tells_nothing_of_its_topics_is_refused():
    with pytest.raises(StorageError, match="/consumers/g/ids/c holds"):
        znodes.decode_member("g", "c", b'{"version":1}')


def test_an_offset_in_zookeeper_is_its_digits():
    assert znodes.offset_path("g", "t", 3) == "/consumers/g/offsets/t/3"
    assert znodes.encode_offset(2**40) == b"1099511627776"
    assert znodes.decode_offset("g", TopicPartition("t", 3), b"1099511627776") == 2**40
    with pytest.raises(StorageError, match="/consumers/g/offsets/t/3 holds"):
        znodes.decode_offset("g", TopicPartition("t", 3), b"")
