"""What the consumer promises, against a broker that answers as each test wants."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer, ConsumerRecord
from kcli.client.errors import ClientError, NoOffset, TimedOut
from kcli.client.producer.producer import Producer
from kserver.errors import ConfigError, ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import TimestampType
from tests.support.consuming import T0, T1, read, run
from tests.support.loop import SimLoop, simulate


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


def test_an_offset_out_of_range_is_reset_or_told():
    async def scenario(consumer, server):
        server.logs[T0].append(9)
        server.logs[T0].start = 5
        consumer.assign([T0])
        await consumer.seek(T0, 2)
        await consumer.poll(1000)
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


def test_a_topic_where_partitions_are_wanted_is_told_with_the_remedy():
    async def scenario(consumer, server):
        for wrong in ("t", ["t"], [("t", "0")]):
            with pytest.raises(
                ClientError, match=r"takes TopicPartition.topic, number., not .*'t'"
            ):
                consumer.assign(wrong)

    run(scenario)


@pytest.mark.parametrize("name", ["", None, 5, b"t"])
def test_what_no_topic_can_be_called_is_refused_without_asking(name):
    async def scenario(consumer, server):
        why = f"a topic is a str that is not empty, not {name!r}"
        with pytest.raises(ClientError, match=why):
            consumer.assign([TopicPartition(name, 0)])
        with pytest.raises(ClientError, match=why):
            consumer.subscribe([name])
        if isinstance(name, str | bytes):
            with pytest.raises(ClientError, match=why):
                consumer.subscribe(name)
        assert server.broker.asked(ApiKey.METADATA) == []

    run(scenario, group_id="g")


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


def test_a_position_that_cannot_be_known_is_given_up_in_time():
    async def scenario(consumer, server):
        server.broker.on(ApiKey.LIST_OFFSETS, lambda request: None)
        consumer.assign([T0])
        with pytest.raises(TimedOut, match="position of t-0"):
            await consumer.position(T0)

    run(scenario, default_api_timeout_ms="3000")


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
        assert {r.isolation_level for r in server.broker.asked(ApiKey.LIST_OFFSETS)} == {1}

    run(scenario, isolation_level="read_committed")


def test_used_before_its_start_it_says_so():
    async def main(loop: SimLoop):
        consumer = Consumer(ConsumerConfig(bootstrap_servers=("a:1",)))
        with pytest.raises(ClientError, match="not started"):
            await consumer.poll()
        await consumer.close()

    simulate(main, 1)


def test_an_argument_of_the_wrong_kind_is_named():
    async def scenario(consumer, server):
        consumer.assign([T0])
        with pytest.raises(ClientError, match="partitions are a list or another iterable, not 5"):
            consumer.assign(5)
        with pytest.raises(ClientError, match="partitions are a list or another iterable, not 5"):
            consumer.pause(5)
        with pytest.raises(ClientError, match="partitions are a list or another iterable, not 5"):
            await consumer.seek_to_end(5)
        with pytest.raises(ClientError, match="timeout_ms is a number of milliseconds, not '5'"):
            await consumer.poll("5")
        with pytest.raises(ClientError, match="max_records is a whole number, not '5'"):
            await consumer.poll(5, "5")
        with pytest.raises(ClientError, match="offset is a whole number, not '5'"):
            await consumer.seek(T0, "5")
        with pytest.raises(ClientError, match=r"offsets are a mapping such as .*, not \[1\]"):
            await consumer.commit([1])
        with pytest.raises(ClientError, match="topics are a list or another iterable, not 5"):
            consumer.subscribe(5)

    run(scenario, group_id="g")


@pytest.mark.parametrize("client", [Admin, Consumer, Producer])
def test_an_address_where_settings_are_wanted_is_told_with_the_remedy(client):
    with pytest.raises(ClientError, match=r"config is a mapping of settings .*, not 'host:9092'"):
        client("host:9092")
