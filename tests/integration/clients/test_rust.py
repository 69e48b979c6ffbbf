"""Test Rust's clients: rskafka, which supports every codec, and kafka_client."""

from kserver.wire.compression import Compression
from tests.integration.clients import rust
from tests.support.brokers import stored
from tests.support.process_cluster import Cluster

PARTITIONS = 2
RECORDS = 10
CODECS = tuple(codec.name for codec in Compression)
TIME_MS = 1_700_000_000_000


def expected(partition, codecs):
    """Return each record as the programs print it: offset, key, value, timestamp, headers."""
    contents = [(codec, n) for codec in codecs for n in range(RECORDS)]
    return [
        [offset, str(partition), f"{codec} {n} " * 20, TIME_MS + n, [["h", "v"]]]
        for offset, (codec, n) in enumerate(contents)
    ]


def assert_all_read(told, partition, codecs):
    records = expected(partition, codecs)
    assert told["produced"] == list(range(len(records)))
    assert told["records"] == records


def test_rskafka_creates_a_topic_and_reads_what_it_wrote_in_each_codec(broker, name):
    told = rust.run("rskafka", broker.address, name, PARTITIONS, 1)
    assert len(told) == PARTITIONS
    for partition, one in enumerate(told):
        assert_all_read(one, partition, CODECS)
        assert one["offsets"] == [0, len(CODECS) * RECORDS]
        assert {b.compression for b in stored(broker, name, partition)} == set(Compression)


def test_rskafka_does_so_with_three_brokers(tmp_path):
    with Cluster(tmp_path) as cluster:
        told = rust.run("rskafka", cluster.addresses, "topic", 3, 3)
        assert len(told) == 3
        for partition, one in enumerate(told):
            assert_all_read(one, partition, CODECS)
            assert one["offsets"] == [0, len(CODECS) * RECORDS]


def test_kafka_client_creates_a_topic_and_reads_what_it_wrote(broker, name):
    told = rust.run("kafka_client", broker.address, name, PARTITIONS, 1)
    assert len(told) == PARTITIONS
    for partition, one in enumerate(told):
        assert_all_read(one, partition, ["none"])
        assert all(batch.producer_id >= 0 for batch in stored(broker, name, partition))
