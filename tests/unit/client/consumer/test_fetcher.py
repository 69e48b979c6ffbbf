"""What becomes of fetches that are refused, lost, late, or answered by another leader."""

from __future__ import annotations

import asyncio
import datetime
from random import Random

import pytest

from kcli.client.cluster import Cluster
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.consumer.fetcher import Fetcher
from kcli.client.consumer.subscription import SubscriptionState
from kcli.client.errors import LogTruncated
from kcli.client.group.group_descriptions import CommittedOffset
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import OffsetAndEpoch, TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import EARLIEST
from kserver.wire.versions import reply_to
from tests.support.consuming import MAX_BATCHES, OK, T0, T1, Server, read, run
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import metadata


def test_the_next_fetch_is_out_before_the_last_is_read_but_no_further():
    async def scenario(consumer, server):
        for _ in range(10 * MAX_BATCHES):
            server.logs[T0].append()
        consumer.assign([T0])
        await asyncio.sleep(1)
        offsets = [r.topics[0].partitions[0].fetch_offset for r in server.fetches]
        assert offsets == [0, MAX_BATCHES]
        await consumer.poll(max_records=MAX_BATCHES + 1)
        await asyncio.sleep(1)
        offsets = [p.fetch_offset for r in server.fetches for t in r.topics for p in t.partitions]
        assert offsets == [0, MAX_BATCHES, 2 * MAX_BATCHES]

    run(scenario)


def test_an_answer_to_a_fetch_from_before_a_seek_is_dropped():
    async def scenario(consumer, server):
        server.logs[T0].append(5)
        consumer.assign([T0])
        await consumer.position(T0)
        await asyncio.sleep(0.0002)
        await consumer.seek(T0, 3)
        assert [r.offset for r in await read(consumer, 2)] == [3, 4]

    run(scenario)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_what_was_fetched_before_its_offset_went_out_of_range_is_read_first(reset):
    async def scenario(consumer, server):
        log = server.logs[T0]
        log.append(2)
        consumer.assign([T0])
        await consumer.seek(T0, 0)
        # Until those two lie here and the fetch at 2 is out: then that is deleted, and more.
        async with asyncio.timeout(30):
            while not server.fetches or offset_asked(server.fetches[-1]) != 2:
                await asyncio.sleep(0.001)
        log.append(5)
        log.start = 5
        await asyncio.sleep(1)
        assert [r.offset for r in await read(consumer, 2, max_records=1)] == [0, 1]
        if reset == "none":
            with pytest.raises(KafkaError, match="Fetch position 2 is out of range"):
                await consumer.poll(5000)
        else:
            assert [r.offset for r in await read(consumer, 2)] == [5, 6]

    run(scenario, auto_offset_reset=reset)


def offset_asked(request) -> int | None:
    """By a fetch of one partition; None where the session's is asked for again."""
    asked = [p.fetch_offset for topic in request.topics for p in topic.partitions]
    return asked[0] if asked else None


def test_bytes_that_are_no_batch_are_a_protocol_error():
    async def scenario(consumer, server):
        log = server.logs[T0]
        log.append()
        log.batches[0] = (0, 1, b"\0" * 100)
        consumer.assign([T0])
        with pytest.raises(ProtocolError):
            await consumer.poll(1000)

    run(scenario)


def test_a_refusal_of_one_partition_is_told_and_the_others_are_read():
    async def scenario(consumer, server):
        server.logs[T0].error = ErrorCode.topic_authorization_failed
        server.logs[T1].append()
        consumer.assign([T0, T1])
        found = await read(consumer, 1)
        assert found[0].partition == 1
        with pytest.raises(KafkaError, match="fetching t-0") as caught:
            await consumer.poll(1000)
        assert caught.value.code is ErrorCode.topic_authorization_failed

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.fenced_leader_epoch,
    ],
)
def test_a_leader_that_is_not_ready_is_asked_again(code):
    async def scenario(consumer, server):
        log = server.logs[T0]
        log.append()
        log.error = code
        consumer.assign([T0])
        assert await consumer.poll(500) == []
        asked = len(server.fetches)
        assert 2 < asked < 20, "not in a tight loop"
        log.error = OK
        assert len(await read(consumer, 1)) == 1

    run(scenario)


