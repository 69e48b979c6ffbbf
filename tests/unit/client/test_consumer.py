"""The consumer and its fetcher, against a broker that answers as each test wants."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import random
from uuid import UUID

import pytest

from kcli.client.config import ConsumerConfig
from kcli.client.consumer import Consumer, ConsumerRecord
from kcli.client.errors import ClientError, LogTruncated, NoOffset, TimedOut
from kcli.client.fetcher import FETCH, OFFSET_FOR_LEADER_EPOCH
from kcli.client.offsets import LIST_OFFSETS
from kserver.errors import ConfigError, ErrorCode, KafkaError, ProtocolError
from kserver.model import OffsetAndEpoch, TopicPartition
from kserver.wire.batch import TimestampType, encode_batch
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import METADATA, ScriptedBroker
from tests.unit.client.test_cluster import metadata

OK = ErrorCode.none
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=1)
MOST_BATCHES = 4


class Log:
    """What a broker keeps of one partition: batches by base offset."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.start = self.end = 0
        self.epoch = 1
        self.error: ErrorCode = OK
        self.divergence: tuple[int, int] = (-1, -1)

    def append(self, count: int = 1, **fields) -> None:
        records = [(1000 + self.end + n, None, b"%d" % (self.end + n), ()) for n in range(count)]
        data = encode_batch(records, base_offset=self.end, leader_epoch=self.epoch, **fields)
        self.batches.append((self.end, count, data))
        self.end += count

    def read(self, offset: int) -> bytes:
        found = [data for base, count, data in self.batches if base + count > offset]
        return b"".join(found[:MOST_BATCHES])

    def offset(self, spec: int) -> int:
        if spec == -1:
            return self.end
        if spec == -2:
            return self.start
        return next((n for n in range(self.start, self.end) if 1000 + n >= spec), -1)


class Server:
    """A broker that leads every partition, with KIP-227's sessions and long polls."""

    def __init__(self, loop: SimLoop, name: str = "broker-0", id: int = 0) -> None:
        self.loop = loop
        self.broker = ScriptedBroker(loop, name, id=id)
        self.logs = {T0: Log(), T1: Log()}
        self.session: dict[TopicPartition, object] | None = None
        self.sessions = True
        self.epoch = 0
        self.broker.on(FETCH, self.fetch)
        self.broker.on(LIST_OFFSETS, self.list_offsets)
        self.broker.on(OFFSET_FOR_LEADER_EPOCH, self.end_of_epoch)
        self.lead()

    def lead(self) -> None:
        leads = [(self.broker.id, log.epoch) for log in self.logs.values()]
        self.broker.on(METADATA, metadata(self.broker, topics=[("t", OK, *leads)]))

    @property
    def fetches(self):
        return self.broker.asked(FETCH)

    def list_offsets(self, request):
        reply = reply_to(request)
        found = []
        for p in request.topics[0].partitions:
            log = self.logs[TopicPartition("t", p.partition_index)]
            found.append(
                reply.topics.partitions(
                    partition_index=p.partition_index,
                    error_code=OK,
                    offset=log.offset(p.timestamp),
                    timestamp=-1,
                    leader_epoch=log.epoch,
                )
            )
        return reply(topics=[reply.topics(name="t", partitions=found)])

    def end_of_epoch(self, request):
        reply = reply_to(request)
        found = []
        for p in request.topics[0].partitions:
            offset, epoch = self.logs[TopicPartition("t", p.partition)].divergence
            found.append(
                reply.topics.partitions(
                    partition=p.partition, error_code=OK, end_offset=offset, leader_epoch=epoch
                )
            )
        return reply(topics=[reply.topics(topic="t", partitions=found)])

    async def fetch(self, request):
        reply = reply_to(request)
        asked = {TopicPartition("t", p.partition): p for t in request.topics for p in t.partitions}
        if getattr(request, "session_epoch", 0) == 0:
            self.session, self.epoch = asked, 1
        elif self.session is None:
            return reply(error_code=ErrorCode.fetch_session_id_not_found)
        else:
            assert request.session_epoch == self.epoch
            self.epoch += 1
            for topic in request.forgotten_topics_data:
                for n in topic.partitions:
                    del self.session[TopicPartition("t", n)]
            self.session |= asked
        deadline = self.loop.time() + request.max_wait.total_seconds()
        while not (found := self.answers(reply)) and self.loop.time() < deadline:
            await asyncio.sleep(0.001)
        if not self.sessions:
            self.session = None
        return reply(
            error_code=OK,
            session_id=77 if self.sessions else 0,
            responses=[reply.responses(topic="t", topic_id=ID, partitions=found)],
        )

    def answers(self, reply):
        found = []
        for partition, p in self.session.items():
            log = self.logs[partition]
            error = log.error
            if error is OK and not log.start <= p.fetch_offset <= log.end:
                error = ErrorCode.offset_out_of_range
            if error is OK and p.fetch_offset == log.end:
                continue
            found.append(
                reply.responses.partitions(
                    partition_index=partition.partition,
                    error_code=error,
                    high_watermark=log.end,
                    last_stable_offset=log.end,
                    log_start_offset=log.start,
                    aborted_transactions=None,
                    records=log.read(p.fetch_offset) if error is OK else b"",
                )
            )
        return found


