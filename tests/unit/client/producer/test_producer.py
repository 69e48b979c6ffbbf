"""What the producer promises, against a broker that answers as each test wants."""

from __future__ import annotations

import asyncio
import datetime

import pytest

from kcli.client.errors import ClientError, TimedOut
from kcli.client.producer.partition_queue import BatchResult, RecordMetadata
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.compression import Compression
from tests.support.producing import run
from tests.support.scripted_broker import metadata


@pytest.mark.parametrize("version", range(3, 14))
def test_records_arrive_in_every_version_as_they_were_given(version):
    async def scenario(producer, broker, topic):
        sent = [
            await producer.send("t", b"v", b"k", headers=[("h", b"1"), ("h", None)]),
            await producer.send("t", None, timestamp=99),
            await producer.send("t", b""),
        ]
        outcomes = await asyncio.gather(*sent)
        assert outcomes == [
            RecordMetadata("t", 0, 0, 1234),
            RecordMetadata("t", 0, 1, 99),
            RecordMetadata("t", 0, 2, 1234),
        ]
        (batch,) = topic.log
        assert batch.is_valid_crc()
        assert [tuple(record) for record in batch.records()] == [
            (0, 1234, b"k", b"v", (("h", b"1"), ("h", None))),
            (1, 99, None, None, ()),
            (2, 1234, None, b"", ()),
        ]
        assert {r.__version__ for r in broker.asked(ApiKey.PRODUCE)} == {version}

    run(scenario, produce_versions=(version, version))


@pytest.mark.parametrize("codec", [c.name for c in Compression])
def test_batches_are_compressed_as_configured(codec):
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"x" * 1000))
        (batch,) = topic.log
        assert batch.compression.name == codec
        assert batch.records()[0].value == b"x" * 1000

    run(scenario, compression_type=codec)


def test_batches_carry_the_producers_identity_and_sequences():
    async def scenario(producer, broker, topic):
        for n in range(3):
            await (await producer.send("t", b"%d" % n))
        assert [(b.producer_id, b.producer_epoch, b.base_sequence) for b in topic.log] == [
            (7, 0, 0),
            (7, 0, 1),
            (7, 0, 2),
        ]

    run(scenario)


def test_without_idempotence_they_have_none_and_no_identity_is_fetched():
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        (batch,) = topic.log
        assert (batch.producer_id, batch.base_sequence) == (-1, -1)
        assert not broker.asked(ApiKey.INIT_PRODUCER_ID)

    run(scenario, enable_idempotence="false")


def test_what_is_sent_within_the_linger_goes_together():
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        await producer.partitions_for("t")
        start = loop.time()
        first = await producer.send("t", b"1")
        await asyncio.sleep(0.05)
        await producer.send("t", b"2")
        await first
        assert 0.1 <= loop.time() - start < 0.12
        assert [b.count for b in topic.log] == [2]

    run(scenario, linger_ms="100")


def test_a_full_batch_does_not_wait_for_the_linger():
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        await producer.partitions_for("t")
        for _ in range(3):
            await producer.send("t", b"x" * 60)
        await asyncio.sleep(1)
        assert [b.count for b in topic.log] == [1, 1]
        assert loop.time() < 2

    run(scenario, linger_ms="60000", batch_size="150", delivery_timeout_ms="200000")


def test_flush_sends_what_lingers_and_waits_for_its_outcome():
    async def scenario(producer, broker, topic):
        sent = [await producer.send("t", b"%d" % n) for n in range(5)]
        await producer.flush()
        assert all(outcome.done() for outcome in sent)
        assert topic.values() == [b"%d" % n for n in range(5)]
        await producer.flush()

    run(scenario, linger_ms="60000", delivery_timeout_ms="200000")


def test_close_sends_what_is_left():
    async def scenario(producer, broker, topic):
        sent = await producer.send("t", b"v")
        await producer.close()
        assert (await sent).offset == 0
        with pytest.raises(ClientError, match="not started, or was closed"):
            await producer.send("t", b"v")

    run(scenario, linger_ms="60000", delivery_timeout_ms="200000")


def test_close_in_a_hurry_fails_what_is_left():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: None
        sent = await producer.send("t", b"v")
        await producer.close(timeout_ms=100)
        with pytest.raises(ClientError, match="the producer was closed"):
            await sent

    run(scenario)


def test_the_brokers_time_is_told_where_it_sets_timestamps():
    async def scenario(producer, broker, topic):
        topic.append_time = datetime.datetime.fromtimestamp(1700000000, datetime.UTC)
        assert (await (await producer.send("t", b"v"))).timestamp == 1700000000000

    run(scenario)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_are_asked_for_and_without_them_nothing_is_awaited(acks):
    async def scenario(producer, broker, topic):
        if acks == "0":
            topic.verdict = lambda batch: None
        outcome = await (await producer.send("t", b"v"))
        assert outcome.offset == (-1 if acks == "0" else 0)
        await asyncio.sleep(1)
        assert [r.acks for r in broker.asked(ApiKey.PRODUCE)] == [
            -1 if acks == "all" else int(acks)
        ]

    run(scenario, acks=acks)


