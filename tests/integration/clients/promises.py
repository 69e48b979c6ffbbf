"""Tests that every client library must pass.

Writes of a client are checked in the broker's log; its reads are of records that raw requests
wrote. A client's test module chooses the classes that apply to it. If a client does not support one
of the tests, its module sets that test to None and states the reason.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict

import pytest

from kserver.errors import ErrorCode
from kserver.wire.batch import TimestampType
from kserver.wire.compression import Compression
from kserver.wire.special_offsets import EARLIEST, LATEST
from tests.integration.clients.client import APPEND, CREATE, Record, Refused
from tests.support.brokers import append, create_topic, stored, until

CODECS = tuple(codec.name for codec in Compression)
DAY_MS = 86_400_000
MEGABYTE = bytes(range(256)) * 3906
"""The largest value that fits into the default message.max.bytes."""

ODD = (
    Record(b"no key"),
    Record(b"empty key", key=b""),
    Record(b"", key=b"empty value"),
    Record(None, key=b"tombstone"),
    Record(None),
    Record(bytes(range(256)), key=bytes(range(255, -1, -1))),
    Record(b"the same name twice", headers=(("h", b"1"), ("h", b"2"), ("g", b"3"))),
    Record(b"no value and none in it", headers=(("null", None), ("empty", b""))),
    Record(b"any bytes", headers=(("ü", bytes(range(256))),)),
)


def contents(records):
    return [(r.key, r.value, tuple(r.headers)) for r in records]


def written(broker, topic, partition=0):
    return [r for b in stored(broker, topic, partition) for r in b.records()]


def write(broker, topic, records, **fields):
    """Write one batch per partition; records without a timestamp get the current time."""
    now_ms = int(time.time() * 1000)
    records = sorted(records, key=lambda r: r.partition)
    for partition, group in itertools.groupby(records, key=lambda r: r.partition):
        data = [(r.timestamp or now_ms, r.key, r.value, r.headers) for r in group]
        append(broker.address, topic, data, partition, **fields)


class Produces:
    codecs = CODECS
    sendable = ODD
    unknown_topic_code = ErrorCode.unknown_topic_or_partition.value
    """Error code that the client reports for an unknown topic."""
    invalid_topic_code = ErrorCode.invalid_topic_exception.value
    """Error code that the client reports for an invalid topic name."""

    def test_offsets_count_on_from_batch_to_batch(self, client, broker, name):
        topic = create_topic(broker.address, name)
        assert client.produce(topic, [Record(b"a"), Record(b"b"), Record(b"c")]) == [0, 1, 2]
        assert client.produce(topic, [Record(b"d")]) == [3]
        assert [r.value for r in written(broker, topic)] == [b"a", b"b", b"c", b"d"]

    def test_keys_values_and_headers_reach_the_log_as_they_are(self, client, broker, name):
        topic = create_topic(broker.address, name)
        client.produce(topic, self.sendable)
        assert contents(written(broker, topic)) == contents(self.sendable)

    def test_a_producers_timestamps_reach_the_log(self, client, broker, name):
        topic = create_topic(broker.address, name)
        now_ms = int(time.time() * 1000)
        times = [now_ms, now_ms - DAY_MS, now_ms + 1000]
        client.produce(topic, [Record(b"x", timestamp=t) for t in times])
        assert [r.timestamp for r in written(broker, topic)] == times

    def test_every_codec_reaches_the_log_as_it_was_sent(self, client, broker, name):
        for codec in self.codecs:
            topic = create_topic(broker.address, f"{name}-{codec}")
            sent = [Record(b"%d" % n * 100, key=b"k", headers=(("h", b"1"),)) for n in range(20)]
            client.produce(topic, sent, codec=codec)
            assert {b.compression for b in stored(broker, topic)} == {Compression[codec]}
            assert contents(written(broker, topic)) == contents(sent)

    def test_an_idempotent_producer_numbers_its_batches(self, client, broker, name):
        topic = create_topic(broker.address, name)
        for _ in range(3):
            client.produce(topic, [Record(b"a"), Record(b"b")], idempotent=True)
        numbers = defaultdict(list)
        for batch in stored(broker, topic):
            numbers[batch.producer_id] += range(batch.base_sequence, batch.last_sequence + 1)
        assert min(numbers) >= 0
        assert sum(map(len, numbers.values())) == 6
        assert all(own == list(range(len(own))) for own in numbers.values())

    def test_a_byte_and_a_megabyte(self, client, broker, name):
        topic = create_topic(broker.address, name)
        assert client.produce(topic, [Record(b"x")]) == [0]
        assert client.produce(topic, [Record(MEGABYTE)]) == [1]
        assert [r.value for r in written(broker, topic)] == [b"x", MEGABYTE]

    def test_a_record_larger_than_the_topic_takes_is_refused_and_the_next_is_not(
        self, client, broker, name
    ):
        topic = create_topic(broker.address, name, max_message_bytes=2000)
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Record(b"x" * 5000)])
        assert refused.value.code == ErrorCode.message_too_large.value
        assert client.produce(topic, [Record(b"x" * 500)]) == [0]

    def test_a_topic_of_log_append_time_takes_the_brokers(self, client, broker, name):
        topic = create_topic(broker.address, name, message_timestamp_type="LogAppendTime")
        began_ms = int(time.time() * 1000)
        assert client.produce(topic, [Record(b"a"), Record(b"b")]) == [0, 1]
        for batch in stored(broker, topic):
            assert batch.timestamp_type is TimestampType.log_append_time
            assert began_ms <= batch.max_timestamp <= time.time() * 1000

    def test_a_missing_topic_is_made_for_a_producer(self, client, broker, name):
        assert client.produce(name, [Record(b"a")]) == [0]
        assert [r.value for r in written(broker, name)] == [b"a"]
        until(lambda: (broker.data / f"{name}-2").is_dir())

    def test_no_topic_is_made_where_the_broker_forbids_it(self, strict_client, strict_broker, name):
        with pytest.raises(Refused) as refused:
            strict_client.produce(name, [Record(b"a")], patience_s=1)
        assert refused.value.code == self.unknown_topic_code
        assert not list(strict_broker.data.glob(f"{name}-*"))

    def test_an_invalid_topic_name_is_refused_and_never_made(self, client, broker, name):
        with pytest.raises(Refused) as refused:
            client.produce(f"{name} with spaces", [Record(b"a")], patience_s=1)
        assert refused.value.code == self.invalid_topic_code
        assert not list(broker.data.glob(f"{name}*"))

    def test_a_hundred_partitions_take_a_record_each(self, client, broker, name):
        topic = create_topic(broker.address, name, partitions=100)
        sent = [Record(b"%d" % p, partition=p) for p in range(100)]
        assert client.produce(topic, sent) == [0] * 100
        for p in range(100):
            assert [r.value for r in written(broker, topic, p)] == [b"%d" % p]


class Consumes:
    def test_what_was_written_is_read_in_order(self, client, broker, name):
        topic = create_topic(broker.address, name, partitions=3)
        for start in (0, 50):
            some = range(start, start + 50)
            write(
                broker,
                topic,
                [Record(b"%d" % n, key=b"%d" % p, partition=p) for n in some for p in range(3)],
            )
        for p in range(3):
            read = client.consume(topic, {p: 0}, 100)
            assert [r.offset for r in read] == list(range(100))
            assert contents(read) == [(b"%d" % p, b"%d" % n, ()) for n in range(100)]

    def test_keys_values_and_headers_are_read_as_they_are(self, client, broker, name):
        topic = create_topic(broker.address, name)
        write(broker, topic, ODD)
        assert contents(client.consume(topic, {0: 0}, len(ODD))) == contents(ODD)

    def test_timestamps_are_read_with_their_type(self, client, broker, name):
        topic = create_topic(broker.address, name)
        now_ms = int(time.time() * 1000)
        times = [now_ms, now_ms - DAY_MS, now_ms + 1000]
        write(broker, topic, [Record(b"x", timestamp=t) for t in times])
        read = client.consume(topic, {0: 0}, 3)
        assert [r.timestamp for r in read] == times
        assert {r.timestamp_type for r in read} <= {CREATE, None}

    def test_log_append_time_is_read_with_its_type(self, client, broker, name):
        topic = create_topic(broker.address, name, message_timestamp_type="LogAppendTime")
        began_ms = int(time.time() * 1000)
        write(broker, topic, [Record(b"a", timestamp=1000), Record(b"b", timestamp=2000)])
        first, second = client.consume(topic, {0: 0}, 2)
        assert began_ms <= first.timestamp == second.timestamp <= time.time() * 1000
        assert {first.timestamp_type, second.timestamp_type} <= {APPEND, None}

    def test_every_codec_is_read(self, client, broker, name):
        topic = create_topic(broker.address, name)
        sent = [Record(b"%d" % n * 100, key=b"k", headers=(("h", b"1"),)) for n in range(20)]
        for codec in Compression:
            write(broker, topic, sent, compression=codec)
        read = client.consume(topic, {0: 0}, 20 * len(Compression))
        assert contents(read) == contents(sent) * len(Compression)

    def test_reading_may_begin_inside_a_batch(self, client, broker, name):
        topic = create_topic(broker.address, name)
        for codec in (Compression.none, Compression.lz4):
            values = [Record(b"%d" % n) for n in range(100)]
            write(broker, topic, values, compression=codec)
        for start in (1, 99, 150):
            read = client.consume(topic, {0: start}, 3)
            expected = [(n, b"%d" % (n % 100)) for n in range(start, start + 3)]
            assert [(r.offset, r.value) for r in read] == expected

    def test_offsets_are_found_for_times(self, client, broker, name):
        topic = create_topic(broker.address, name)
        assert client.offsets(topic, 0, [EARLIEST, LATEST]) == [0, 0]
        now_ms = int(time.time() * 1000)
        write(broker, topic, [Record(b"x", timestamp=now_ms + 10 * n) for n in range(10)])
        times = [EARLIEST, LATEST, now_ms - 1, now_ms + 35, now_ms + 90, now_ms + 91]
        assert client.offsets(topic, 0, times) == [0, 10, 0, 4, 9, -1]

    def test_a_hundred_partitions_are_read_together(self, client, broker, name):
        topic = create_topic(broker.address, name, partitions=100)
        write(broker, topic, [Record(b"%d" % p, partition=p) for p in range(100)])
        read = client.consume(topic, dict.fromkeys(range(100), 0), 100)
        assert {(r.partition, r.value) for r in read} == {(p, b"%d" % p) for p in range(100)}

    def test_a_byte_and_a_megabyte_are_read(self, client, broker, name):
        topic = create_topic(broker.address, name)
        for value in (b"x", MEGABYTE, b"y"):
            write(broker, topic, [Record(value)])
        assert [r.value for r in client.consume(topic, {0: 0}, 3)] == [b"x", MEGABYTE, b"y"]

    def test_an_offset_that_does_not_exist_is_refused(self, client, broker, name):
        topic = create_topic(broker.address, name)
        write(broker, topic, [Record(b"x")])
        with pytest.raises(Refused) as refused:
            client.consume(topic, {0: 1000}, 1)
        assert refused.value.code == ErrorCode.offset_out_of_range.value


class Survives:
    def test_a_restart_and_a_crash_between_batches_lose_and_double_nothing(
        self, mortal_client, mortal_broker, name
    ):
        client, broker = mortal_client, mortal_broker
        topics = {
            create_topic(broker.address, f"{name}-plain"): False,
            create_topic(broker.address, f"{name}-idempotent"): True,
        }
        sent = []

        def send():
            values = [b"%d" % (len(sent) + n) for n in range(10)]
            expected = list(range(len(sent), len(sent) + 10))
            sent.extend(values)
            for topic, idempotent in topics.items():
                records = [Record(value) for value in values]
                assert client.produce(topic, records, idempotent=idempotent) == expected
                assert self.read(client, broker, topic, len(sent)) == sent

        send()
        broker.restart()
        send()
        broker.kill()
        broker.start()
        send()

    def read(self, client, broker, topic, count):
        return [r.value for r in client.consume(topic, {0: 0}, count)]


class Administers:
    def test_a_topic_is_created_listed_described_grown_and_deleted(self, client, broker, name):
        client.create(name, 2, {"retention.ms": "123456", "cleanup.policy": "compact"})
        until(lambda: name in client.topics())
        assert client.partitions(name) == 2
        told = client.config(name)
        assert told["retention.ms"] == "123456"
        assert told["cleanup.policy"] == "compact"
        assert told["max.message.bytes"] == "1048588"
        client.grow(name, 5)
        until(lambda: client.partitions(name) == 5)
        client.delete(name)
        until(lambda: name not in client.topics())

    def test_what_cannot_be_is_refused_by_its_name(self, client, broker, name):
        create_topic(broker.address, name)
        for code, attempt in (
            (ErrorCode.topic_already_exists, lambda: client.create(name, 1, {})),
            (ErrorCode.invalid_partitions, lambda: client.grow(name, 1)),
            (ErrorCode.unknown_topic_or_partition, lambda: client.delete(f"{name}-missing")),
            (ErrorCode.invalid_topic_exception, lambda: client.create(f"{name} x", 1, {})),
            (ErrorCode.invalid_config, lambda: client.create(f"{name}-x", 1, {"no.such": "1"})),
        ):
            with pytest.raises(Refused) as refused:
                attempt()
            assert refused.value.code == code.value


class Promises(Produces, Consumes, Administers, Survives):
    """All tests."""
