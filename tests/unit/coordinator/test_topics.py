import pytest

from kserver.config.broker import BrokerConfig
from kserver.coordinator.topics import MAX_KEY_BYTES, coordinator_topic, partition_of
from kserver.errors import ErrorCode, KafkaError
from kserver.model import CONSUMER_OFFSETS, TRANSACTION_STATE


@pytest.mark.parametrize(
    ("key", "code"),
    # As Java's String.hashCode has them.
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer-12345", 158455506),
        ("Grüße", 69215351),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_a_key_belongs_to_the_partition_that_java_gives_it(key, code):
    amount = 0 if code == -(1 << 31) else abs(code)
    for partitions in (1, 7, 50):
        assert partition_of(key, partitions) == amount % partitions


def test_a_key_that_no_record_can_hold_belongs_nowhere():
    assert partition_of("a" * MAX_KEY_BYTES, 50) in range(50)
    for key in ("a" * (MAX_KEY_BYTES + 1), "ü" * (MAX_KEY_BYTES // 2 + 1)):
        with pytest.raises(KafkaError) as refused:
            partition_of(key, 50)
        assert refused.value.code is ErrorCode.invalid_request


@pytest.mark.parametrize(("zookeeper", "replicas", "min_isr"), [(None, 1, "1"), ("z:2181", 3, "2")])
def test_the_topics_are_compacted_and_have_one_replica_only_where_nobody_can_join(
    zookeeper, replicas, min_isr
):
    config = BrokerConfig(offsets_topic_num_partitions=7, zookeeper_connect=zookeeper)
    offsets = coordinator_topic(CONSUMER_OFFSETS, config)
    assert (offsets.partitions, offsets.replication_factor) == (7, replicas)
    transactions = coordinator_topic(TRANSACTION_STATE, config)
    assert transactions.replication_factor == replicas
    assert transactions.config["min.insync.replicas"] == min_isr
    assert offsets.config["cleanup.policy"] == transactions.config["cleanup.policy"] == "compact"
