"""Interceptors, serializers and partitioners of a producer."""

from __future__ import annotations

import asyncio
import json

import pytest

from kcli.client.errors import TimedOut
from kcli.client.producer.partitioner import RoundRobinPartitioner, partition_for_key
from kcli.client.producer.producer import ProducerInterceptor
from kcli.client.serialization import BYTES_OUT
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_BROKER
from kserver.wire.api_key import ApiKey
from tests.support.producing import OK, run
from tests.support.scripted_broker import metadata

STRINGS = "org.apache.kafka.common.serialization.StringSerializer"


class Heard(ProducerInterceptor):
    """Notes what it sees, and writes its name into the headers."""

    def __init__(self, name: str = "heard") -> None:
        self.name = name
        self.sent: list[object] = []
        self.acknowledged: list[tuple[str, int, int, object]] = []

    def on_send(self, record):
        self.sent.append(record.value)
        return record._replace(headers=[*record.headers, (self.name, b"")])

    def on_acknowledgement(self, metadata, error):
        code = error.code if isinstance(error, KafkaError) else type(error)
        outcome = None if error is None else code
        self.acknowledged.append((metadata.topic, metadata.partition, metadata.offset, outcome))


class Fails(ProducerInterceptor):
    def on_send(self, record):
        raise ValueError("on its way")

    def on_acknowledgement(self, metadata, error):
        raise ValueError("on its way back")


def test_values_and_keys_become_bytes_and_null_stays_null():
    async def scenario(producer, broker, topic):
        await (await producer.send("t", {"n": 1}, "key"))
        await (await producer.send("t", None, None))
        found = [(r.key, r.value) for batch in topic.log for r in batch.records()]
        assert found == [(b"key", b'{"n": 1}'), (None, None)]

    run(
        scenario,
        plugins={"value_serializer": lambda value: json.dumps(value).encode()},
        key_serializer=STRINGS,
    )


def test_a_serializer_that_is_given_goes_before_the_one_that_is_named():
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        assert topic.values() == [b"v"]

    run(scenario, plugins={"value_serializer": bytes}, value_serializer=STRINGS)


def test_what_a_serializer_raises_is_raised_and_interceptors_hear_of_it():
    heard = Heard()

    async def scenario(producer, broker, topic):
        with pytest.raises(TypeError):
            await producer.send("t", b"bytes are no text")
        assert heard.acknowledged == [("t", -1, -1, TypeError)]
        assert (await (await producer.send("t", "text"))).offset == 0

    run(scenario, plugins={"interceptors": [heard]}, value_serializer=STRINGS)


def test_interceptors_act_in_their_order_on_what_the_one_before_made():
    first, second = Heard("first"), Heard("second")

    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v", headers=[("own", b"1")]))
        (record,) = topic.log[0].records()
        assert [name for name, _ in record.headers] == ["own", "first", "second"]
        for each in (first, second):
            assert (each.sent, each.acknowledged) == ([b"v"], [("t", 0, 0, None)])

    run(scenario, plugins={"interceptors": [first, second]})


def test_an_interceptor_that_fails_is_logged_and_passed_over(caplog):
    heard = Heard()

    async def scenario(producer, broker, topic):
        assert (await (await producer.send("t", b"v"))).offset == 0
        assert topic.values() == [b"v"]
        assert heard.acknowledged == [("t", 0, 0, None)]

    run(scenario, plugins={"interceptors": [Fails(), heard]})
    assert "on its way" in caplog.text
    assert "on its way back" in caplog.text


def test_interceptors_hear_of_every_failure_once():
    heard = Heard()

    async def scenario(producer, broker, topic):
        topic.verdict = lambda batch: ErrorCode.invalid_timestamp
        with pytest.raises(KafkaError):
            await (await producer.send("t", b"v", partition=0))
        with pytest.raises(KafkaError):
            await producer.send("t", b"v", partition=9)
        with pytest.raises(KafkaError):
            await producer.send("t", b"x" * 2000)
        with pytest.raises(TimedOut):
            await producer.send("nowhere", b"v")
        assert heard.acknowledged == [
            ("t", 0, -1, ErrorCode.invalid_timestamp),
            ("t", 9, -1, ErrorCode.unknown_topic_or_partition),
            ("t", -1, -1, ErrorCode.message_too_large),
            ("nowhere", -1, -1, TimedOut),
        ]

    run(scenario, plugins={"interceptors": [heard]}, max_request_size="1000", max_block_ms="500")


def test_a_record_may_be_sent_to_another_topic():
    class Turn(ProducerInterceptor):
        def on_send(self, record):
            return record._replace(topic="t")

    async def scenario(producer, broker, topic):
        assert (await (await producer.send("elsewhere", b"v"))).topic == "t"

    run(scenario, plugins={"interceptors": [Turn()]})


