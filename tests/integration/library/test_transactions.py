"""Test that transactions of the client library are visible completely or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from random import Random

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.blocking import Blocking
from kcli.client.config import ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import ProducerFenced, TransactionFailed
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from tests.support import brokers
from tests.support.real_clients import bootstrap, read
from tests.support.transactions import transaction

_names = itertools.count(1)


async def until_read(broker, topic: str, expected: list[bytes]) -> list[bytes]:
    """Return the values of committed records; markers are written after the response to the
    commit."""
    for _ in range(100):
        found = await read(broker, topic, isolation_level="read_committed")
        values = sorted(record.value for of in found.values() for record in of)
        if len(values) >= len(expected):
            break
    return values


def test_transactions_are_seen_whole_or_not_at_all(broker, topic):
    async def scenario() -> None:
        expected = []
        async with Producer(bootstrap(broker, transactional_id=topic)) as producer:
            await producer.init_transactions()
            for n in range(9):
                await producer.begin_transaction()
                values = [b"%d-%d" % (n, i) for i in range(30)]
                for i, value in enumerate(values):
                    await producer.send(topic, value, partition=i % 3)
                if n % 3 == 2:
                    await producer.abort_transaction()
                    continue
                await producer.commit_transaction()
                expected += values
            await producer.begin_transaction()
            await producer.send(topic, b"left open", partition=0)
            await producer.flush()
        assert await until_read(broker, topic, expected) == sorted(expected)
        everything = await read(broker, topic)
        assert b"left open" in {record.value for record in everything[0]}

    asyncio.run(scenario())


def test_a_failed_record_fails_its_transaction_and_the_next_succeeds(broker):
    name = brokers.create_topic(
        broker.address, f"tx{next(_names)}", partitions=3, max_message_bytes=1000
    )

    async def scenario() -> None:
        async with Producer(bootstrap(broker, transactional_id=name)) as producer:
            await producer.init_transactions()
            for n in range(3):
                await producer.begin_transaction()
                await producer.send(name, b"lost", partition=0)
                sent = await producer.send(name, b"x" * 2000, partition=1)
                with pytest.raises(TransactionFailed) as caught:
                    await producer.commit_transaction()
                assert caught.value.abortable
                assert caught.value.cause.code is ErrorCode.message_too_large
                with pytest.raises(KafkaError):
                    await sent
                await producer.abort_transaction()
                async with producer.transaction():
                    for partition in range(3):
                        await producer.send(name, b"%d" % n, partition=partition)
        expected = sorted(b"%d" % n for n in range(3) for _ in range(3))
        assert await until_read(broker, name, expected) == expected

    asyncio.run(scenario())


def test_a_producer_that_is_fenced_says_so_when_it_aborts(broker, topic):
    """Even if a record is in flight at that moment."""

    async def scenario() -> None:
        settings = bootstrap(broker, transactional_id=topic, linger_ms="0")
        async with Producer(settings) as older, Producer(settings) as newer:
            await older.init_transactions()
            await older.begin_transaction()
            await older.partitions_for(topic)
            await newer.init_transactions()
            await older.send(topic, b"zombie", partition=0)
            # Give the sender a turn: it sends the record, or AddPartitionsToTxn.
            await asyncio.sleep(0)
            for _ in range(2):
                with pytest.raises(ProducerFenced):
                    await older.abort_transaction()
            async with newer.transaction():
                await newer.send(topic, b"heir", partition=0)
        assert await until_read(broker, topic, [b"heir"]) == [b"heir"]

    asyncio.run(scenario())


def test_the_newer_of_two_producers_wins(broker, topic):
    async def scenario() -> None:
        settings = bootstrap(broker, transactional_id=topic)
        async with Producer(settings) as older, Producer(settings) as newer:
            await older.init_transactions()
            await older.begin_transaction()
            await older.send(topic, b"zombie", partition=0)
            await older.flush()
            await newer.init_transactions()
            async with newer.transaction():
                await newer.send(topic, b"newer", partition=0)
            with pytest.raises(TransactionFailed):
                await older.commit_transaction()
            async with newer.transaction():
                await newer.send(topic, b"again", partition=0)
        assert await until_read(broker, topic, [b"again", b"newer"]) == [b"again", b"newer"]

    asyncio.run(scenario())


def test_what_was_read_and_what_was_made_of_it_are_committed_together(broker, topic):
    """A loop that ends at random points and continues from the committed offsets."""
    out = brokers.create_topic(broker.address, f"{topic}-out", partitions=3)
    group, random = f"g-{topic}", Random(topic)
    partitions = [TopicPartition(topic, n) for n in range(3)]
    values = [b"%d" % n for n in range(90)]

    async def committed(admin: Admin) -> dict[TopicPartition, int]:
        while True:
            found = await admin.groups.offsets({group: partitions})
            if not isinstance(found[group], KafkaError):
                return {p: c.offset for p, c in found[group].items() if c is not None}
            assert found[group].code.retriable

    async def once() -> bool:
        """Run part of the loop; return whether all records have been read."""
        async with (
            Admin(bootstrap(broker)) as admin,
            Consumer(bootstrap(broker, auto_offset_reset="earliest")) as consumer,
            Producer(bootstrap(broker, transactional_id=group)) as producer,
        ):
            await producer.init_transactions()
            consumer.assign(partitions)
            for partition, offset in (await committed(admin)).items():
                await consumer.seek(partition, offset)
            ends = await consumer.end_offsets(partitions)
            for _ in range(random.randrange(1, 6)):
                if all([await consumer.position(p) >= end for p, end in ends.items()]):
                    return True
                await producer.begin_transaction()
                for record in await consumer.poll(1000, max_records=random.randrange(1, 20)):
                    await producer.send(out, b"made of " + record.value)
                positions = {p: await consumer.position(p) for p in partitions}
                await producer.send_offsets_to_transaction(positions, group)
                match random.randrange(4):
                    case 0:
                        await producer.abort_transaction()
                        return False
                    case 1:
                        return False
                await producer.commit_transaction()
            return False

    async def scenario() -> None:
        async with Producer(bootstrap(broker)) as producer:
            for n, value in enumerate(values):
                await producer.send(topic, value, partition=n % 3)
        while not await once():
            pass
        expected = sorted(b"made of " + value for value in values)
        assert await until_read(broker, out, expected) == expected

    asyncio.run(scenario())


def test_plain_threads_have_transactions_too(broker, topic):
    with Blocking(Producer, bootstrap(broker, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sent = producer.send(topic, b"v", partition=0)
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 5}, "some-group")
        producer.commit_transaction()
        assert sent.result(30).offset == 0
        with contextlib.suppress(ValueError), producer.transaction():
            producer.send(topic, b"w", partition=0)
            raise ValueError
        with producer.transaction():
            sent = producer.send(topic, b"x", partition=0)
        assert sent.result(30).offset > 1


def test_read_committed_shows_what_was_committed_and_nothing_else(broker, topic):
    async def scenario() -> None:
        host, _, port = broker.address.rpartition(":")
        peer = await Peer.connect(host, int(port))
        if ApiKey.END_TXN not in peer.versions:
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
        for _ in range(100):  # markers are written after the response
            found = (await read(broker, topic, isolation_level="read_committed"))[0]
            if len(found) == len(expected):
                break
        assert [record.value for record in found] == expected
        everything = [r.value for r in (await read(broker, topic))[0]]
        assert everything.count(b"aborted") == 9

    asyncio.run(scenario())