def test_a_broker_that_forgot_the_session_is_asked_in_full():
    async def scenario(consumer, server):
        server.logs[T0].append()
        consumer.assign([T0])
        await read(consumer, 1)
        server.session = {}
        server.session = None
        server.logs[T0].append()
        assert [r.offset for r in await read(consumer, 1)] == [1]

    run(scenario, fetch_max_wait_ms="10")


def test_a_lost_connection_loses_and_repeats_nothing():
    async def scenario(consumer, server):
        consumer.assign([T0])
        found = []
        for _ in range(5):
            server.logs[T0].append(3)
            found += await read(consumer, 2, max_records=2)
            server.broker.drop()
            server.session = None
        found += await read(consumer, 15 - len(found))
        assert [r.offset for r in found] == list(range(15))

    run(scenario)


def test_a_new_leader_is_asked_whether_it_has_what_was_read():
    async def scenario(consumer, server):
        log = server.logs[T0]
        log.append(5)
        consumer.assign([T0])
        await read(consumer, 5)
        log.divergence = (9, 1)
        log.epoch = 2
        server.lead()
        log.error = ErrorCode.fenced_leader_epoch
        await consumer.poll(200)
        log.error = OK
        log.append(1)
        assert [r.offset for r in await read(consumer, 1)] == [5]
        (asked, *_) = server.broker.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        p = asked.topics[0].partitions[0]
        assert (p.leader_epoch, p.current_leader_epoch) == (1, 2)

    run(scenario)


def truncated(divergence: tuple[int, int]):
    """A reader at offset 5 of epoch 1, and a new leader whose log of that epoch ends at 3."""

    async def scenario(consumer, server):
        log = server.logs[T0]
        log.append(3)
        log.append(2)
        consumer.assign([T0])
        await consumer.seek(T0, 0)
        await read(consumer, 5)
        del log.batches[1]
        log.end = 3
        log.epoch = 2
        log.divergence = divergence
        log.append(4)
        server.lead()
        log.error = ErrorCode.fenced_leader_epoch
        await consumer.poll(100)
        log.error = OK
        return await consumer.poll(5000)

    return scenario


def test_a_truncated_log_is_read_again_from_where_the_two_part():
    assert [r.offset for r in run(truncated((3, 1)))] == [3, 4, 5, 6]


def test_a_log_truncated_to_who_knows_where_is_reset():
    assert run(truncated((-1, -1)))[0].offset == 0


def test_without_a_reset_truncation_is_told():
    with pytest.raises(LogTruncated, match="t-0 was truncated at offset 3, below position 5") as e:
        run(truncated((3, 1)), auto_offset_reset="none")
    assert e.value.diverged == OffsetAndEpoch(3, 1)
    with pytest.raises(LogTruncated, match="at an unknown offset"):
        run(truncated((-1, -1)), auto_offset_reset="none")


def test_a_topic_that_may_not_be_seen_is_told():
    async def scenario(consumer, server):
        refused = ErrorCode.topic_authorization_failed
        server.broker.on(ApiKey.METADATA, metadata(server.broker, topics=[("t", refused)]))
        consumer.assign([T0])
        with pytest.raises(KafkaError) as caught:
            await consumer.poll(1000)
        assert caught.value.code is refused

    run(scenario)


def test_what_is_newly_assigned_does_not_wait_for_a_topic_that_was_deleted():
    async def scenario(consumer, server):
        gone = TopicPartition("gone", 0)
        log = server.logs[T1]
        log.append()
        leads = [("t", OK, (0, 1), (0, 1)), ("gone", ErrorCode.unknown_topic_or_partition)]
        server.broker.on(ApiKey.METADATA, metadata(server.broker, topics=leads))
        loop = asyncio.get_running_loop()
        for rest in ([gone], []):
            consumer.assign([gone])
            # Until pauses are as long as they get.
            await asyncio.sleep(30)
            start = loop.time()
            consumer.assign([*rest, T1])
            assert [r.offset for r in await read(consumer, 1)] == [0]
            assert loop.time() - start < 0.05

    run(scenario)


