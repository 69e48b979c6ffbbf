"""The producer and its sender, against a broker that answers as each test wants."""

from __future__ import annotations

import asyncio
import datetime
import random
from collections.abc import Callable

import pytest

from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError, TimedOut
from kcli.client.identity import INIT_PRODUCER_ID
from kcli.client.lane import Delivered, RecordMetadata
from kcli.client.produce import PRODUCE
from kcli.client.producer import Producer
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.batch import RecordBatch, batches
from kserver.wire.compression import Compression
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import METADATA, ScriptedBroker
from tests.unit.client.test_cluster import metadata

OK = ErrorCode.none


class Topic:
    """What a broker keeps of one topic, and how it answers: `verdict(batch)` is a code, or None to
    say nothing."""

    def __init__(self) -> None:
        self.log: list[RecordBatch] = []
        self.verdict: Callable[[RecordBatch], ErrorCode | None] = lambda batch: OK
        self.append_time: datetime.datetime | None = None

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.log for record in batch.records()]

    def handle(self, request):
        reply = reply_to(request)
        responses = []
        for topic in request.topic_data:
            partitions = []
            for p in topic.partition_data:
                (batch,) = batches(p.records)
                code = self.verdict(batch)
                if code is None:
                    return None
                offset = -1
                if code is OK:
                    offset = sum(b.count for b in self.log)
                    self.log.append(batch)
                partitions.append(
                    reply.responses.partition_responses(
                        index=p.index,
                        error_code=code,
                        base_offset=offset,
                        log_append_time=self.append_time,
                    )
                )
            named = {
                "topic_id": getattr(topic, "topic_id", None),
                "name": getattr(topic, "name", ""),
            }
            responses.append(reply.responses(**named, partition_responses=partitions))
        return reply(responses=responses)


def identity(request):
    return reply_to(request)(error_code=OK, producer_id=7, producer_epoch=0)


def run(scenario, *, produce_versions=None, partitions: int = 1, on_batch=None, **settings: str):
    async def main(loop: SimLoop):
        broker, topic = ScriptedBroker(loop, "broker-0"), Topic()
        leads = [(0, 1)] * partitions
        broker.on(METADATA, metadata(broker, topics=[("t", OK, *leads)]))
        broker.on(INIT_PRODUCER_ID, identity)
        broker.on(PRODUCE, topic.handle, produce_versions)
        await broker.start()
        given = {"bootstrap.servers": "broker-0:9092"}
        config = ProducerConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        producer = Producer(config, now_ms=lambda: 1234, chance=random.Random(1), on_batch=on_batch)
        await producer.start()
        try:
            return await scenario(producer, broker, topic)
        finally:
            await producer.close(timeout_ms=0)

    return simulate(main, 1)


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
        assert {r.__version__ for r in broker.asked(PRODUCE)} == {version}

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
        assert not broker.asked(INIT_PRODUCER_ID)

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
        assert [r.acks for r in broker.asked(PRODUCE)] == [-1 if acks == "all" else int(acks)]

    run(scenario, acks=acks)


def test_a_refusal_that_is_final_is_told_with_its_code():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: ErrorCode.topic_authorization_failed
        with pytest.raises(KafkaError) as caught:
            await (await producer.send("t", b"v"))
        assert caught.value.code is ErrorCode.topic_authorization_failed
        assert len(broker.asked(PRODUCE)) == 1

    run(scenario)


def test_a_retriable_refusal_is_tried_again_with_pauses_until_it_succeeds():
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        await producer.partitions_for("t")
        refusals = iter([ErrorCode.not_enough_replicas] * 3 + [OK])
        topic.verdict = lambda batch: next(refusals)
        start = loop.time()
        assert (await (await producer.send("t", b"v"))).offset == 0
        # 100, 200 and 400 ms, each a fifth more or less, and the linger.
        assert 0.5 < loop.time() - start < 1

    run(scenario)


def test_retries_have_a_limit_if_one_is_set():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: ErrorCode.not_enough_replicas
        with pytest.raises(KafkaError, match="not_enough_replicas"):
            await (await producer.send("t", b"v"))
        assert len(broker.asked(PRODUCE)) == 3

    run(scenario, retries="2")


