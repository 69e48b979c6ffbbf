"""Configurations changed by the controller over a simulated ZooKeeper, whatever fails when."""

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kserver import znodes
from kserver.cluster_config.config_manager import KEPT_NOTES
from kserver.cluster_config.configs import Change, Op, OpType, ResourceType
from kserver.controller.topics import CreatableTopic
from kserver.model import NO_BROKER
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble
from tests.unit.controller.test_controller import Broker, codes, paths, scenario

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def setting(kind, name, key, value):
    op = OpType.DELETE if value is None else OpType.SET
    return Change(kind, name, [Op(key, op, value)])


async def alter(broker, *changes, validate_only=False):
    return codes(await broker.configs.alter_configs(changes, validate_only=validate_only))


async def stored(broker, *entity):
    data, _ = await broker.zookeeper.get(znodes.config_path(*entity))
    return json.loads(data)


@scenario
async def test_what_is_set_is_in_zookeeper_in_the_image_and_told(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("t", config={"segment.ms": "9"}))
        done = await alter(
            broker,
            setting(TOPIC, "t", "retention.ms", "5"),
            setting(BROKER, "", "max.connections", "8"),
            setting(BROKER, "1", "max.connections", "9"),
        )
        assert done == ["ok"] * 3
        assert broker.topics["t"].config == {"segment.ms": "9", "retention.ms": "5"}
        image = broker.metadata.current
        assert image.broker_configs == {
            NO_BROKER: {"max.connections": "8"},
            1: {"max.connections": "9"},
        }
        assert broker.told[-1] is image
        assert await stored(broker, "topics", "t") == {
            "version": 1,
            "config": {"segment.ms": "9", "retention.ms": "5"},
        }
        for name, value in (("<default>", "8"), ("1", "9")):
            config = {"version": 1, "config": {"max.connections": value}}
            assert await stored(broker, "brokers", name) == config
        notes = [
            znodes.decode_config_change((await broker.zookeeper.get(path))[0])
            for path in paths(ensemble, "/config/changes")
        ]
        assert notes == [("topics", "t"), ("brokers", "<default>"), ("brokers", "1")]


@scenario
async def test_a_restart_finds_what_was_set(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("t"))
        await alter(
            broker,
            setting(TOPIC, "t", "retention.ms", "5"),
            setting(BROKER, "", "max.connections", "8"),
        )
        before = broker.metadata.current
        await broker.kill()
    async with Broker(ensemble) as broker:
        after = broker.metadata.current
        assert after.broker_configs == before.broker_configs
        assert after.topics["t"].config == before.topics["t"].config


@scenario
async def test_nothing_is_written_of_what_is_refused_validated_or_as_it_was(ensemble):
    async with Broker(ensemble) as broker:
        await broker.create(CreatableTopic("t", config={"retention.ms": "5"}))
        told, image = len(broker.told), broker.metadata.current
        assert await alter(
            broker,
            setting(TOPIC, "t", "retention.ms", "x"),
            setting(TOPIC, "u", "retention.ms", "5"),
            setting(BROKER, "1", "num.partitions", "5"),
            setting(BROKER, "2", "max.connections", "5"),
        ) == ["invalid_config", "unknown_topic_or_partition", "invalid_request", "invalid_request"]
        change = setting(TOPIC, "t", "retention.ms", "6")
        assert await alter(broker, change, validate_only=True) == ["ok"]
        assert await alter(broker, setting(TOPIC, "t", "retention.ms", "5")) == ["ok"]
        assert (len(broker.told), broker.metadata.current) == (told, image)
        assert paths(ensemble, "/config/changes") == []


@scenario
async def test_the_default_counts_when_a_broker_s_own_is_judged(ensemble):
    async with Broker(ensemble) as broker:
        low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
        assert await alter(
            broker, setting(BROKER, "", low, "9"), setting(BROKER, "1", high, "5")
        ) == ["ok", "invalid_request"]


@scenario
async def test_only_so_many_notes_are_kept(ensemble):
    async with Broker(ensemble) as broker:
        for number in range(2 * KEPT_NOTES + 9):
            await alter(broker, setting(BROKER, "", "max.connections", str(number)))
            assert len(paths(ensemble, "/config/changes")) < 2 * KEPT_NOTES
        notes = paths(ensemble, "/config/changes")
        assert len(notes) == KEPT_NOTES + 9
        assert notes[-1].endswith(f"{2 * KEPT_NOTES + 8:010d}")


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.lists(
        st.tuples(st.sampled_from(["cut", "expire", "kill"]), st.floats(0, 0.02)),
        min_size=1,
        max_size=3,
    ),
)
def test_what_was_answered_holds(seed, lives):
    """Every life sets a counter, up and up, while its connection, session or process is lost."""

    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        answered = asked = 0
        for what, after_s in [*lives, ("kill", 0.1)]:
            async with Broker(ensemble) as broker:
                found = int(
                    broker.metadata.current.broker_configs.get(1, {}).get("max.connections", 0)
                )
                assert answered <= found <= asked
                answered = asked = found

                async def count():
                    nonlocal answered, asked
                    while True:
                        asked += 1
                        change = setting(BROKER, "1", "max.connections", str(asked))
                        if await alter(broker, change) == ["ok"]:
                            answered = asked
                            now = broker.metadata.current.broker_configs[1]["max.connections"]
                            assert now == str(asked)
                        else:
                            await asyncio.sleep(0.001)

                counting = loop.create_task(count())
                await asyncio.sleep(after_s)
                if what == "kill":
                    counting.cancel()
                    await broker.kill()
                    continue
                getattr(broker.zookeeper, what)()
                await asyncio.sleep(0.05)
                if what == "cut":
                    broker.zookeeper.heal()
                await asyncio.sleep(0.2)
                counting.cancel()
        assert answered > 0

    simulate(main, seed)
