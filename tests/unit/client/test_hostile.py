"""Brokers that redirect without end, answer something else, or send what unfolds to gigabytes."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import ClusterUnreachable, TimedOut
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.wire import varint
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import HEADER_SIZE, encode_batch
from kserver.wire.compression import Compression
from kserver.wire.versions import reply_to
from tests.support import consuming
from tests.support.consuming import T0
from tests.support.hostile import with_right_crc
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK, run
from tests.support.scripted_broker import ScriptedBroker, frame, metadata

BUSY = 60
"""More requests than that in a few seconds, and a client would be part of the attack."""


def elsewhere(brokers: list[ScriptedBroker], topic: str = "t"):
    """Metadata that names another leader each time."""
    epoch = 0

    def answer(request):
        nonlocal epoch
        epoch += 1
        leads = [(brokers[epoch % len(brokers)].id, epoch)]
        return metadata(*brokers, topics=[(topic, OK, *leads)])(request)

    return answer


def test_a_batch_that_is_sent_from_leader_to_leader_expires():
    async def scenario(producer, broker, topic):
        other = ScriptedBroker(broker.loop, "broker-1", id=1)
        other.on(ApiKey.PRODUCE, topic.handle)
        await other.start()
        for each in (broker, other):
            each.on(ApiKey.METADATA, elsewhere([broker, other]))
        topic.verdict = lambda batch: ErrorCode.not_leader_or_follower
        with pytest.raises(TimedOut, match="Expiring"):
            await (await producer.send("t", b"v"))
        requests = broker.requests + other.requests
        assert 2 < len([r for r in requests if r.__api_key__ == ApiKey.PRODUCE]) < BUSY
        assert len(requests) < 2 * BUSY

    run(scenario, delivery_timeout_ms="5000", request_timeout_ms="1000")


def test_a_reader_that_is_sent_from_leader_to_leader_polls_nothing_in_its_time():
    async def scenario(consumer, server):
        other = consuming.Server(server.loop, "broker-1", 1)
        await other.broker.start()
        both = [server.broker, other.broker]
        for each in (server, other):
            each.logs[T0].append(1)
            each.logs[T0].error = ErrorCode.not_leader_or_follower
            each.broker.on(ApiKey.METADATA, elsewhere(both))
        consumer.assign([T0])
        assert await consumer.poll(5000) == []
        assert len(server.broker.requests) + len(other.broker.requests) < 4 * BUSY

    consuming.run(scenario)


def test_a_change_that_every_controller_passes_on_is_given_up():
    async def main(loop: SimLoop) -> None:
        brokers = [ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(2)]
        turn = 0

        def other_controller(request):
            nonlocal turn
            turn += 1
            return metadata(*brokers, controller=turn % 2)(request)

        def refuse(request):
            reply = reply_to(request)
            code = ErrorCode.not_controller
            return reply(topics=[reply.topics(name="x", error_code=code)])

        for broker in brokers:
            broker.on(ApiKey.METADATA, other_controller)
            broker.on(ApiKey.CREATE_TOPICS, refuse, (5, 5))
            await broker.start()
        config = AdminConfig(bootstrap_servers=(brokers[0].address,), default_api_timeout_ms=5000)
        async with Admin(config) as admin:
            with pytest.raises(KafkaError) as caught:
                await admin.create_topics([NewTopic("x")])
        assert caught.value.code is ErrorCode.not_controller
        assert loop.time() == pytest.approx(5, abs=0.1)
        assert sum(len(broker.requests) for broker in brokers) < BUSY

    simulate(main, 1)


def test_pages_without_end_are_given_up():
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)

        def page(request):
            reply = reply_to(request)
            at = 0 if request.cursor is None else request.cursor.partition_index
            cursor = reply.next_cursor(topic_name="t", partition_index=at + 1)
            topic = reply.topics(name="t", error_code=OK, topic_id=None, partitions=())
            return reply(topics=[topic], next_cursor=cursor)

        broker.on(ApiKey.METADATA, metadata(broker))
        broker.on(ApiKey.DESCRIBE_TOPIC_PARTITIONS, page)
        await broker.start()
        config = AdminConfig(bootstrap_servers=(broker.address,), default_api_timeout_ms=1000)
        async with Admin(config) as admin:
            with pytest.raises(TimedOut):
                await admin.describe_topics(["t"])

    simulate(main, 1)


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.CREATE_TOPICS])
def test_the_answer_to_another_request_ends_the_connection_with_an_error(api_key):
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.METADATA, metadata(broker))
        broker.on(ApiKey.CREATE_TOPICS, lambda request: None, (5, 5))
        broker.on(api_key, lambda request: frame(77, bytes(100)))
        await broker.start()
        async with Admin(AdminConfig(bootstrap_servers=(broker.address,))) as admin:
            with pytest.raises(ProtocolError, match="answered request 77"):
                await admin.create_topics([NewTopic("x")])
        assert loop.time() < 1

    simulate(main, 1)


def test_a_batch_whose_answer_is_another_requests_is_tried_again():
    async def scenario(producer, broker, topic):
        answers = iter([lambda request: frame(1 << 20, bytes(50))])
        broker.on(ApiKey.PRODUCE, lambda request: next(answers, topic.handle)(request))
        assert (await (await producer.send("t", b"v"))).offset == 0
        assert len(broker.asked(ApiKey.PRODUCE)) == 2

    run(scenario)


def test_a_fetch_that_is_answered_with_another_requests_answer_is_told():
    async def scenario(consumer, server):
        server.broker.on(ApiKey.FETCH, lambda request: frame(1 << 20, bytes(50)))
        consumer.assign([T0])
        with pytest.raises(ProtocolError, match="answered request"):
            await consumer.poll(5000)

    consuming.run(scenario)


def test_a_broker_that_hangs_up_is_unreachable_in_time():
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.METADATA, lambda request: broker.drop())
        await broker.start()
        config = AdminConfig(bootstrap_servers=(broker.address,), default_api_timeout_ms=3000)
        async with Admin(config) as admin:
            with pytest.raises(ClusterUnreachable):
                await admin.list_topics()
        assert loop.time() == pytest.approx(3, abs=0.1)
        assert len(broker.requests) < BUSY

    simulate(main, 1)


def packed(codec: Compression, data: bytes, count: int) -> bytes:
    """A batch whose header says `count` records, with any bytes for them."""
    batch = bytearray(encode_batch([(0, None, b"v", ())], compression=codec))[:HEADER_SIZE]
    batch += data
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[23:27] = (count - 1).to_bytes(4)
    batch[57:61] = count.to_bytes(4)
    return with_right_crc(bytes(batch))


def gzip_bomb(size: int) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    megabyte = bytes(1 << 20)
    return b"".join([packer.compress(megabyte) for _ in range(size >> 20)]) + packer.flush()


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (lambda: packed(Compression.gzip, gzip_bomb(300 << 20), 1), KafkaError),
        (lambda: packed(Compression.gzip, gzip_bomb(1 << 20), 1 << 20), ProtocolError),
        (lambda: packed(Compression.none, varint.encode(1 << 40), 1), ProtocolError),
        (lambda: packed(Compression.none, bytes(100), 2**31 - 1), ProtocolError),
        (lambda: packed(Compression.zstd, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8, 1), KafkaError),
        (lambda: packed(Compression.lz4, b"garbage", 1), KafkaError),
        (lambda: packed(Compression.snappy, b"\xff\xff\xff\xff\x0f", 1), KafkaError),
    ],
    ids=["bomb", "zeros", "length", "count", "zstd size", "lz4", "snappy size"],
)
def test_a_batch_that_lies_of_its_size_is_told_and_can_be_passed(batch, error):
    async def scenario(consumer, server):
        log = server.logs[T0]
        data = batch()
        end = log.end = int.from_bytes(data[57:61])
        log.batches.append((0, end, data))
        log.append(1)
        consumer.assign([T0])
        tracemalloc.start()
        try:
            with pytest.raises(error):
                await consumer.poll(5000)
            assert tracemalloc.get_traced_memory()[1] < 400 << 20
        finally:
            tracemalloc.stop()
        await consumer.seek(T0, end)
        assert [r.offset for r in await consuming.read(consumer, 1)] == [end]

    consuming.run(scenario)


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0, 3])
def test_a_length_that_no_answer_has_is_an_error_and_costs_no_memory(size):
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.METADATA, lambda request: size.to_bytes(4, signed=True) + bytes(1000))
        await broker.start()
        config = ConsumerConfig(
            bootstrap_servers=(broker.address,),
            default_api_timeout_ms=2000,
            request_timeout_ms=1000,
        )
        async with Consumer(config) as consumer:
            tracemalloc.start()
            try:
                with pytest.raises(ProtocolError, match="announced a response"):
                    await consumer.partitions_for("t")
                assert tracemalloc.get_traced_memory()[1] < 4 << 20
            finally:
                tracemalloc.stop()

    simulate(main, 1)
