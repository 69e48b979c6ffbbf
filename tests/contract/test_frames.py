"""Test the codec of requests, responses and record batches against bytes that Apache Kafka 4.3.1
wrote (golden/Frames.java): decoding and encoding must match."""

import datetime
import uuid
from pathlib import Path

import pytest

from kserver.errors import ErrorCode
from kserver.wire import codec
from kserver.wire.batch import (
    ControlRecord,
    ControlType,
    RecordBatch,
    encode_batch,
    end_transaction_marker,
    read_control_record,
)
from kserver.wire.compression import Compression
from kserver.wire.versions import reply_to, request

NOW = 1_700_000_000_000
GOLDEN = {}
for line in (Path(__file__).parent / "golden" / "frames.txt").read_text().splitlines():
    kind, *name, digits = line.split()
    GOLDEN[kind, *name] = bytes.fromhex(digits)

RECORDS = [
    (NOW, b"key", b"value", (("h\u00e9", None), ("trace", b"1234"))),
    (NOW - 100, None, b"x" * 100, ()),
    (NOW + 100_000, b"", None, ()),
]
FIELDS = {
    "base_offset": 42,
    "leader_epoch": 3,
    "producer_id": 4000,
    "producer_epoch": 5,
    "base_sequence": 7,
    "transactional": True,
}
ONE_RECORD = encode_batch([(NOW, None, b"v", ())])


def milliseconds(number):
    return datetime.timedelta(milliseconds=number)


def expected_request(key, version):
    new = request(key, version)
    match key:
        case codec.API_VERSIONS:
            return new(client_software_name="apache-kafka-java", client_software_version="4.3.1")
        case 3:
            return new(topics=[new.topics(name="orders")], allow_auto_topic_creation=True)
        case 0:
            partition = new.topic_data.partition_data(index=2, records=ONE_RECORD)
            topic = new.topic_data(name="orders", partition_data=[partition])
            return new(acks=-1, timeout=milliseconds(1500), topic_data=[topic])
        case 1:
            partition = new.topics.partitions(
                partition=2, fetch_offset=99, partition_max_bytes=1 << 20
            )
            return new(
                replica_id=-1,
                max_wait=milliseconds(500),
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=1,
                topics=[new.topics(topic="orders", partitions=[partition])],
            )
        case 12:
            return new(group_id="g", member_id="m-1", generation_id=7, group_instance_id="i")


def expected_answer(key, version):
    new = reply_to(request(key, version)())
    match key:
        case codec.API_VERSIONS:
            return new(api_keys=[new.api_keys(api_key=18, min_version=0, max_version=4)])
        case 3:
            partition = new.topics.partitions(
                partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1], isr_nodes=[1]
            )
            topic = new.topics(
                name="orders", topic_id=uuid.UUID(int=1 << 64 | 2), partitions=[partition]
            )
            return new(
                cluster_id="c",
                controller_id=1,
                brokers=[new.brokers(node_id=1, host="localhost", port=9092)],
                topics=[topic],
            )
        case 0:
            partition = new.responses.partition_responses(
                index=2,
                error_code=ErrorCode.not_leader_or_follower,
                error_message="not here",
                base_offset=-1,
            )
            topic = new.responses(name="orders", partition_responses=[partition])
            return new(responses=[topic])
        case 12:
            return new(error_code=ErrorCode.rebalance_in_progress)


def named(kind):
    return [tuple(map(int, name)) for found, *name in GOLDEN if found == kind]


@pytest.mark.parametrize(("key", "version"), named("request"))
def test_a_request_is_read_and_written_as_apache_does(key, version):
    golden = GOLDEN["request", str(key), str(version)]
    frame = memoryview(golden)[4:]
    header, at = codec.read_request_header(frame)
    assert header == (key, version, 77, "client-1")
    expected = expected_request(key, version)
    assert codec.read_request(header, frame, at) == expected
    assert codec.write_request(expected, 77, "client-1") == golden


@pytest.mark.parametrize(("key", "version"), named("answer"))
def test_an_answer_is_read_and_written_as_apache_does(key, version):
    golden = GOLDEN["answer", str(key), str(version)]
    expected = expected_answer(key, version)
    assert codec.read_response(key, version, memoryview(golden)[4:]) == (77, expected)
    assert codec.write_response(key, version, 77, expected) == golden


@pytest.mark.parametrize("compression", Compression, ids=lambda c: c.name)
def test_a_batch_of_apaches_is_read(compression):
    batch = RecordBatch(GOLDEN["batch", compression.name])
    assert batch.is_valid_crc()
    assert batch.compression is compression
    assert (batch.base_offset, batch.leader_epoch, batch.last_sequence) == (42, 3, 9)
    assert (batch.producer_id, batch.producer_epoch) == (4000, 5)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 100_000)
    assert batch.is_transactional
    assert [record.offset for record in batch.records()] == [42, 43, 44]
    assert [record[1:] for record in batch.records()] == RECORDS


@pytest.mark.parametrize(
    "compression", [Compression.none, Compression.snappy, Compression.lz4], ids=lambda c: c.name
)
def test_a_batch_is_written_to_the_byte_as_apache_does(compression):
    """The encoders of the other two codecs may produce different bytes."""
    golden = GOLDEN["batch", compression.name]
    assert encode_batch(RECORDS, compression=compression, **FIELDS) == golden


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_marker_is_read_and_written_as_apache_does(commit):
    golden = GOLDEN["marker", "commit" if commit else "abort"]
    batch = RecordBatch(golden)
    assert batch.is_control
    (record,) = batch.records()
    assert read_control_record(record) == ControlRecord(
        ControlType.commit if commit else ControlType.abort, 11
    )
    key, value = end_transaction_marker(commit, coordinator_epoch=11)
    written = encode_batch(
        [(NOW, key, value, ())],
        base_offset=9,
        leader_epoch=2,
        producer_id=4000,
        producer_epoch=5,
        transactional=True,
        control=True,
    )
    assert written == golden
