"""Deserializers and interceptors of a consumer."""

from __future__ import annotations

import pytest

from kcli.client.consumer.consumer import ConsumerInterceptor
from kcli.client.errors import Undeserializable
from tests.support.consuming import T0, T1, read, run

INTEGERS = {"value_deserializer": int}


def but_not(*bad: int):
    def deserialize(data: bytes) -> int:
        if int(data) in bad:
            raise ValueError(f"{data!r} is bad")
        return int(data)

    return {"value_deserializer": deserialize}


def test_bytes_become_values_and_null_stays_null():
    async def scenario(consumer, server):
        server.logs[T0].append(3)
        consumer.assign([T0])
        assert [(r.key, r.value) for r in await read(consumer, 3)] == [
            (None, 0),
            (None, 1),
            (None, 2),
        ]

    run(scenario, plugins=INTEGERS | {"key_deserializer": bytes.decode})


def test_batches_are_given_as_they_are():
    async def scenario(consumer, server):
        server.logs[T0].append(1)
        consumer.assign([T0])
        (batch,) = await consumer.poll_batches(1000)
        assert batch.records[0].value == b"0"

    run(scenario, plugins=INTEGERS)


def test_settings_name_them():
    async def scenario(consumer, server):
        server.logs[T0].append(1)
        consumer.assign([T0])
        assert (await read(consumer, 1))[0].value == "0"

    run(scenario, value_deserializer="org.apache.kafka.common.serialization.StringDeserializer")


def test_a_record_that_cannot_be_read_is_told_in_its_turn_and_can_be_passed():
    async def scenario(consumer, server):
        server.logs[T0].append(5)
        consumer.assign([T0])
        assert [r.value for r in await read(consumer, 2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(Undeserializable, match="offset 2 of t-0: b'2' is bad") as caught:
                await read(consumer, 1)
            assert (caught.value.partition, caught.value.offset) == (T0, 2)
            assert isinstance(caught.value.__cause__, ValueError)
            assert await consumer.position(T0) == 2
        await consumer.seek(T0, caught.value.offset + 1)
        assert [r.value for r in await read(consumer, 2)] == [3, 4]

    run(scenario, plugins=but_not(2))


def test_it_costs_the_other_partitions_nothing():
    async def scenario(consumer, server):
        for log in server.logs.values():
            log.append(3)
            log.append(3)
        consumer.assign([T0, T1])
        found = {T0: [], T1: []}
        while sum(map(len, found.values())) < 10:
            try:
                records = await consumer.poll(1000)
            except Undeserializable as error:
                await consumer.seek(error.partition, error.offset + 1)
            else:
                for record in records:
                    found[record.topic, record.partition].append(record.value)
        assert found == {T0: [0, 1, 2, 3, 5], T1: [0, 1, 2, 3, 5]}

    run(scenario, plugins=but_not(4))


class Named(ConsumerInterceptor):
    def __init__(self, name: str) -> None:
        self.name = name

    def on_consume(self, records):
        return [r._replace(value=f"{r.value}{self.name}") for r in records]


class OnlyEven(ConsumerInterceptor):
    def on_consume(self, records):
        return [r for r in records if not r.value % 2]


class Fails(ConsumerInterceptor):
    def on_consume(self, records):
        raise ValueError("on its way")


def test_interceptors_act_in_their_order_on_what_was_deserialized():
    async def scenario(consumer, server):
        server.logs[T0].append(4)
        consumer.assign([T0])
        assert [r.value for r in await read(consumer, 2)] == ["0ab", "2ab"]
        assert await consumer.position(T0) == 4

    run(scenario, plugins=INTEGERS | {"interceptors": [OnlyEven(), Named("a"), Named("b")]})


def test_one_that_fails_is_logged_and_passed_over(caplog):
    async def scenario(consumer, server):
        server.logs[T0].append(1)
        consumer.assign([T0])
        assert [r.value for r in await read(consumer, 1)] == ["0a"]

    run(scenario, plugins=INTEGERS | {"interceptors": [Fails(), Named("a")]})
    assert "on its way" in caplog.text
