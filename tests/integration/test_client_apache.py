"""The client library against real brokers: ours, and Apache Kafka 4.3.1 and 3.9.2."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kcli.client.admin import Admin, CreatedTopic, NewPartitions, NewTopic, ResourceType
from kcli.client.blocking import Blocking
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer import Consumer, ConsumerRecord
from kcli.client.identity import INIT_PRODUCER_ID
from kcli.client.partitioner import partition_for_key
from kcli.client.producer import Producer
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.peer import Peer
from kserver.wire.batch import TimestampType, encode_batch
from kserver.wire.compression import Compression
from kserver.wire.versions import request
from tests.support import apache_kafka, brokers
from tests.support.tools import require

APACHE = ("4.3.1", "3.9.2")
_names = itertools.count(1)


@pytest.fixture(scope="module", params=[brokers.OURS, *APACHE])
def broker(request, tmp_path_factory) -> Iterator[brokers.Broker]:
    with brokers.running(request.param, tmp_path_factory.mktemp("broker")) as running:
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
    config = ConsumerConfig.of(bootstrap(broker, auto_offset_reset="earliest", **settings))
    async with Consumer(config) as consumer:
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


ADD_PARTITIONS_TO_TXN, END_TXN, FIND_COORDINATOR, PRODUCE = 24, 26, 10, 0


async def transaction(peer: Peer, name: str, topic: str, values: list[bytes], commit: bool) -> None:
    """Begin, write one batch to partition 0, and end: by hand."""
    new = request(INIT_PRODUCER_ID, 2)
    timeout = datetime.timedelta(seconds=60)
    while True:
        answer = await peer.call(new(transactional_id=name, transaction_timeout=timeout))
        if answer.error_code is ErrorCode.none:
            break
        assert answer.error_code.retriable or answer.error_code is ErrorCode.not_coordinator
        find = request(FIND_COORDINATOR, 2)
        await peer.call(find(key=name, key_type=1))
    who = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    new = request(ADD_PARTITIONS_TO_TXN, 3)
    topics = [new.v3_and_below_topics(name=topic, partitions=(0,))]
    named = {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": answer.producer_id,
        "v3_and_below_producer_epoch": answer.producer_epoch,
        "v3_and_below_topics": topics,
    }
    while True:
        added = await peer.call(new(**named))
        code = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        if code is ErrorCode.none:
            break
        assert code.retriable
    batch = encode_batch(
        [(1000, None, value, ()) for value in values],
        base_sequence=0,
        transactional=True,
        **who,
    )
    new = request(PRODUCE, 9)
    data = new.topic_data.partition_data(index=0, records=batch)
    produced = await peer.call(
        new(
            transactional_id=name,
            acks=-1,
            timeout=timeout,
            topic_data=[new.topic_data(name=topic, partition_data=[data])],
        )
    )
    assert produced.responses[0].partition_responses[0].error_code is ErrorCode.none
    new = request(END_TXN, 3)
    while True:
        ended = await peer.call(new(transactional_id=name, committed=commit, **who))
        if ended.error_code is ErrorCode.none:
            break
        assert ended.error_code.retriable


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
