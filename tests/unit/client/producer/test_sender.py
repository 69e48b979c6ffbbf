"""What becomes of batches that are refused, lost, late, too large or too many."""

from __future__ import annotations

import asyncio
import datetime
from random import Random

import pytest

from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError, TimedOut
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK, Topic, identity, run
from tests.support.scripted_broker import ScriptedBroker, metadata


def test_a_refusal_that_is_final_is_told_with_its_code():
    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: ErrorCode.topic_authorization_failed
        with pytest.raises(KafkaError) as caught:
            await (await producer.send("t", b"v"))
        assert caught.value.code is ErrorCode.topic_authorization_failed
        assert len(broker.asked(ApiKey.PRODUCE)) == 1

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
        assert len(broker.asked(ApiKey.PRODUCE)) == 3

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
                ApiKey.METADATA,
                lambda request: metadata(old, new, topics=[("t", OK, leads["now"])])(request),
            )
            broker.on(ApiKey.INIT_PRODUCER_ID, identity)
            broker.on(ApiKey.PRODUCE, topic.handle)
            await broker.start()
        config = ProducerConfig.of({"bootstrap.servers": "broker-0:9092"})
        async with Producer(config, random=Random(1)) as producer:
            sent = await producer.send("t", b"v")
            await asyncio.sleep(0.5)
            leads["now"] = (1, 2)
            await sent
        assert topics[1].values() == [b"v"]

    simulate(main, 1)


def test_a_pause_may_end_after_the_producer_though_the_leader_moved_meanwhile():
    async def main(loop: SimLoop):
        old, new = (ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(2))
        topic = Topic()
        topic.verdict = lambda batch: ErrorCode.not_enough_replicas

        def led(request):
            leader = (0, 1) if loop.time() < 0.5 else (1, 2)
            return metadata(old, new, topics=[("t", OK, leader)])(request)

        old.on(ApiKey.METADATA, led)
        old.on(ApiKey.INIT_PRODUCER_ID, identity)
        old.on(ApiKey.PRODUCE, topic.handle)
        await old.start()
        settings = {
            "bootstrap.servers": "broker-0:9092",
            "request.timeout.ms": "500",
            "delivery.timeout.ms": "520",
            "metadata.max.age.ms": "600",
            "retry.backoff.ms": "1000",
        }
        producer = Producer(ProducerConfig.of(settings), random=Random(1))
        await producer.start()
        with pytest.raises(TimedOut):
            await (await producer.send("t", b"v"))
        await asyncio.sleep(0.2)
        assert len(old.asked(ApiKey.METADATA)) > 1
        await producer.close(timeout_ms=0)
        await asyncio.sleep(2)

    simulate(main, 1)