def run(scenario, **settings: str):
    async def main(loop: SimLoop):
        server = Server(loop)
        await server.broker.start()
        given = {"bootstrap.servers": "broker-0:9092", "auto.offset.reset": "earliest"}
        config = ConsumerConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        consumer = Consumer(config, now_ms=lambda: 1005, chance=random.Random(1))
        await consumer.start()
        try:
            return await scenario(consumer, server)
        finally:
            await consumer.close()

    return simulate(main, 1)


async def read(consumer: Consumer, count: int, **options) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        polled = await consumer.poll(5000, **options)
        assert polled, f"only {len(found)} of {count} came"
        found += polled
    return found


def test_records_come_with_all_that_is_known_of_them():
    async def scenario(consumer, server):
        server.logs[T1].append()
        server.logs[T1].append(timestamp_type=TimestampType.log_append_time)
        consumer.assign([T1])
        first, second = await read(consumer, 2)
        assert first == ConsumerRecord(
            "t", 1, 0, 1000, TimestampType.create_time, None, b"0", (), 1
        )
        assert second.timestamp_type is TimestampType.log_append_time
        assert await consumer.position(T1) == 2
        assert consumer.lag(T1) == 0

    run(scenario)


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_all_comes_once_and_in_order_whatever_the_portions(sessions, most):
    async def scenario(consumer, server):
        server.sessions = sessions
        for log in server.logs.values():
            for count in (1, 2, 5, 3) * 5:
                log.append(count)
        consumer.assign([T0, T1])
        found = await read(consumer, 110, max_records=most)
        for partition in (T0, T1):
            mine = [r.offset for r in found if r.partition == partition.partition]
            assert mine == list(range(55))

    run(scenario)


def test_what_is_written_while_the_broker_waits_comes_at_once():
    async def scenario(consumer, server):
        consumer.assign([T0])
        assert await consumer.poll(100) == []
        loop = asyncio.get_running_loop()
        start = loop.time()
        loop.call_later(0.2, server.logs[T0].append)
        assert len(await consumer.poll(5000)) == 1
        assert loop.time() - start < 0.22

    run(scenario, fetch_max_wait_ms="5000")


def test_a_poll_without_records_ends_in_its_time():
    async def scenario(consumer, server):
        consumer.assign([T0])
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert await consumer.poll(300) == []
        assert loop.time() - start == pytest.approx(0.3, abs=0.01)
        assert await consumer.poll() == []

    run(scenario)


def test_the_next_fetch_is_out_before_the_last_is_read_but_no_further():
    async def scenario(consumer, server):
        for _ in range(10 * MOST_BATCHES):
            server.logs[T0].append()
        consumer.assign([T0])
        await asyncio.sleep(1)
        offsets = [r.topics[0].partitions[0].fetch_offset for r in server.fetches]
        assert offsets == [0, MOST_BATCHES]
        await consumer.poll(max_records=MOST_BATCHES + 1)
        await asyncio.sleep(1)
        offsets = [p.fetch_offset for r in server.fetches for t in r.topics for p in t.partitions]
        assert offsets == [0, MOST_BATCHES, 2 * MOST_BATCHES]

    run(scenario)