def test_a_record_that_is_not_delivered_in_time_expires():
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        topic.verdict = lambda batch: ErrorCode.not_enough_replicas
        sent = await producer.send("t", b"v")
        start = loop.time()
        text = r"Expiring 1 record\(s\) for t-0:3000 ms has passed since batch creation"
        with pytest.raises(TimedOut, match=text):
            await sent
        assert loop.time() - start == pytest.approx(3, abs=0.01)
        topic.verdict = lambda batch: OK
        assert (await (await producer.send("t", b"w"))).offset == 0

    run(scenario, delivery_timeout_ms="3000", request_timeout_ms="1000")


def test_a_record_in_flight_expires_too():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: None
        with pytest.raises(TimedOut, match="Expiring"):
            await (await producer.send("t", b"v"))

    run(scenario, delivery_timeout_ms="2500", request_timeout_ms="2000")


def test_a_batch_that_the_broker_finds_too_large_is_sent_in_halves():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: ErrorCode.message_too_large if batch.count > 2 else OK
        sent = [await producer.send("t", b"%d" % n) for n in range(9)]
        outcomes = await asyncio.gather(*sent)
        assert [o.offset for o in outcomes] == list(range(9))
        assert topic.values() == [b"%d" % n for n in range(9)]
        ends = [b.base_sequence + b.count for b in topic.log]
        assert [b.base_sequence for b in topic.log] == [0, *ends[:-1]]

    run(scenario)


def test_one_record_that_is_too_large_fails_and_what_follows_does_not():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: (
            ErrorCode.message_too_large if b"big" in bytes(batch.buffer) else OK
        )
        sent = [await producer.send("t", v) for v in (b"1", b"big", b"2")]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(outcomes[1], KafkaError)
        assert topic.values() == [b"1", b"2"]

    run(scenario)


def test_a_lost_connection_costs_nothing():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: None
        sent = [await producer.send("t", b"%d" % n) for n in range(3)]
        await asyncio.sleep(0.5)
        topic.verdict = lambda batch: OK
        broker.drop()
        outcomes = await asyncio.gather(*sent)
        assert [o.offset for o in outcomes] == [0, 1, 2]

    run(scenario)


def test_a_leader_that_moved_is_followed():
    async def main(loop: SimLoop):
        old, new = (ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(2))
        topics = Topic(), Topic()
        topics[0].verdict = lambda batch: ErrorCode.not_leader_or_follower
        leads = {"now": (0, 1)}

        def leading(request):
            return metadata(old, new, topics=[("t", OK, leads["now"])])(request)

        for broker, topic in zip((old, new), topics, strict=True):
            broker.on(
                METADATA,
                lambda request: metadata(old, new, topics=[("t", OK, leads["now"])])(request),
            )
            broker.on(INIT_PRODUCER_ID, identity)
            broker.on(PRODUCE, topic.handle)
            await broker.start()
        config = ProducerConfig.of({"bootstrap.servers": "broker-0:9092"})
        async with Producer(config, chance=random.Random(1)) as producer:
            sent = await producer.send("t", b"v")
            await asyncio.sleep(0.5)
            leads["now"] = (1, 2)
            await sent
        assert topics[1].values() == [b"v"]

    simulate(main, 1)


def test_at_most_five_requests_are_out_and_what_waits_gathers():
    async def scenario(producer, broker, topic):
        most = out = 0

        async def slowly(request):
            nonlocal most, out
            out += 1
            most = max(most, out)
            await asyncio.sleep(0.01)
            out -= 1
            return topic.handle(request)

        async def concurrently(request):
            return await asyncio.ensure_future(slowly(request))

        broker.on(PRODUCE, concurrently)
        sent = []
        for n in range(40):
            sent.append(await producer.send("t", b"%d" % n))
            await asyncio.sleep(0.001)
        await asyncio.gather(*sent)
        assert topic.values() == [b"%d" % n for n in range(40)]
        assert len(topic.log) < 20

    run(scenario, linger_ms="0")


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


