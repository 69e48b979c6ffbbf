"""What the controller and the brokers make of znodes that hold nonsense, or are gone."""

import asyncio
import logging
from uuid import UUID

import pytest

from kserver import znodes
from kserver.controller.topics import CreatableTopic
from kserver.errors import KafkaError
from kserver.model import NO_BROKER
from kserver.wire.control import LeaderAndIsrRequest
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble
from tests.unit.cluster_config.test_alter_configs import TOPIC, alter, setting
from tests.unit.controller.test_controller import Broker, codes, paths

LONGEST_S = 60
STATE = znodes.state_path("bad", 1)
CONFIG = znodes.config_path(znodes.TOPIC_CONFIGS, "bad")
TOPIC_ZNODE = znodes.topic_path("bad")
OF_A_TOPIC = [
    (TOPIC_ZNODE, b"not JSON"),
    (TOPIC_ZNODE, b""),
    (TOPIC_ZNODE, b'{"partitions":{"0":[],"1":[1]}}'),
    (TOPIC_ZNODE, b'{"partitions":{"0":[-1],"1":[1]}}'),
    (TOPIC_ZNODE, b'{"partitions":{"0":[1,1],"1":[1]}}'),
    (TOPIC_ZNODE, b'{"partitions":{"0":[1],"1":[99999999999]}}'),
    (TOPIC_ZNODE, b'{"partitions":{"0":[1],"1":[Infinity]}}'),
    (TOPIC_ZNODE, b'{"topic_id":"?","partitions":{"0":[1],"1":[1]}}'),
    (TOPIC_ZNODE, b"[" * 5000),
    (STATE, b"not JSON"),
    (STATE, b'{"leader":1,"leader_epoch":4294967296,"isr":[1],"controller_epoch":1}'),
    (STATE, b'{"leader":1,"leader_epoch":1,"isr":["?"],"controller_epoch":1}'),
    (CONFIG, b"not JSON"),
    (CONFIG, b'{"config":7}'),
]


def simulated(test, *arguments):
    async def main(loop):
        async with asyncio.timeout(LONGEST_S):
            await test(SimEnsemble(loop, SimClock(loop)), *arguments)

    simulate(main, seed=1)


async def until(holds):
    """Bounded by `simulated`."""
    while not holds():
        await asyncio.sleep(0.01)