@pytest.mark.parametrize(
    ("reset", "position"), [("earliest", 3), ("latest", 9), ("by_duration:PT0.001S", 4)]
)
def test_without_a_position_the_reset_says_where_to_start(reset, position):
    """The clock stands at 1005; record n was written at 1000 + n."""

    async def scenario(consumer, server):
        server.logs[T0].append(9)
        server.logs[T0].start = 3
        consumer.assign([T0])
        assert await consumer.position(T0) == position

    run(scenario, auto_offset_reset=reset)


def test_a_search_by_time_that_finds_nothing_starts_at_the_end():
    async def scenario(consumer, server):
        server.logs[T0].append(2)
        consumer.assign([T0])
        assert await consumer.position(T0) == 2

    run(scenario, auto_offset_reset="by_duration:PT0S")


def test_without_a_reset_a_position_has_to_be_given():
    async def scenario(consumer, server):
        server.logs[T0].append(3)
        consumer.assign([T0])
        for _ in range(2):
            with pytest.raises(NoOffset, match=r"no reset policy for partitions: \[t-0\]"):
                await consumer.poll(1000)
        with pytest.raises(NoOffset):
            await consumer.position(T0)
        await consumer.seek(T0, 1)
        assert [r.offset for r in await read(consumer, 2)] == [1, 2]

    run(scenario, auto_offset_reset="none")


@pytest.mark.parametrize("text", ["by_duration:P", "by_duration:5s", "by_duration:PT"])
def test_a_duration_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        Consumer(ConsumerConfig(bootstrap_servers=("a:1",), auto_offset_reset=text))


def test_seeks_take_effect_even_with_records_at_hand():
    async def scenario(consumer, server):
        for _ in range(10):
            server.logs[T0].append(2)
        consumer.assign([T0])
        await consumer.poll(1000, max_records=3)
        await consumer.seek(T0, 15)
        assert [r.offset for r in await read(consumer, 5)] == [15, 16, 17, 18, 19]
        await consumer.seek_to_beginning()
        assert (await consumer.poll(1000))[0].offset == 0
        await consumer.seek_to_end([T0])
        assert await consumer.position(T0) == 20

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


def test_an_offset_out_of_range_is_reset_or_told():
    async def scenario(consumer, server):
        server.logs[T0].append(9)
        server.logs[T0].start = 5
        consumer.assign([T0])
        await consumer.seek(T0, 2)
        await consumer.poll(50)
        assert await consumer.position(T0) == 9

    async def told(consumer, server):
        server.logs[T0].append(9)
        consumer.assign([T0])
        await consumer.seek(T0, 12)
        with pytest.raises(KafkaError, match="Fetch position 12 is out of range") as caught:
            await consumer.poll(1000)
        assert caught.value.code is ErrorCode.offset_out_of_range

    run(scenario)
    run(told, auto_offset_reset="none")


def test_what_is_paused_is_not_given_and_keeps_its_position():
    async def scenario(consumer, server):
        for log in server.logs.values():
            log.append(5)
        consumer.assign([T0, T1])
        await asyncio.sleep(1)
        consumer.pause([T0])
        found = await read(consumer, 5)
        assert {r.partition for r in found} == {1}
        assert await consumer.poll(100) == []
        consumer.resume([T0])
        assert [r.offset for r in await read(consumer, 5)] == [0, 1, 2, 3, 4]

    run(scenario)


def test_partitions_take_turns():
    async def scenario(consumer, server):
        for log in server.logs.values():
            for _ in range(20):
                log.append()
        consumer.assign([T0, T1])
        await asyncio.sleep(1)
        turns = [r.partition for r in await read(consumer, 40, max_records=1)]
        changes = sum(a != b for a, b in itertools.pairwise(turns))
        assert changes >= 5

    run(scenario)


def test_what_is_no_longer_assigned_does_not_come():
    async def scenario(consumer, server):
        for log in server.logs.values():
            log.append(5)
        consumer.assign([T0, T1])
        await asyncio.sleep(1)
        consumer.assign([T1])
        assert {r.partition for r in await read(consumer, 5)} == {1}
        with pytest.raises(ClientError, match="No current assignment for partition t-0"):
            await consumer.position(T0)

    run(scenario)