def test_an_unknown_topic_is_asked_for_until_max_block():
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        with pytest.raises(TimedOut, match="Topic x not present in metadata after 2000 ms"):
            await producer.send("x", b"v")
        assert loop.time() == pytest.approx(2, abs=0.1)
        assert len(broker.asked(METADATA)) > 3
        assert all(r.allow_auto_topic_creation for r in broker.asked(METADATA))
        assert (await (await producer.send("t", b"v"))).offset == 0

    run(scenario, max_block_ms="2000")


def test_a_topic_that_may_not_be_written_is_refused_at_once():
    async def scenario(producer, broker, topic):
        refused = ErrorCode.topic_authorization_failed
        broker.on(METADATA, metadata(broker, topics=[("x", refused)]))
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
        await producer.flush()
        assert heard == [(None, RecordMetadata("t", 0, 0, 1234))]

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


def test_whole_batches_are_heard_of():
    heard: list[Delivered] = []

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


def test_a_broker_that_refuses_the_identity_for_good_fails_everything():
    async def scenario(producer, broker, topic):
        refused = ErrorCode.cluster_authorization_failed
        broker.on(INIT_PRODUCER_ID, lambda request: reply_to(request)(error_code=refused))
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await (await producer.send("t", b"v"))
            assert caught.value.code is refused

    run(scenario)


def test_the_identity_is_asked_for_again_while_the_broker_is_not_ready():
    async def scenario(producer, broker, topic):
        not_ready = ErrorCode.coordinator_load_in_progress
        answers = iter([not_ready, not_ready, OK])
        broker.on(
            INIT_PRODUCER_ID,
            lambda request: reply_to(request)(
                error_code=next(answers), producer_id=7, producer_epoch=0
            ),
        )
        assert (await (await producer.send("t", b"v"))).offset == 0

    run(scenario)


def test_a_broker_that_throttles_is_left_alone_for_that_time():
    async def scenario(producer, broker, topic):
        def throttled(request):
            answer = topic.handle(request)
            reply = reply_to(request)
            return reply(responses=answer.responses, throttle_time=datetime.timedelta(seconds=3))

        broker.on(PRODUCE, throttled)
        loop = asyncio.get_running_loop()
        await (await producer.send("t", b"1"))
        start = loop.time()
        await (await producer.send("t", b"2"))
        assert loop.time() - start == pytest.approx(3, abs=0.1)

    run(scenario)


def test_an_answer_that_leaves_a_partition_out_counts_as_lost():
    async def scenario(producer, broker, topic):
        full = topic.handle

        def partial(request):
            answer = full(request)
            broker.on(PRODUCE, full)
            topic.log.clear()
            reply = reply_to(request)
            others = [
                reply.responses(
                    topic_id=r.topic_id,
                    partition_responses=[
                        reply.responses.partition_responses(index=9, error_code=OK, base_offset=0)
                    ],
                )
                for r in answer.responses
            ]
            return reply(responses=others)

        broker.on(PRODUCE, partial)
        assert (await (await producer.send("t", b"v"))).offset == 0
        assert topic.values() == [b"v"]

    run(scenario)


def test_several_partitions_of_a_leader_share_a_request():
    async def scenario(producer, broker, topic):
        sent = [await producer.send("t", b"%d" % n, partition=n) for n in range(4)]
        outcomes = await asyncio.gather(*sent)
        assert [o.partition for o in outcomes] == [0, 1, 2, 3]
        (request,) = broker.asked(PRODUCE)
        assert [p.index for p in request.topic_data[0].partition_data] == [0, 1, 2, 3]

    run(scenario, partitions=4)


def test_a_request_is_no_larger_than_max_request_size():
    async def scenario(producer, broker, topic):
        sent = [await producer.send("t", b"x" * 400, partition=n) for n in range(4)]
        await asyncio.gather(*sent)
        assert [len(r.topic_data[0].partition_data) for r in broker.asked(PRODUCE)] == [2, 2]

    run(scenario, partitions=4, max_request_size="1000")
