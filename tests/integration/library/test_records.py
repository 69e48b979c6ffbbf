"""Test that the client library reads the records that it has sent, with various configs and
offsets."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.blocking import Blocking
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer, ConsumerRecord
from kcli.client.producer.producer import Producer, ProducerInterceptor
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import TimestampType
from kserver.wire.compression import Compression
from tests.support import brokers
from tests.support.real_clients import bootstrap, read
from tests.support.wire_client import WireClient, milliseconds

_names = itertools.count(1)


@pytest.mark.parametrize("codec", [codec.name for codec in Compression])
def test_records_come_back_as_they_were_sent(broker, topic, codec):
    records = [
        (b"value", b"key", [("h", b"1"), ("h", None), ("ü", b"")]),
        (None, b"tombstone", []),
        (b"", None, []),
        (b"x" * 100_000, None, []),
        *((b"%d" % n * 7, b"k%d" % (n % 5), []) for n in range(500)),
    ]

    async def scenario() -> None:
        config = ProducerConfig.of(bootstrap(broker, compression_type=codec))
        async with Producer(config) as producer:
            sent = [
                await producer.send(topic, value, key, timestamp=1_700_000_000_000 + n, headers=h)
                for n, (value, key, h) in enumerate(records)
            ]
            outcomes = await asyncio.gather(*sent)
        found = await read(broker, topic)
        assert sum(map(len, found.values())) == len(records)
        for n, ((value, key, headers), outcome) in enumerate(zip(records, outcomes, strict=True)):
            record = found[outcome.partition][outcome.offset]
            assert record.offset == outcome.offset
            assert (record.value, record.key, list(record.headers)) == (value, key, headers)
            assert record.timestamp == outcome.timestamp == 1_700_000_000_000 + n
            assert record.timestamp_type is TimestampType.create_time

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks_delivers(broker, topic, acks):
    async def scenario() -> None:
        async with Producer(ProducerConfig.of(bootstrap(broker, acks=acks))) as producer:
            sent = [await producer.send(topic, b"%d" % n, partition=0) for n in range(100)]
            outcomes = await asyncio.gather(*sent)
        assert [o.offset for o in outcomes] == ([-1] * 100 if acks == "0" else list(range(100)))
        for _ in range(100):  # no response says when records with acks=0 are readable
            found = (await read(broker, topic))[0]
            if len(found) == 100:
                break
        assert [record.value for record in found] == [b"%d" % n for n in range(100)]

    asyncio.run(scenario())


def test_a_topic_is_made_when_it_is_first_written_to(broker):
    name = f"auto{next(_names)}"

    async def scenario() -> None:
        async with Producer(ProducerConfig.of(bootstrap(broker))) as producer:
            assert (await (await producer.send(name, b"v"))).offset == 0

    asyncio.run(scenario())


def test_batches_too_large_for_the_topic_are_split_and_records_refused(broker):
    name = brokers.create_topic(
        broker.address, f"small{next(_names)}", partitions=1, max_message_bytes=1000
    )

    async def scenario() -> None:
        config = ProducerConfig.of(bootstrap(broker, batch_size=10_000, linger_ms=50))
        async with Producer(config) as producer:
            sent = [await producer.send(name, b"%03d" % n * 30) for n in range(60)]
            outcomes = await asyncio.gather(*sent)
            assert [o.offset for o in outcomes] == list(range(60))
            with pytest.raises(KafkaError) as caught:
                await (await producer.send(name, b"x" * 2000))
            assert caught.value.code is ErrorCode.message_too_large
            assert (await (await producer.send(name, b"after"))).offset == 60
        found = (await read(broker, name, 1))[0]
        assert [r.value for r in found] == [b"%03d" % n * 30 for n in range(60)] + [b"after"]

    asyncio.run(scenario())


def test_the_brokers_clock_stamps_where_the_topic_says_so(broker):
    name = brokers.create_topic(
        broker.address, f"stamped{next(_names)}", message_timestamp_type="LogAppendTime"
    )

    async def scenario() -> None:
        async with Producer(ProducerConfig.of(bootstrap(broker))) as producer:
            outcome = await (await producer.send(name, b"v", timestamp=5))
        (record,) = (await read(broker, name, 1))[0]
        assert record.timestamp == outcome.timestamp > 1_700_000_000_000
        assert record.timestamp_type is TimestampType.log_append_time

    asyncio.run(scenario())


def test_offsets_are_found_by_time_and_inside_a_batch(broker, topic):
    async def scenario() -> None:
        start = 1_700_000_000_000
        async with Producer(ProducerConfig.of(bootstrap(broker, linger_ms=50))) as producer:
            for n in range(100):
                await producer.send(topic, b"%d" % n, partition=1, timestamp=start + 10 * n)
        one = TopicPartition(topic, 1)
        async with Admin(AdminConfig.of(bootstrap(broker))) as admin:
            for spec, offset, timestamp in (
                (-1, 100, -1),
                (-2, 0, -1),
                (-3, 99, start + 990),
                (start + 335, 34, start + 340),
                (start, 0, start),
                (start + 5000, -1, -1),
            ):
                (found,) = (await admin.list_offsets({one: spec})).values()
                assert (found.offset, found.timestamp) == (offset, timestamp), spec
        async with Consumer(ConsumerConfig.of(bootstrap(broker))) as consumer:
            consumer.assign([one])
            await consumer.seek(one, 34)
            records = await consumer.poll(10_000)
            assert records[0].value == b"34"
            await consumer.seek_to_end()
            assert await consumer.position(one) == 100
            await consumer.seek(one, 500)
            assert await consumer.poll(1000) == []
            assert await consumer.position(one) == 100

    asyncio.run(scenario())


def test_a_reader_follows_a_writer(broker, topic):
    async def scenario() -> None:
        found: list[bytes | None] = []

        async def follow() -> None:
            config = ConsumerConfig.of(bootstrap(broker, auto_offset_reset="earliest"))
            async with Consumer(config) as consumer:
                consumer.assign([TopicPartition(topic, n) for n in range(3)])
                while len(found) < 2000:
                    found.extend(record.value for record in await consumer.poll(10_000))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            async with Producer(ProducerConfig.of(bootstrap(broker))) as producer:
                for n in range(2000):
                    await producer.send(topic, b"%d" % n)
                    if n % 50 == 0:
                        await asyncio.sleep(0)
        assert sorted(found) == sorted(b"%d" % n for n in range(2000))

    asyncio.run(scenario())


def test_a_restarted_broker_costs_neither_a_record_nor_a_duplicate(broker, topic):
    async def scenario() -> None:
        stopped, back = asyncio.Event(), asyncio.Event()

        async def restart() -> None:
            await stopped.wait()
            await asyncio.to_thread(broker.restart)
            back.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(restart())
            async with Producer(ProducerConfig.of(bootstrap(broker))) as producer:
                sent = []
                while len(sent) < 2000 or not back.is_set():
                    sent.append(await producer.send(topic, b"%d" % len(sent), partition=0))
                    if len(sent) == 500:
                        stopped.set()
                    await asyncio.sleep(0.001)
                await asyncio.gather(*sent)
        values = [record.value for record in (await read(broker, topic))[0]]
        assert values == [b"%d" % n for n in range(len(sent))]

    asyncio.run(scenario())


def test_plain_threads_have_it_too(broker, topic):
    with Blocking(Producer, ProducerConfig.of(bootstrap(broker))) as producer:
        sent = [producer.send(topic, b"%d" % n, partition=2) for n in range(20)]
        assert [s.result(30).offset for s in sent] == list(range(20))
    config = ConsumerConfig.of(bootstrap(broker, auto_offset_reset="earliest"))
    with Blocking(Consumer, config) as consumer:
        consumer.assign([TopicPartition(topic, 2)])
        found: list[ConsumerRecord] = []
        while len(found) < 20:
            found += consumer.poll(10_000)
        assert [record.value for record in found] == [b"%d" % n for n in range(20)]


PRODUCING = [
    {"batch_size": 0},
    {"batch_size": 200, "linger_ms": 20, "buffer_memory": 2000},
    {"compression_type": "gzip", "compression_gzip_level": 1},
    {"compression_type": "lz4", "compression_lz4_level": 17},
    {"compression_type": "zstd", "compression_zstd_level": 19},
    {"enable_idempotence": "false", "max_in_flight_requests_per_connection": 1},
    {"max_request_size": 300},
    {"metadata_max_age_ms": 10, "metadata_max_idle_ms": 5000},
    {"partitioner_class": "RoundRobinPartitioner"},
    {"partitioner_ignore_keys": "true"},
    {"retries": 0, "acks": 1, "retry_backoff_ms": 0},
    {"send_buffer_bytes": 9000, "receive_buffer_bytes": 9000, "connections_max_idle_ms": 100},
    {"request.required.acks": 1, "queue.buffering.max.ms": 1, "compression.codec": "snappy"},
]
CONSUMING = [
    {"check_crcs": "false"},
    {"fetch_max_bytes": 100, "max_partition_fetch_bytes": 100},
    {"fetch_min_bytes": 1 << 20, "fetch_max_wait_ms": 20},
    {"isolation_level": "read_committed"},
    {"max_poll_records": 1},
    {"metadata_max_age_ms": 10, "connections_max_idle_ms": 100},
    {"auto_offset_reset": "by_duration:P1D", "allow_auto_create_topics": "false"},
    {"fetch.message.max.bytes": 100, "fetch.wait.max.ms": 20, "auto.offset.reset": "smallest"},
]


@pytest.mark.parametrize(
    ("producing", "consuming"), [*((p, {}) for p in PRODUCING), *(({}, c) for c in CONSUMING)]
)
def test_whatever_is_set_all_arrives(broker, topic, producing, consuming):
    values = [b"%03d" % n * 20 for n in range(100)]

    async def scenario() -> None:
        async with Producer(bootstrap(broker, **producing)) as producer:
            sent = [await producer.send(topic, v, b"k%d" % n) for n, v in enumerate(values)]
            await asyncio.gather(*sent)
        found = await read(broker, topic, **consuming)
        assert sorted(record.value for of in found.values() for record in of) == values

    asyncio.run(scenario())


class Marks(ProducerInterceptor):
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def on_send(self, record):
        return record._replace(headers=[*record.headers, ("mark", b"1")])

    def on_acknowledgement(self, metadata, error):
        self.offsets.append(metadata.offset)


def test_values_pass_serializers_interceptors_and_a_partitioner(broker, topic):
    orders = [{"id": n, "text": "ü" * n} for n in range(30)]
    marks = Marks()

    async def scenario() -> None:
        async with Producer(
            bootstrap(broker, key_serializer="LongSerializer"),
            value_serializer=lambda order: json.dumps(order).encode(),
            partitioner=lambda topic, key, partitions, available: key[-1] % partitions,
            interceptors=[marks],
        ) as producer:
            for order in orders:
                await producer.send(topic, order, order["id"])
            await producer.flush()
        found = []
        async with Consumer(
            bootstrap(broker, auto_offset_reset="earliest", key_deserializer="LongDeserializer"),
            value_deserializer=json.loads,
        ) as consumer:
            consumer.assign([TopicPartition(topic, n) for n in range(3)])
            while len(found) < len(orders):
                found += await consumer.poll(10_000)
        assert sorted((r.value for r in found), key=lambda order: order["id"]) == orders
        assert all(r.partition == r.key % 3 == r.value["id"] % 3 for r in found)
        assert all(r.headers == (("mark", b"1"),) for r in found)
        assert sorted(marks.offsets) == sorted(r.offset for r in found)

    asyncio.run(scenario())


def test_an_offset_out_of_range_is_reset_or_told(broker, topic):
    one = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Producer(bootstrap(broker)) as producer:
            for n in range(10):
                await producer.send(topic, b"%d" % n, partition=0)
        for reset, position in (("earliest", 0), ("latest", 10), ("by_duration:P1D", 0)):
            async with Consumer(bootstrap(broker, auto_offset_reset=reset)) as consumer:
                consumer.assign([one])
                await consumer.seek(one, 11)
                assert len(await consumer.poll(10_000 if position == 0 else 500)) == 10 - position
                assert await consumer.position(one) == 10
        async with Consumer(bootstrap(broker, auto_offset_reset="none")) as consumer:
            consumer.assign([one])
            await consumer.seek(one, 11)
            with pytest.raises(KafkaError, match="Fetch position 11 is out of range") as caught:
                await consumer.poll(10_000)
            assert caught.value.code is ErrorCode.offset_out_of_range
            await consumer.seek_to_beginning([one])
            assert len(await consumer.poll(10_000)) == 10

    asyncio.run(scenario())


def test_a_log_that_was_cut_off_at_its_start_is_read_from_there(broker, topic):
    if ApiKey.DELETE_RECORDS not in brokers.served_versions(broker.address):
        pytest.skip("this broker deletes no records yet")
    one = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Producer(bootstrap(broker)) as producer:
            for n in range(50):
                await producer.send(topic, b"%d" % n, partition=0)
            await producer.flush()
            async with Consumer(bootstrap(broker, auto_offset_reset="earliest")) as consumer:
                consumer.assign([one])
                await consumer.seek(one, 3)
                with WireClient(broker.address) as client:
                    cut = [{"partition_index": 0, "offset": 33}]
                    topics = [{"name": topic, "partitions": cut}]
                    client.call(
                        ApiKey.DELETE_RECORDS, 1, topics=topics, timeout=milliseconds(30_000)
                    )
                assert await consumer.beginning_offsets([one]) == {one: 33}
                found: list[ConsumerRecord] = []
                while len(found) < 17:
                    found += await consumer.poll(10_000)
                assert [r.offset for r in found] == list(range(33, 50))
                (by_time,) = (await consumer.offsets_for_times({one: 0})).values()
                assert by_time.offset == 33

    asyncio.run(scenario())


def test_a_compacted_log_is_read_across_its_gaps(broker):
    name = brokers.create_topic(
        broker.address,
        f"compacted{next(_names)}",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.01,
        segment_ms=1,
    )
    one = TopicPartition(name, 0)

    async def scenario() -> None:
        async with Producer(bootstrap(broker)) as producer:
            for n in range(40):
                sent = [await producer.send(name, b"%d" % n, b"k%d" % k) for k in range(5)]
                await asyncio.gather(*sent)
        for _ in range(600):  # wait for the cleaner
            found = (await read(broker, name, 1))[0]
            if len(found) < 100:
                break
            await asyncio.sleep(0.05)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert len(offsets) < 100
        last = {record.key: record.value for record in found}
        assert last == {b"k%d" % k: b"39" for k in range(5)}
        async with Consumer(bootstrap(broker, auto_offset_reset="earliest")) as consumer:
            consumer.assign([one])
            for gone in sorted(set(range(offsets[-1])) - set(offsets))[:20]:
                await consumer.seek(one, gone)
                assert (await consumer.poll(10_000))[0].offset > gone
            await consumer.seek_to_end()
            assert await consumer.position(one) == 200
            assert await consumer.end_offsets([one]) == {one: 200}

    asyncio.run(scenario())


def test_a_topic_that_is_gone_keeps_no_other_waiting(broker, topic):
    gone = brokers.create_topic(broker.address, f"{topic}-gone", partitions=1)
    assigned = [TopicPartition(gone, 0), TopicPartition(topic, 0)]
    settings = {"auto_offset_reset": "earliest", "allow_auto_create_topics": "false"}

    async def scenario() -> None:
        async with Admin(bootstrap(broker)) as admin:
            await admin.delete_topics([gone])
            async with asyncio.timeout(30):
                while gone in {listed.name for listed in await admin.list_topics()}:
                    await asyncio.sleep(0.05)
        async with Producer(bootstrap(broker)) as producer:
            await (await producer.send(topic, b"v", partition=0))
        async with Consumer(bootstrap(broker, **settings)) as consumer:
            consumer.assign(assigned)
            assert [record.value for record in await consumer.poll(30_000)] == [b"v"]

    asyncio.run(scenario())