@pytest.mark.parametrize("asked", [{}, {"key": b"k"}, {"partition": 0}])
@pytest.mark.parametrize("rule", ["", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_a_topic_without_partitions_is_waited_for_as_one_that_is_not_there(asked, rule):
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        has_one = metadata(broker, topics=[("t", OK, (0, 1))])
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", OK)]))
        with pytest.raises(TimedOut, match="Topic t not present in metadata after 3000 ms"):
            await producer.send("t", b"v", **asked)
        loop.call_later(1, broker.on, ApiKey.METADATA, has_one)
        assert (await (await producer.send("t", b"v", **asked))).offset == 0

    run(scenario, max_block_ms="3000", **({"partitioner_class": rule} if rule else {}))


GONE = ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_topic_that_was_deleted_is_not_asked_for_in_vain(is_idle):
    """As long as no record waits for it."""

    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", GONE), ("u", OK, (0, 1))]))
        await asyncio.sleep(60)
        asked = len(broker.asked(ApiKey.METADATA))
        await asyncio.sleep(100)
        # Once in metadata.max.age.ms while it counts as used.
        assert len(broker.asked(ApiKey.METADATA)) - asked == (0 if is_idle else 10)

    idle_ms = "5000" if is_idle else "300000"
    run(
        scenario,
        metadata_max_age_ms="10000" if not is_idle else "1000",
        metadata_max_idle_ms=idle_ms,
    )


@pytest.mark.parametrize("is_wanted", [True, False])
def test_another_topic_does_not_wait_for_one_that_was_deleted(is_wanted):
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", GONE), ("u", OK, (0, 1))]))
        waiting = []
        if is_wanted:
            topic.verdict = lambda batch: GONE
            waiting = [
                await producer.send("t", b"w"),
                asyncio.ensure_future(producer.send("s", b"")),
            ]
        # Until pauses would be as long as they get.
        await asyncio.sleep(30)
        topic.verdict = lambda batch: OK
        loop = asyncio.get_running_loop()
        start = loop.time()
        await (await producer.send("u", b"v"))
        assert loop.time() - start < 0.05
        for one in waiting:
            one.cancel()

    run(scenario, metadata_max_age_ms="1000", metadata_max_idle_ms="5000", linger_ms="0")


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

        broker.on(ApiKey.PRODUCE, concurrently)
        sent = []
        for n in range(40):
            sent.append(await producer.send("t", b"%d" % n))
            await asyncio.sleep(0.001)
        await asyncio.gather(*sent)
        assert topic.values() == [b"%d" % n for n in range(40)]
        assert len(topic.log) < 20

    run(scenario, linger_ms="0")


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"value": "x"}, "its value is a str, not bytes; encode it, or give .* a value_serializer"),
        ({"value": 5}, "its value is an int, not bytes"),
        ({"value": [1]}, "its value is a list, not bytes"),
        ({"key": "k"}, "its key is a str, not bytes; encode it, or give the producer a key_ser"),
        ({"key": 5}, "its key is an int, not bytes"),
        ({"headers": [(b"h", b"")]}, "the name of its header b'h' is a bytes, not a str; decode"),
        ({"headers": [("h", "x")]}, "its header h is a str, not bytes; encode it"),
        ({"headers": {"h": b"x"}}, "its headers hold 'h'; give pairs of a name and bytes"),
        ({"headers": 5}, "its headers are an int; give pairs"),
        ({"timestamp": 1.5}, "its timestamp is a float, not an int; give milliseconds"),
        ({"timestamp": "0"}, "its timestamp is a str, not an int"),
    ],
)
def test_what_cannot_be_encoded_is_told_with_the_remedy_and_what_follows_is_sent(
    bad, why, partitions
):
    async def scenario(producer, broker, topic):
        given = {"value": b"v"} | bad
        with pytest.raises(ClientError, match=f"a record for topic t cannot be sent: {why}"):
            await (await producer.send("t", **given))
        assert (await (await producer.send("t", b"w", partition=0))).partition == 0
        assert topic.values() == [b"w"]

    run(scenario, partitions=partitions)


@pytest.mark.parametrize("name", ["", None, 5, b"t"])
def test_what_no_topic_can_be_called_is_refused_without_asking(name):
    async def scenario(producer, broker, topic):
        for call in (producer.send(name, b"v"), producer.partitions_for(name)):
            with pytest.raises(ClientError, match=f"a topic is a str .* not empty, not {name!r}"):
                await call
        assert broker.asked(ApiKey.METADATA) == []

    run(scenario)


def test_values_that_are_offered_at_once_are_bytes():
    async def scenario(producer, broker, topic):
        await producer.partitions_for("t")
        with pytest.raises(ClientError, match="its value is an int, not bytes"):
            producer.try_send_all("t", [b"v", 5])

    run(scenario)