def errors(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.parametrize(("path", "data"), OF_A_TOPIC)
def test_a_topic_that_cannot_be_read_is_left_out_until_it_is_mended(path, data, caplog):
    async def run(ensemble):
        async with Broker(ensemble) as broker:
            made = [CreatableTopic("good"), CreatableTopic("bad", 2, config={"retention.ms": "7"})]
            assert codes(await broker.create(*made)) == ["ok", "ok"]
            before = broker.topics["bad"]
            kept, _ = await broker.zookeeper.get(path)
            await broker.zookeeper.set(path, data)
        for epoch in (1, 2, 3):
            caplog.clear()
            async with Broker(ensemble) as broker:
                await broker.until_active()
                assert [p.leader_epoch for p in broker.topics["good"].partitions] == [epoch]
                assert set(broker.topics) == {"good"}
                assert codes(await broker.create(CreatableTopic("bad"))) == ["topic_already_exists"]
                assert codes(await broker.create(CreatableTopic(f"new{epoch}"))) == ["ok"]
                (said,) = [line for line in errors(caplog) if "topic bad is ignored" in line]
                assert path in said
                await broker.delete(f"new{epoch}")
        async with Broker(ensemble) as broker:
            await broker.zookeeper.set(path, kept)
            await until(lambda: "bad" in broker.topics)
            topic = broker.topics["bad"]
            assert (topic.id, topic.config) == (before.id, before.config)
            # The other partition was not led meanwhile either.
            assert [p.leader_epoch for p in topic.partitions] == [1, 1]
            (told,) = [r for r in broker.requests if isinstance(r, LeaderAndIsrRequest)]
            # New is what may begin empty.
            assert {s.is_new for t in told.topic_states for s in t.partition_states} == {False}

    simulated(run)


def test_a_state_that_is_gone_is_made_anew(caplog):
    async def run(ensemble):
        async with Broker(ensemble) as broker:
            assert codes(await broker.create(CreatableTopic("bad", 2))) == ["ok"]
            await broker.zookeeper.delete(STATE)
        async with Broker(ensemble) as broker:
            await broker.until_active()
            assert [p.leader for p in broker.topics["bad"].partitions] == [1, 1]

    simulated(run)


@pytest.mark.parametrize("name", ["9", "nine", "-1"])
def test_a_broker_that_cannot_be_read_is_left_out(name, caplog):
    async def run(ensemble):
        async with Broker(ensemble) as broker:
            other = ensemble.client()
            await other.start()
            await other.create(f"{znodes.BROKER_IDS}/{name}", b"not JSON", ephemeral=True)
            assert codes(await broker.create(CreatableTopic("good"))) == ["ok"]
            await until(lambda: any(" is ignored " in line for line in errors(caplog)))
            assert set(broker.metadata.current.brokers) == {1}
            await other.close()
            await until(lambda: f"{znodes.BROKER_IDS}/{name}" not in ensemble.tree.nodes)
            assert codes(await broker.create(CreatableTopic("more"))) == ["ok"]

    simulated(run)


def test_a_broker_whose_registration_is_overwritten_is_as_before(caplog):
    async def run(ensemble):
        async with Broker(ensemble) as first, Broker(ensemble, broker_id=2) as second:
            await until(lambda: len(first.metadata.current.brokers) == 2)
            registered = first.metadata.current.brokers[2]
            kept, _ = await second.zookeeper.get(znodes.broker_path(2))
            await second.zookeeper.set(znodes.broker_path(2), b"?")
            await until(
                lambda: any(
                    "broker 2 keeps its previous registration" in line for line in errors(caplog)
                )
            )
            assert codes(await first.create(CreatableTopic("on2", assignments={0: [2]}))) == ["ok"]
            assert first.metadata.current.brokers[2] == registered
            moved = kept.replace(b":9092", b":9999")
            await second.zookeeper.set(znodes.broker_path(2), moved)
            await until(
                lambda: first.metadata.current.brokers[2].endpoints["PLAINTEXT"].port == 9999
            )

    simulated(run)


def test_a_broker_whose_registration_is_deleted_registers_again(caplog):
    async def run(ensemble):
        async with Broker(ensemble) as broker:
            assert codes(await broker.create(CreatableTopic("good"))) == ["ok"]
            before = broker.registration.epoch
            other = ensemble.client()
            await other.start()
            for path in sorted(paths(ensemble, "/brokers/ids"), reverse=True):
                await other.delete(path)
            await other.delete("/brokers/ids")
            await until(lambda: broker.registration.epoch > before)
            await until(
                lambda: (
                    broker.controller.is_active
                    and broker.controller.context.brokers[1].epoch == broker.registration.epoch
                )
            )
            assert codes(await broker.create(CreatableTopic("more"))) == ["ok"]
            assert any("/brokers/ids/1 was deleted" in line for line in errors(caplog))
            await other.close()

    simulated(run)


@pytest.mark.parametrize("data", [b"many", b"-7", b"99999999999", None])
def test_controller_epochs_go_on_from_what_was_heard_of(data):
    async def run(ensemble):
        async with Broker(ensemble, broker_id=1) as first:
            for _ in range(2):  # claimed three times
                first.zookeeper.expire()
                await until(lambda: not first.controller.is_active)
                await until(lambda: first.controller.is_active)
            assert first.controller.context.epoch == 3
            await first.create(CreatableTopic("good"))
            other = ensemble.client()
            await other.start()
            if data is None:
                await other.delete(znodes.CONTROLLER_EPOCH)
            else:
                await other.set(znodes.CONTROLLER_EPOCH, data)
            first.zookeeper.expire()
            await until(lambda: not first.controller.is_active)
            await until(lambda: first.controller.is_active)
            assert first.controller.context.epoch == 4
            assert codes(await first.create(CreatableTopic("more"))) == ["ok"]
            await other.close()

    simulated(run)


@pytest.mark.parametrize(
    "path", sorted({*znodes.PERSISTENT_PATHS} - {znodes.BROKER_IDS, znodes.TOPICS})
)
def test_what_every_cluster_has_is_made_again(path):
    async def run(ensemble):
        async with Broker(ensemble) as broker:
            other = ensemble.client()
            await other.start()
            for below in sorted((p for p in paths(ensemble, path) if p != path), reverse=True):
                await other.delete(below)
            await other.delete(path)
            await asyncio.sleep(1)
            assert all(not running.done() for running in broker._running)
        async with Broker(ensemble) as broker:
            await broker.until_active()
            assert path in ensemble.tree.nodes
            assert codes(await broker.create(CreatableTopic("good"))) == ["ok"]
            change = setting(TOPIC, "good", "retention.ms", "7")
            assert await alter(broker, change) == ["ok"]
            assert codes(await broker.delete("good")) == ["ok"]
            await other.close()

    simulated(run)


def test_topics_that_are_all_deleted_from_zookeeper_end_nobody():
    async def run(ensemble):
        async with Broker(ensemble) as broker:
            assert codes(await broker.create(CreatableTopic("gone"))) == ["ok"]
            for path in sorted(paths(ensemble, znodes.TOPICS), reverse=True):
                await broker.zookeeper.delete(path)
            await broker.until_active()
            await asyncio.sleep(1)
            await broker.until_active()
            assert codes(await broker.create(CreatableTopic("good"))) == ["ok"]
            assert all(not running.done() for running in broker._running)

    simulated(run)


def test_a_note_that_cannot_be_read_keeps_no_other_from_being_taken(caplog):
    async def run(ensemble):
        async with Broker(ensemble, 1) as first, Broker(ensemble, 2) as second:
            assert codes(await first.create(CreatableTopic("good", assignments={0: [1]}))) == ["ok"]
            await first.zookeeper.create(znodes.CONFIG_CHANGE_PREFIX, b"?", sequence=True)
            await first.zookeeper.create(f"{znodes.CONFIG_CHANGES}/stray")
            change = setting(TOPIC, "good", "retention.ms", "7")
            await second.configs.learn({"good": UUID(int=0)})
            assert await alter(first, change) == ["ok"]
            await until(lambda: second.configs.topics["good"] == {"retention.ms": "7"})
            assert any("ignoring invalid config change" in line for line in errors(caplog))

    simulated(run)


@pytest.mark.parametrize(
    ("entity_type", "name", "of"),
    [
        (znodes.BROKER_CONFIGS, "1", lambda image: image.broker_configs.get(1)),
        (znodes.BROKER_CONFIGS, "<default>", lambda image: image.broker_configs.get(NO_BROKER)),
        (znodes.GROUP_CONFIGS, "g", lambda image: image.group_configs.get("g")),
    ],
)
def test_settings_that_cannot_be_read_are_as_they_were_until_they_are_mended(
    entity_type, name, of, caplog
):
    async def run(ensemble):
        path = znodes.config_path(entity_type, name)
        async with Broker(ensemble) as broker:
            await broker.zookeeper.create(path, b"nonsense")
        async with Broker(ensemble) as broker:
            assert of(broker.metadata.current) is None
            assert any(path in line for line in errors(caplog))
            await broker.zookeeper.set(path, znodes.encode_config({"a": "1"}))
            await until(lambda: of(broker.metadata.current) == {"a": "1"})
            await broker.zookeeper.set(path, b"nonsense")
            note = znodes.encode_config_change(entity_type, name)
            await broker.zookeeper.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)
            # A gap has all of it read.
            await broker.zookeeper.create(f"{znodes.CONFIG_CHANGE_PREFIX}0000000099", note)
            caplog.clear()
            await until(lambda: any(path in line for line in errors(caplog)))
            await asyncio.sleep(1)
            assert of(broker.metadata.current) == {"a": "1"}

    simulated(run)


@pytest.mark.parametrize("path", [znodes.FEATURES, znodes.PRODUCER_ID_BLOCK])
def test_the_rest_goes_on_where_these_cannot_be_read(path, caplog):
    async def run(ensemble):
        async with Broker(ensemble) as broker:
            epoch = broker.registration.epoch
            await broker.controller.allocate_producer_ids(1, epoch)
            await broker.zookeeper.set(path, b"nonsense")
        async with Broker(ensemble) as broker:
            await broker.until_active()
            assert codes(await broker.create(CreatableTopic("good"))) == ["ok"]
            epoch = broker.registration.epoch
            if path == znodes.PRODUCER_ID_BLOCK:
                with pytest.raises(KafkaError, match="set its block_end above every producer id"):
                    await broker.controller.allocate_producer_ids(1, epoch)
            else:
                assert any(path in line for line in errors(caplog))
                await broker.controller.allocate_producer_ids(1, epoch)

    simulated(run)