def test_a_topic_that_comes_later_is_waited_for():
    async def scenario(consumer, server):
        unknown = ErrorCode.unknown_topic_or_partition
        server.logs[T0].append()
        server.broker.on(ApiKey.METADATA, metadata(server.broker, topics=[("t", unknown)]))
        consumer.assign([T0])
        assert await consumer.poll(2000) == []
        server.lead()
        assert len(await read(consumer, 1)) == 1

    run(scenario)


def test_a_broker_that_throttles_is_left_alone_for_that_time():
    async def scenario(consumer, server):
        fetch = server.fetch

        async def throttled(request):
            answer = await fetch(request)
            reply = reply_to(request)
            return reply(
                error_code=OK,
                session_id=answer.session_id,
                responses=answer.responses,
                throttle_time=datetime.timedelta(seconds=3),
            )

        server.broker.on(ApiKey.FETCH, throttled)
        server.logs[T0].append()
        consumer.assign([T0])
        await read(consumer, 1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        server.logs[T0].append()
        await read(consumer, 1)
        assert loop.time() - start == pytest.approx(3, abs=0.1)

    run(scenario)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16])
def test_every_version_of_fetch_will_do(version):
    async def scenario(consumer, server):
        server.sessions = version >= 7
        server.broker.versions[ApiKey.FETCH] = (version, version)
        server.logs[T0].append(3)
        consumer.assign([T0])
        assert len(await read(consumer, 3)) == 3
        assert {r.__version__ for r in server.fetches} == {version}

    run(scenario)


def test_a_leader_that_moved_is_followed_without_gap_or_repetition():
    async def main(loop: SimLoop):
        servers = [Server(loop, f"broker-{n}", n) for n in range(2)]
        logs = servers[1].logs = servers[0].logs
        leader = servers[0]

        def leading(request):
            both = [(leader.broker.id, log.epoch) for log in logs.values()]
            return metadata(*(s.broker for s in servers), topics=[("t", OK, *both)])(request)

        for server in servers:
            server.broker.on(ApiKey.METADATA, leading)
            await server.broker.start()
        settings = {"bootstrap.servers": "broker-0:9092", "auto.offset.reset": "earliest"}
        found = []
        async with Consumer(ConsumerConfig.of(settings), random=Random(1)) as consumer:
            consumer.assign([T0, T1])
            for step in range(6):
                for log in logs.values():
                    log.append(4)
                found += await read(consumer, 5)
                for log in logs.values():
                    log.error = ErrorCode.not_leader_or_follower
                    log.epoch += 1
                    log.divergence = (log.end, log.epoch - 1)
                await consumer.poll(150)
                leader = servers[(step + 1) % 2]
                for log in logs.values():
                    log.error = OK
            found += await read(consumer, 48 - len(found))
        for partition in (0, 1):
            assert [r.offset for r in found if r.partition == partition] == list(range(24))
        assert all(server.fetches for server in servers)

    simulate(main, 1)


def test_an_offset_committed_under_a_new_leader_is_not_out_of_range_at_the_former_one():
    """The former leader is partitioned from the others and takes itself for the leader."""

    async def committed(partitions):
        return dict.fromkeys(partitions, CommittedOffset(8, leader_epoch=2))

    async def main(loop):
        former, leader = Server(loop), Server(loop, "broker-1", 1)
        leader.logs[T0].epoch = 2
        for server, count in ((former, 5), (leader, 10)):
            server.logs[T0].append(count)
            await server.broker.start()
            epoch = server.logs[T0].epoch
            topics = [("t", OK, (server.broker.id, epoch), (server.broker.id, epoch))]
            server.broker.on(ApiKey.METADATA, metadata(former.broker, leader.broker, topics=topics))
        config = ConsumerConfig.of({"bootstrap.servers": "broker-0:9092"})
        subscription = SubscriptionState()
        subscription.assign([T0], recall=True)
        fetcher = Fetcher(
            config,
            Cluster(config, random=Random(1)),
            subscription,
            default_reset=lambda: EARLIEST,
            recall=committed,
        )
        running = asyncio.create_task(fetcher.run())
        fetcher.notify()
        async with asyncio.timeout(5):
            while not subscription[T0].completed_fetches:
                fetcher.arrival.clear()
                await fetcher.arrival.wait()
        running.cancel()
        assert subscription[T0].position == 8
        assert not former.fetches

    simulate(main, 1)