def test_a_broker_that_refuses_the_identity_for_good_fails_everything():
    async def scenario(producer, broker, topic):
        refused = ErrorCode.cluster_authorization_failed
        broker.on(ApiKey.INIT_PRODUCER_ID, lambda request: reply_to(request)(error_code=refused))
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
            ApiKey.INIT_PRODUCER_ID,
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

        broker.on(ApiKey.PRODUCE, throttled)
        loop = asyncio.get_running_loop()
        await (await producer.send("t", b"1"))
        start = loop.time()
        await (await producer.send("t", b"2"))
        assert loop.time() - start == pytest.approx(3, abs=0.1)

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.network_exception,
        ErrorCode.kafka_storage_error,
    ],
)
def test_what_may_have_been_appended_is_written_once_though_what_follows_is_refused(code):
    """Under its old sequence, before the new epoch that the refusal brings."""

    async def scenario(producer, broker, topic):
        tried = []

        def verdict(batch):
            (record,) = batch.records()
            named = batch.producer_epoch, batch.base_sequence
            is_known = named in [(b.producer_epoch, b.base_sequence) for b in topic.log]
            tried.append((record.value, *named))
            if is_known:
                return ErrorCode.duplicate_sequence_number
            if record.value == b"refused":
                return ErrorCode.topic_authorization_failed
            if record.value == b"appended":
                topic.log.append(batch)
                return code
            return OK

        await (await producer.send("t", b"first"))
        topic.verdict = verdict
        appended = await producer.send("t", b"appended")
        await asyncio.sleep(0)
        refused = await producer.send("t", b"refused")
        await appended
        with pytest.raises(KafkaError, match="topic_authorization_failed"):
            await refused
        assert tried == [(b"appended", 0, 1), (b"refused", 0, 2), (b"appended", 0, 1)]
        await (await producer.send("t", b"last"))
        assert tried[3:] == [(b"last", 1, 0)]
        assert topic.values() == [b"first", b"appended", b"last"]

    run(scenario, linger_ms="0")


def test_an_answer_that_leaves_a_partition_out_counts_as_lost():
    async def scenario(producer, broker, topic):
        full = topic.handle

        def partial(request):
            answer = full(request)
            broker.on(ApiKey.PRODUCE, full)
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

        broker.on(ApiKey.PRODUCE, partial)
        assert (await (await producer.send("t", b"v"))).offset == 0
        assert topic.values() == [b"v"]

    run(scenario)


def test_several_partitions_of_a_leader_share_a_request():
    async def scenario(producer, broker, topic):
        sent = [await producer.send("t", b"%d" % n, partition=n) for n in range(4)]
        outcomes = await asyncio.gather(*sent)
        assert [o.partition for o in outcomes] == [0, 1, 2, 3]
        (request,) = broker.asked(ApiKey.PRODUCE)
        assert [p.index for p in request.topic_data[0].partition_data] == [0, 1, 2, 3]

    run(scenario, partitions=4)


def test_a_request_is_no_larger_than_max_request_size():
    async def scenario(producer, broker, topic):
        sent = [await producer.send("t", b"x" * 400, partition=n) for n in range(4)]
        await asyncio.gather(*sent)
        assert [len(r.topic_data[0].partition_data) for r in broker.asked(ApiKey.PRODUCE)] == [2, 2]

    run(scenario, partitions=4, max_request_size="1000")


def test_a_batch_in_flight_keeps_its_memory_until_its_answer_though_it_expired():
    async def scenario(producer, broker, topic):
        loop = asyncio.get_running_loop()
        await producer.ready("t")
        start = loop.time()
        topic.verdict = lambda batch: (
            ErrorCode.not_enough_replicas if loop.time() < start + 1 else None
        )
        with pytest.raises(TimedOut, match="Expiring"):
            await (await producer.send("t", b"v"))
        asked_at = start + 1
        assert not producer.try_send("t", b"w")
        await producer.ready("t")
        # The request timed out, and with its connection it is gone.
        assert asked_at + 2 <= loop.time() < asked_at + 3
        topic.verdict = lambda batch: OK
        assert producer.try_send("t", b"w")

    run(
        scenario,
        buffer_memory="300",
        batch_size="300",
        delivery_timeout_ms="2500",
        request_timeout_ms="2000",
        retry_backoff_max_ms="100",
    )