def test_what_is_offered_without_waiting_passes_them_too():
    heard = Heard()

    async def scenario(producer, broker, topic):
        told = []
        assert not producer.try_send("t", "1")
        await producer.ready("t")
        assert producer.try_send("t", "1", on_delivery=lambda *outcome: told.append(outcome))
        assert producer.try_send_all("t", ["2", "3"]) == 2
        await producer.flush()
        assert topic.values() == [b"1", b"2", b"3"]
        assert [m.offset for _, m in told] == [0]
        assert heard.sent == ["1", "2", "3"]

    run(scenario, plugins={"interceptors": [heard]}, value_serializer=STRINGS)


def test_when_memory_is_full_nothing_is_shown_or_taken():
    heard = Heard()

    async def scenario(producer, broker, topic):
        await producer.ready("t")
        values = [b"%02d" % n * 50 for n in range(20)]
        sent = 0
        while sent < len(values):
            sent += producer.try_send_all("t", values[sent:])
            await producer.ready("t")
        await producer.flush()
        assert topic.values() == heard.sent == values

    run(scenario, plugins={"interceptors": [heard]}, buffer_memory="1000", batch_size="300")


@pytest.mark.parametrize("named", ["RoundRobinPartitioner", None])
def test_round_robin_takes_one_partition_after_the_other(named):
    async def scenario(producer, broker, topic):
        sent = [await producer.send("t", b"v", b"k") for _ in range(6)]
        outcomes = await asyncio.gather(*sent)
        assert [o.partition for o in outcomes] == [0, 1, 2, 0, 1, 2]
        assert (await (await producer.send("t", b"v", partition=2))).partition == 2

    if named:
        run(scenario, partitions=3, partitioner_class=named)
    else:
        run(scenario, partitions=3, plugins={"partitioner": RoundRobinPartitioner()})


def test_round_robin_leaves_out_what_has_no_leader():
    async def scenario(producer, broker, topic):
        leads = [(0, 1), (NO_BROKER, 1), (0, 1)]
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", OK, *leads)]))
        sent = [await producer.send("t", b"v") for _ in range(4)]
        assert [(await outcome).partition for outcome in sent] == [0, 2, 0, 2]

    run(scenario, partitions=3, partitioner_class="RoundRobinPartitioner")


@pytest.mark.parametrize(
    "settings",
    [{"partitioner_class": "UniformStickyPartitioner"}, {"partitioner_ignore_keys": "true"}],
)
def test_keys_can_be_ignored(settings):
    async def scenario(producer, broker, topic):
        keys = [b"%d" % n for n in range(30)]
        sent = [await producer.send("t", b"v", key) for key in keys]
        outcomes = await asyncio.gather(*sent)
        assert len({o.partition for o in outcomes}) == 1
        assert len({partition_for_key(key, 3) for key in keys}) == 3

    run(scenario, partitions=3, **settings)


@pytest.mark.parametrize(
    "name", [None, "org.apache.kafka.clients.producer.internals.DefaultPartitioner"]
)
def test_by_default_keys_choose(name):
    async def scenario(producer, broker, topic):
        keys = [b"%d" % n for n in range(30)]
        sent = [await producer.send("t", b"v", key) for key in keys]
        outcomes = await asyncio.gather(*sent)
        assert [o.partition for o in outcomes] == [partition_for_key(key, 3) for key in keys]

    run(scenario, partitions=3, **({"partitioner_class": name} if name else {}))


def test_a_function_of_ones_own_sees_what_it_needs_and_may_decline():
    seen = []

    def choose(topic, key, partitions, available):
        seen.append((topic, key, partitions, list(available)))
        return None if key is None else int(key)

    async def scenario(producer, broker, topic):
        assert (await (await producer.send("t", b"v", b"2"))).partition == 2
        assert (await (await producer.send("t", b"v"))).partition in (0, 1, 2)
        assert seen == [("t", b"2", 3, [0, 1, 2]), ("t", None, 3, [0, 1, 2])]
        with pytest.raises(KafkaError, match="t has no partition 9, but 3"):
            await producer.send("t", b"v", b"9")

    run(scenario, partitions=3, plugins={"partitioner": choose})


def test_a_client_that_has_bytes_is_not_touched_by_what_settings_name():
    async def scenario(producer, broker, topic):
        assert producer._appender is None
        await (await producer.send("t", b"v", b"k"))
        assert topic.values() == [b"v"]

    names = {"key_serializer": STRINGS, "value_serializer": "com.example.Unknown"}
    run(scenario, plugins=BYTES_OUT, **names)
