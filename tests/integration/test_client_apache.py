"""The client library against real brokers: ours, and Apache Kafka 4.3.1 and 3.9.2."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest

from kcli.client.admin import Admin, CreatedTopic, NewPartitions, NewTopic, ResourceType
from kcli.client.blocking import Blocking
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer import Consumer, ConsumerRecord
from kcli.client.partitioner import partition_for_key
from kcli.client.producer import Producer, ProducerInterceptor
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.peer import Peer
from kserver.wire.batch import TimestampType
from kserver.wire.compression import Compression
from tests.support import apache_kafka, brokers
from tests.support.tools import require
from tests.support.transactions import END_TXN, transaction
from tests.support.wire_client import WireClient, milliseconds

APACHE = ("4.3.1", "3.9.2")
SETTINGS = {"log.cleaner.backoff.ms": 100}
DELETE_RECORDS = 21
_names = itertools.count(1)


@pytest.fixture(scope="module", params=[brokers.OURS, *APACHE])
def broker(request, tmp_path_factory) -> Iterator[brokers.Broker]:
    kind, directory = request.param, tmp_path_factory.mktemp("broker")
    with brokers.running(kind, directory, SETTINGS) as running:
        running.kind = request.param
        yield running


@pytest.fixture
def topic(broker) -> str:
    return brokers.create_topic(broker.address, f"t{next(_names)}", partitions=3)


def bootstrap(broker: brokers.Broker, **settings: object) -> dict[str, str]:
    given = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return {"bootstrap.servers": broker.address} | given


async def read(
    broker: brokers.Broker, topic: str, partitions: int = 3, **settings: object
) -> dict[int, list[ConsumerRecord]]:
    """All records of a topic, by partition."""
    all_of = [TopicPartition(topic, n) for n in range(partitions)]
    found: dict[int, list[ConsumerRecord]] = {n: [] for n in range(partitions)}
    given = {"auto_offset_reset": "earliest"} | settings
    async with Consumer(ConsumerConfig.of(bootstrap(broker, **given))) as consumer:
        consumer.assign(all_of)
        ends = await consumer.end_offsets(all_of)
        while [p for p, end in ends.items() if await consumer.position(p) < end]:
            for record in await consumer.poll(1000):
                found[record.partition].append(record)
    return found


def test_topics_are_made_described_changed_and_deleted(broker):
    a, b = f"a{next(_names)}", f"b{next(_names)}"

    async def scenario() -> None:
        async with Admin(AdminConfig.of(bootstrap(broker))) as admin:
            brokers_now = await admin.nodes()
            me = brokers_now[0].id
            made = await admin.create_topics(
                [
                    NewTopic(a, 3, 1, config={"retention.ms": "1234"}),
                    NewTopic(b, assignments={0: [me], 1: [me]}),
                    NewTopic("no such name", 1, 1),
                    NewTopic("too-many", 1, 9),
                ]
            )
            assert isinstance(made[a], CreatedTopic)
            assert (made[a].partitions, made[b].partitions) == (3, 2)
            assert made["no such name"].code is ErrorCode.invalid_topic_exception
            assert made["too-many"].code is ErrorCode.invalid_replication_factor
            again = await admin.create_topics([NewTopic(a, 1, 1)])
            assert again[a].code is ErrorCode.topic_already_exists
            dry = await admin.create_topics([NewTopic("dry", 1, 1)], validate_only=True)
            assert isinstance(dry["dry"], CreatedTopic)

            listed = {t.name: t for t in await admin.list_topics()}
            assert {a, b} <= set(listed)
            assert "dry" not in listed
            described = await admin.describe_topics([b, a, "nope"], page_size=2)
            assert described["nope"].code is ErrorCode.unknown_topic_or_partition
            assert [p.partition for p in described[a].partitions] == [0, 1, 2]
            assert all(p.leader == me and p.replicas == (me,) for p in described[a].partitions)
            by_id = await admin.describe_topics_by_id([listed[a].id])
            assert by_id[listed[a].id].name == a

            grown = await admin.create_partitions({a: NewPartitions(5), b: NewPartitions(1)})
            assert grown[a] is None
            assert grown[b].code is ErrorCode.invalid_partitions

            (config,) = (
                await admin.describe_configs([(ResourceType.TOPIC, a)], keys=["retention.ms"])
            ).values()
            assert [(c.name, c.value, c.is_default) for c in config] == [
                ("retention.ms", "1234", False)
            ]
            gone = await admin.delete_topics([a, b, "nope"])
            assert (gone[a], gone[b]) == (None, None)
            assert gone["nope"].code is ErrorCode.unknown_topic_or_partition
            c = (await admin.create_topics([NewTopic(f"{a}-by-id", 1, 1)]))[f"{a}-by-id"].id
            gone = await admin.delete_topics_by_id([c, UUID(int=99)])
            assert gone[c] is None
            assert gone[UUID(int=99)].code is ErrorCode.unknown_topic_id

    asyncio.run(scenario())


def test_the_cluster_tells_who_it_is(broker):
    async def scenario() -> None:
        async with Admin(AdminConfig.of(bootstrap(broker))) as admin:
            described = await admin.describe_cluster()
            nodes = await admin.nodes()
            assert described.brokers == nodes
            assert described.controller_id in {node.id for node in nodes}
            assert described.cluster_id
            assert {0, 1, 3, 18} <= set(await admin.api_versions(nodes[0]))
            assert await admin.list_reassignments() == {}
            (coordinator,) = (await admin.find_coordinators(["some-group"])).values()
            if isinstance(coordinator, KafkaError):
                assert coordinator.code is ErrorCode.coordinator_not_available
            else:
                assert coordinator.id in {node.id for node in nodes}

    asyncio.run(scenario())


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
        for _ in range(100):  # nobody says when records with acks=0 are there
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
    if DELETE_RECORDS not in brokers.served_versions(broker.address):
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
                    client.call(DELETE_RECORDS, 1, topics=topics, timeout=milliseconds(30_000))
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
        for _ in range(600):  # the cleaner takes its turn when it likes
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


def tool(version: str, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, apache_kafka.__file__, "tool", version, *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_what_javas_producer_writes_is_read_and_its_keys_go_where_ours_go(broker, topic):
    require("java")
    lines = "".join(f"h:{n}\tkey-{n},value-{n}\n" for n in range(50))
    tool(
        APACHE[0],
        "kafka-console-producer.sh",
        *("--bootstrap-server", broker.address, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "key.separator=,"),
        *("--compression-codec", "lz4"),
        stdin=lines,
    )
    found = asyncio.run(read(broker, topic))
    records = [record for partition in found.values() for record in partition]
    assert {(r.key, r.value, r.headers) for r in records} == {
        (b"key-%d" % n, b"value-%d" % n, (("h", b"%d" % n),)) for n in range(50)
    }
    assert all(record.partition == partition_for_key(record.key, 3) for record in records)


def test_javas_consumer_reads_what_is_written_here(broker, topic):
    require("java")

    async def scenario() -> None:
        headers = [("h", b"x")]
        for codec in Compression:
            config = ProducerConfig.of(bootstrap(broker, compression_type=codec.name))
            async with Producer(config) as producer:
                value = codec.name.encode()
                await producer.send(topic, value, b"k", 0, timestamp=codec, headers=headers)

    asyncio.run(scenario())
    printed = tool(
        APACHE[0],
        "kafka-console-consumer.sh",
        *("--bootstrap-server", broker.address, "--topic", topic, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", "5"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.timestamp=true"),
    )
    assert printed.splitlines() == [
        f"CreateTime:{codec}\th:x\tk\t{codec.name}" for codec in Compression
    ]


def test_read_committed_shows_what_was_committed_and_nothing_else(broker, topic):
    async def scenario() -> None:
        host, _, port = broker.address.rpartition(":")
        peer = await Peer.connect(host, int(port))
        if END_TXN not in peer.versions:
            peer.close()
            pytest.skip("this broker has no transactions yet")
        async with Producer(ProducerConfig.of(bootstrap(broker))) as producer:
            for n in range(6):
                await producer.send(topic, b"plain", partition=0)
                await producer.flush()
                values = [b"aborted" if n % 2 else b"committed"] * 3
                await transaction(peer, f"tx-{topic}-{n % 3}", topic, values, commit=not n % 2)
        peer.close()
        expected = [b"plain", *[b"committed"] * 3, b"plain"] * 3
        for _ in range(100):  # markers are written after the answer
            found = (await read(broker, topic, isolation_level="read_committed"))[0]
            if len(found) == len(expected):
                break
        assert [record.value for record in found] == expected
        everything = [r.value for r in (await read(broker, topic))[0]]
        assert everything.count(b"aborted") == 9

    asyncio.run(scenario())
