"""Every setting that acts and may be changed while a broker runs is changed while it is written to.

`CHANGES` has a value for each such key, and what shows that it is in force: by default that the
part which acts by it has it; for those that clients notice, what they notice.  `listeners` and its
kin need real sockets: tests/integration/test_dynamic_configs.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from kserver.config.broker import BrokerConfig
from kserver.config.setting import Acts, Dynamic, Setting, settings_of
from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_batch
from kserver.wire.compression import Compression
from kserver.wire.versions import request
from tests.simulation.test_broker import batch, create, fetch, produce
from tests.support.loop import SimLoop, simulate
from tests.support.simulated import SimulatedBroker

BROKER = 4
SET, DELETE = 0, 1
WITH_SOCKETS = {"listeners", "advertised.listeners", "listener.security.protocol.map"}
DYNAMIC = {
    one.name: one
    for one in settings_of(BrokerConfig).values()
    if one.dynamic is not Dynamic.READ_ONLY
    and one.acts is Acts.NOW
    and one.name not in WITH_SOCKETS
}
OF_TOPICS = {one.broker_key: one for one in settings_of(TopicConfig).values() if one.broker_key}


class Host(NamedTuple):
    loop: SimLoop
    broker: SimulatedBroker
    peer: Peer

    @property
    def parts(self) -> Any:
        assert self.broker.broker is not None
        return self.broker.broker._parts

    def log(self, topic: str = "effects") -> Any:
        return self.parts.replicas.get(topic, 0).log

    async def produce(self, *values: bytes, topic: str = "effects", **fields: Any) -> Any:
        now_ms = self.broker.clock.now_ms()
        if not fields:
            return await produce(self.peer, topic, 0, batch(now_ms, *values))
        records = [(now_ms, None, value, ()) for value in values]
        return await produce(self.peer, topic, 0, encode_batch(records, **fields))

    async def set(self, broker: str, key: str, value: str | None) -> None:
        build = request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        config = build.resources.configs(
            name=key, config_operation=DELETE if value is None else SET, value=value
        )
        resource = build.resources(resource_type=BROKER, resource_name=broker, configs=[config])
        answer = await self.peer.call(build(resources=[resource], validate_only=False))
        (result,) = answer.responses
        assert result.error_code is ErrorCode.none, result.error_message

    async def described(self, key: str) -> str | None:
        build = request(ApiKey.DESCRIBE_CONFIGS, 4)
        asked = build.resources(resource_type=BROKER, resource_name="0", configuration_keys=[key])
        answer = await self.peer.call(build(resources=[asked], include_synonyms=False))
        return answer.results[0].configs[0].value


Effect = Callable[[Host], Awaitable[None]]


async def small_messages_only(host: Host) -> None:
    assert (await host.produce(b"x" * 50)).error_code is ErrorCode.none
    assert (await host.produce(b"x" * 500)).error_code is ErrorCode.message_too_large


async def old_segments_go(host: Host) -> None:
    """Those that are there, at the next look for old ones."""
    log = host.log()
    first = log.log_start_offset
    await host.produce(b"x")
    log.roll(host.broker.clock.now_ms())
    await asyncio.sleep(5)
    assert log.log_start_offset > first


async def big_logs_shrink(host: Host) -> None:
    for _ in range(4):
        await host.produce(b"x" * 300)
        host.log().roll(host.broker.clock.now_ms())
    await asyncio.sleep(5)
    assert host.log().size_bytes <= 2 * 400


async def segments_are_small(host: Host) -> None:
    before = len(host.log().segments)
    for _ in range(4):
        await host.produce(b"x" * 80)
    assert len(host.log().segments) >= before + 2


async def segments_are_young(host: Host) -> None:
    before = len(host.log().segments)
    for _ in range(3):
        await host.produce(b"x")
        await asyncio.sleep(2)
    assert len(host.log().segments) >= before + 2


async def records_are_stored_compressed(host: Host) -> None:
    answer = await host.produce(b"x" * 100)
    found = await fetch(host.peer, "effects", 0, answer.base_offset)
    assert [one.compression for one in batches(found.records)] == [Compression.gzip]


async def times_are_the_broker_s(host: Host) -> None:
    answer = await host.produce(b"x")
    assert answer.log_append_time is not None


async def old_times_are_refused(host: Host) -> None:
    old = batch(host.broker.clock.now_ms() - 60_000, b"x")
    answer = await produce(host.peer, "effects", 0, old)
    assert answer.error_code is ErrorCode.invalid_timestamp


async def young_times_are_refused(host: Host) -> None:
    young = batch(host.broker.clock.now_ms() + 60_000, b"x")
    answer = await produce(host.peer, "effects", 0, young)
    assert answer.error_code is ErrorCode.invalid_timestamp


async def keys_are_wanted(host: Host) -> None:
    assert (await host.produce(b"x")).error_code is ErrorCode.invalid_record


async def every_record_is_flushed(host: Host) -> None:
    await host.produce(b"x")
    await asyncio.sleep(1)
    assert host.log().recovery_point == host.log().log_end_offset


async def nobody_more_is_let_in(host: Host) -> None:
    with pytest.raises(OSError):
        await host.broker.connect("one too many")


async def nobody_is_let_in_twice(host: Host) -> None:
    (await host.broker.connect("another")).close()
    with pytest.raises(OSError):
        await host.broker.connect("client")


async def idle_producers_are_forgotten(host: Host) -> None:
    await host.produce(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    await asyncio.sleep(5)
    assert 7 not in host.log().producers.producers


async def flushed_before_acknowledged(host: Host) -> None:
    await host.produce(b"x")
    assert host.log().recovery_point == host.log().log_end_offset


class Change(NamedTuple):
    value: str
    effect: Effect | None = None


CHANGES = {
    "min.insync.replicas": Change("3"),
    "message.max.bytes": Change("200", small_messages_only),
    "compression.type": Change("gzip", records_are_stored_compressed),
    "compression.gzip.level": Change("3"),
    "compression.lz4.level": Change("3"),
    "compression.zstd.level": Change("5"),
    "max.connections": Change("2", nobody_more_is_let_in),
    "max.connections.per.ip": Change("1", nobody_is_let_in_twice),
    "max.connections.per.ip.overrides": Change("client:1", nobody_is_let_in_twice),
    "max.connection.creation.rate": Change("9"),
    "cordoned.log.dirs": Change("/data"),
    "log.segment.bytes": Change("200", segments_are_small),
    "log.roll.ms": Change("1000", segments_are_young),
    "log.roll.jitter.ms": Change("7"),
    "log.retention.ms": Change("1000", old_segments_go),
    "log.retention.bytes": Change("400", big_logs_shrink),
    "log.cleanup.policy": Change("compact", keys_are_wanted),
    "log.segment.delete.delay.ms": Change("5"),
    "log.index.size.max.bytes": Change("4096"),
    "log.index.interval.bytes": Change("1"),
    "log.preallocate": Change("true"),
    "log.flush.interval.messages": Change("1", every_record_is_flushed),
    "log.flush.interval.ms": Change("10", every_record_is_flushed),
    "log.flush.before.ack": Change("true", flushed_before_acknowledged),
    "log.message.timestamp.type": Change("LogAppendTime", times_are_the_broker_s),
    "log.message.timestamp.before.max.ms": Change("1000", old_times_are_refused),
    "log.message.timestamp.after.max.ms": Change("1000", young_times_are_refused),
    "log.validate.records": Change("header"),
    "num.recovery.threads.per.data.dir": Change("2"),
    "log.cleaner.threads": Change("2"),
    "num.replica.fetchers": Change("2"),
    "leader.replication.throttled.rate": Change("1000000"),
    "follower.replication.throttled.rate": Change("1000000"),
    "unclean.leader.election.enable": Change("true"),
    "log.cleaner.dedupe.buffer.size": Change("50000000"),
    "log.cleaner.io.buffer.size": Change("100000"),
    "log.cleaner.io.buffer.load.factor": Change("0.5"),
    "log.cleaner.io.max.bytes.per.second": Change("1000000.0"),
    "log.cleaner.backoff.ms": Change("77"),
    "log.cleaner.min.cleanable.ratio": Change("0.25"),
    "log.cleaner.min.compaction.lag.ms": Change("9"),
    "log.cleaner.max.compaction.lag.ms": Change("999999"),
    "log.cleaner.delete.retention.ms": Change("9"),
    "replica.alter.log.dirs.io.max.bytes.per.second": Change("1000000"),
    "request.log.slow.ms": Change("5"),
    "producer.id.expiration.ms": Change("1000", idle_producers_are_forgotten),
    "transaction.partition.verification.enable": Change("false"),
    "group.consumer.assignment.interval.ms": Change("1500"),
}


def in_force(host: Host, setting: Setting) -> Any:
    """The value that the part which acts by a setting has of it."""
    parts = host.parts
    if setting.name in OF_TOPICS:
        return getattr(host.log().config, OF_TOPICS[setting.name].attribute)
    if setting.name == "producer.id.expiration.ms":
        return host.log().producers.expiration_ms
    assert parts.logs.config is parts.config()
    return getattr(parts.config(), setting.attribute)


def test_every_dynamic_setting_is_here() -> None:
    assert CHANGES.keys() == DYNAMIC.keys()


@pytest.mark.parametrize("of", ["0", ""], ids=["of one broker", "of all"])
def test_every_dynamic_setting_is_in_force_at_once_under_load_and_given_back(of: str) -> None:
    async def scenario(loop: SimLoop) -> int:
        broker = SimulatedBroker(loop, {"log.retention.check.interval.ms": 1000})
        await broker.start()
        host = Host(loop, broker, await broker.connect())
        await create(host.peer, "effects")
        # What is written meanwhile goes to a topic that keeps its own settings.
        await create(host.peer, "load", 2, **OWN)
        writing = loop.create_task(load(host))
        for key, setting in DYNAMIC.items():
            if not of and setting.dynamic is Dynamic.PER_BROKER:
                continue
            change = CHANGES[key]
            before, shown = in_force(host, setting), await host.described(key)
            await host.set(of, key, change.value)
            assert in_force(host, setting) == setting.parse(change.value), key
            assert await host.described(key) == change.value, key
            if change.effect is not None:
                await change.effect(host)
            await host.set(of, key, None)
            assert (in_force(host, setting), await host.described(key)) == (before, shown), key
        writing.cancel()
        assert not broker.bugs
        written = host.log("load").log_end_offset
        await broker.stop()
        return written

    assert simulate(scenario, seed=1) > 100


OWN = {
    "max_message_bytes": 1_000_000,
    "cleanup_policy": "delete",
    "retention_ms": -1,
    "retention_bytes": -1,
    "min_insync_replicas": 1,
    "message_timestamp_type": "CreateTime",
    "message_timestamp_before_max_ms": 1 << 40,
}


async def load(host: Host) -> None:
    peer = await host.broker.connect("load")
    while True:
        for partition in (0, 1):
            records = batch(host.broker.clock.now_ms(), b"a", b"b")
            answer = await produce(peer, "load", partition, records)
            assert answer.error_code is ErrorCode.none
        await asyncio.sleep(0.1)