def test_when_memory_is_full_sending_waits_and_everything_arrives():
    async def scenario(producer, broker, topic):
        sent = [await producer.send("t", b"%04d" % n * 10) for n in range(300)]
        await asyncio.gather(*sent)
        assert topic.values() == [b"%04d" % n * 10 for n in range(300)]

    run(
        scenario,
        buffer_memory="1000",
        batch_size="300",
        linger_ms="60000",
        delivery_timeout_ms="200000",
    )


def test_when_memory_stays_full_sending_is_given_up_after_max_block():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: None
        loop = asyncio.get_running_loop()
        await producer.ready("t")
        while producer.try_send("t", b"x" * 100):
            pass
        start = loop.time()
        with pytest.raises(TimedOut, match=r"Failed to allocate .* within .* 2000 ms"):
            await producer.send("t", b"x" * 100)
        assert loop.time() - start == pytest.approx(2, abs=0.1)

    run(scenario, buffer_memory="1000", batch_size="300", max_block_ms="2000")


@pytest.mark.parametrize("way", ["send", "ready"])
def test_an_unknown_topic_is_asked_for_until_max_block(way):
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        with pytest.raises(TimedOut, match="Topic x not present in metadata after 2000 ms"):
            await (producer.send("x", b"v") if way == "send" else producer.ready("x"))
        assert loop.time() == pytest.approx(2, abs=0.1)
        assert len(broker.asked(ApiKey.METADATA)) > 3
        assert all(r.allow_auto_topic_creation for r in broker.asked(ApiKey.METADATA))
        assert (await (await producer.send("t", b"v"))).offset == 0

    run(scenario, max_block_ms="2000")


def test_a_topic_that_may_not_be_written_is_refused_at_once():
    async def scenario(producer, broker, topic):
        refused = ErrorCode.topic_authorization_failed
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("x", refused)]))
        with pytest.raises(KafkaError) as caught:
            await producer.send("x", b"v")
        assert caught.value.code is refused
        assert asyncio.get_running_loop().time() < 1

    run(scenario)


def test_try_send_takes_what_it_can_and_says_when_it_cannot():
    async def scenario(producer, broker, topic):
        heard = []

        def told(error, metadata):
            heard.append((error, metadata))

        assert not producer.try_send("t", b"1", on_delivery=told)
        await producer.ready("t")
        assert producer.try_send("t", b"1", on_delivery=told)
        assert producer.try_send("t", b"2")
        await producer.ready("t")
        await producer.flush()
        assert heard == [(None, RecordMetadata("t", 0, 0, 1234))]
        assert asyncio.get_running_loop().time() < 1, "there was room all the time"

    run(scenario)


def test_a_callback_that_fails_does_not_stop_the_sending(caplog):
    async def scenario(producer, broker, topic):
        def fails(error, metadata):
            raise ValueError("the user's own")

        await producer.ready("t")
        producer.try_send("t", b"1", on_delivery=fails)
        assert (await (await producer.send("t", b"2"))).offset == 1

    run(scenario)
    assert "the user's own" in caplog.text


def test_many_values_can_be_sent_at_once():
    async def scenario(producer, broker, topic):
        values = [b"%d" % n for n in range(500)]
        assert producer.try_send_all("t", values) == 0
        sent = 0
        while sent < len(values):
            await producer.ready("t")
            sent += producer.try_send_all("t", values[sent:])
        await producer.flush()
        assert topic.values() == values

    run(scenario, batch_size="300", buffer_memory="1000")


@pytest.mark.parametrize("timestamp", [-1, 1 << 63])
def test_a_timestamp_that_the_format_cannot_hold_is_refused(timestamp):
    async def scenario(producer, broker, topic):
        with pytest.raises(KafkaError, match="Invalid timestamp") as caught:
            await producer.send("t", b"v", timestamp=timestamp)
        assert caught.value.code is ErrorCode.invalid_timestamp

    run(scenario)


def test_whole_batches_are_heard_of():
    heard: list[BatchResult] = []

    async def scenario(producer, broker, topic):
        await producer.ready("t")
        for n in range(3):
            producer.try_send("t", b"%d" % n, b"k")
        await producer.flush()
        topic.verdict = lambda batch: ErrorCode.invalid_timestamp
        producer.try_send("t", b"bad")
        await producer.flush()

    run(scenario, on_batch=heard.append)
    good, bad = heard
    assert (good.topic, good.partition, good.offset, good.error) == ("t", 0, 0, None)
    assert good.records == [(1234, b"k", b"%d" % n, ()) for n in range(3)]
    assert bad.error.code is ErrorCode.invalid_timestamp


def test_an_argument_of_the_wrong_kind_is_named():
    async def scenario(producer, broker, topic):
        with pytest.raises(ClientError, match="partition is a whole number, not '0'"):
            await producer.send("t", b"v", partition="0")
        with pytest.raises(ClientError, match="its timestamp is a str, not an int"):
            await producer.send("t", b"v", timestamp="5")
        assert topic.log == []

    run(scenario)