def test_a_wrong_checksum_is_told_once_all_before_it_is_read_and_can_be_passed():
    async def scenario(consumer, server):
        log = server.logs[T0]
        for _ in range(3):
            log.append(2)
        base, count, data = log.batches[1]
        log.batches[1] = (base, count, data[:-1] + bytes([data[-1] ^ 1]))
        consumer.assign([T0])
        assert [r.offset for r in await read(consumer, 2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await consumer.poll(1000)
            assert caught.value.code is ErrorCode.corrupt_message
        await consumer.seek(T0, 4)
        assert [r.offset for r in await read(consumer, 2)] == [4, 5]

    run(scenario)


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
        (asked, *_) = server.broker.asked(OFFSET_FOR_LEADER_EPOCH)
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
        server.broker.on(METADATA, metadata(server.broker, topics=[("t", refused)]))
        consumer.assign([T0])
        with pytest.raises(KafkaError) as caught:
            await consumer.poll(1000)
        assert caught.value.code is refused

    run(scenario)


def test_a_topic_that_comes_later_is_waited_for():
    async def scenario(consumer, server):
        unknown = ErrorCode.unknown_topic_or_partition
        server.logs[T0].append()
        server.broker.on(METADATA, metadata(server.broker, topics=[("t", unknown)]))
        consumer.assign([T0])
        assert await consumer.poll(2000) == []
        server.lead()
        assert len(await read(consumer, 1)) == 1

    run(scenario)


def test_a_position_that_cannot_be_known_is_given_up_in_time():
    async def scenario(consumer, server):
        server.broker.on(LIST_OFFSETS, lambda request: None)
        consumer.assign([T0])
        with pytest.raises(TimedOut, match="position of t-0"):
            await consumer.position(T0)

    run(scenario, default_api_timeout_ms="3000")


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

        server.broker.on(FETCH, throttled)
        server.logs[T0].append()
        consumer.assign([T0])
        await read(consumer, 1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        server.logs[T0].append()
        await read(consumer, 1)
        assert loop.time() - start == pytest.approx(3, abs=0.1)

    run(scenario)


def test_offsets_are_looked_up_by_time_and_at_both_ends():
    async def scenario(consumer, server):
        server.logs[T0].append(9)
        server.logs[T0].start = 3
        assert await consumer.beginning_offsets([T0, T1]) == {T0: 3, T1: 0}
        assert await consumer.end_offsets([T0, T1]) == {T0: 9, T1: 0}
        found = await consumer.offsets_for_times({T0: 1005, T1: 1005})
        assert found[T0].offset == 5
        assert found[T1] is None
        with pytest.raises(KafkaError, match="t-9"):
            await consumer.end_offsets([TopicPartition("t", 9)])

    run(scenario)


def test_the_partitions_of_a_topic_can_be_asked_for():
    async def scenario(consumer, server):
        assert [p.partition for p in await consumer.partitions_for("t")] == [0, 1]

    run(scenario)


def test_read_committed_is_asked_for_and_its_end_is_the_stable_one():
    async def scenario(consumer, server):
        server.logs[T0].append()
        consumer.assign([T0])
        await read(consumer, 1)
        assert {r.isolation_level for r in server.fetches} == {1}
        assert {r.isolation_level for r in server.broker.asked(LIST_OFFSETS)} == {1}

    run(scenario, isolation_level="read_committed")


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16])
def test_every_version_of_fetch_will_do(version):
    async def scenario(consumer, server):
        server.sessions = version >= 7
        server.broker.versions[FETCH] = (version, version)
        server.logs[T0].append(3)
        consumer.assign([T0])
        assert len(await read(consumer, 3)) == 3
        assert {r.__version__ for r in server.fetches} == {version}

    run(scenario)


def test_used_before_its_start_it_says_so():
    async def main(loop: SimLoop):
        consumer = Consumer(ConsumerConfig(bootstrap_servers=("a:1",)))
        with pytest.raises(ClientError, match="not started"):
            await consumer.poll()
        await consumer.close()

    simulate(main, 1)
