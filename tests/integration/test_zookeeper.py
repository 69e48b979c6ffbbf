"""Test a broker with a real ZooKeeper: its znodes are readable by old tools."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver.world.kazoo import KazooZooKeeper
from tests.support.process import BrokerProcess
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer


@pytest.fixture(scope="module", params=[ZooKeeperServer, OwnZooKeeperServer])
def ensemble(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.address


async def read(address: str, *paths: str) -> list[dict | None]:
    zookeeper = KazooZooKeeper(address)
    await zookeeper.start()
    try:
        found = []
        for path in paths:
            there = await zookeeper.exists(path)
            found.append(json.loads((await zookeeper.get(path))[0]) if there else None)
        return found
    finally:
        await zookeeper.close()


async def create(broker: BrokerProcess, topic: str) -> None:
    async with Admin(AdminConfig.of({"bootstrap.servers": broker.address})) as admin:
        (made,) = (await admin.create_topics([NewTopic(topic, 2, 1)])).values()
        assert made.partitions == 2


def test_a_broker_registers_makes_topics_and_leaves(tmp_path: Path, ensemble: str) -> None:
    settings = {"zookeeper.connect": f"{ensemble}/k", "broker.id": 7}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        asyncio.run(create(broker, "orders"))
        alive, controller, topic, state = asyncio.run(
            read(
                f"{ensemble}/k",
                "/brokers/ids/7",
                "/controller",
                "/brokers/topics/orders",
                "/brokers/topics/orders/partitions/1/state",
            )
        )
        assert alive["endpoints"] == [f"PLAINTEXT://{broker.address}"]
        assert controller["brokerid"] == 7
        assert topic["partitions"] == {"0": [7], "1": [7]}
        assert (state["leader"], state["isr"]) == (7, [7])
        assert broker.stop() == 0
        assert asyncio.run(read(f"{ensemble}/k", "/brokers/ids/7", "/controller")) == [None, None]

        broker.start()
        (again,) = asyncio.run(read(f"{ensemble}/k", "/brokers/topics/orders/partitions/1/state"))
        assert again["leader_epoch"] > state["leader_epoch"]


def test_an_id_is_handed_out_and_kept(tmp_path: Path, ensemble: str) -> None:
    settings = {"zookeeper.connect": f"{ensemble}/generated"}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        assert any("[KafkaServer id=1001] started" in line for line in broker.output)
        broker.output.clear()
        broker.restart()
        assert any("[KafkaServer id=1001] started" in line for line in broker.output)


def test_a_second_broker_of_the_same_id_is_refused(tmp_path: Path, ensemble: str) -> None:
    settings = {
        "zookeeper.connect": f"{ensemble}/twice",
        "broker.id": 3,
        "zookeeper.session.timeout.ms": 4000,
    }
    with (
        BrokerProcess(tmp_path / "one", settings),
        pytest.raises(RuntimeError, match=r"another broker with the id 3 is registered"),
    ):
        BrokerProcess(tmp_path / "two", settings).start()


def test_no_zookeeper_is_one_clear_line(tmp_path: Path) -> None:
    settings = {
        "zookeeper.connect": "127.0.0.1:1",
        "zookeeper.connection.timeout.ms": 500,
    }
    with pytest.raises(RuntimeError) as refused:
        BrokerProcess(tmp_path / "broker", settings).start()
    assert "127.0.0.1:1" in str(refused.value)
    assert "Traceback" not in str(refused.value)
