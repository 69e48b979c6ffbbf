"""Quotas as the controller keeps them, over a simulated ZooKeeper."""

import asyncio

from kserver import znodes
from kserver.cluster_config.quotas import Alteration
from kserver.model import QuotaEntity
from tests.unit.controller.test_controller import Broker, codes, paths, scenario

BOTH = [("user", "alice"), ("client-id", "c")]


async def alter(broker, *alterations, validate_only=False):
    return await broker.configs.alter_quotas(
        [Alteration(named, list(changes.items())) for named, changes in alterations],
        validate_only=validate_only,
    )


@scenario
async def test_a_quota_is_in_zookeeper_and_in_the_image(ensemble):
    async with Broker(ensemble) as broker:
        done = await alter(
            broker,
            (BOTH, {"producer_byte_rate": 1024.0, "request_percentage": 50.0}),
            ([("ip", None)], {"connection_creation_rate": 10.0}),
        )
        assert done == [None, None]
        assert paths(ensemble, "/config/users") == [
            "/config/users/alice",
            "/config/users/alice/clients",
            "/config/users/alice/clients/c",
        ]
        data, _ = await broker.zookeeper.get("/config/users/alice/clients/c")
        assert data == (
            b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"50.0"}}'
        )
        quotas = broker.metadata.current.quotas
        assert quotas[QuotaEntity("alice", "c")] == {
            "producer_byte_rate": 1024,
            "request_percentage": 50,
        }
        assert quotas[QuotaEntity(ip="")] == {"connection_creation_rate": 10}
        assert broker.told[-1] is broker.metadata.current


@scenario
async def test_quotas_are_read_by_the_next_controller(ensemble):
    async with Broker(ensemble) as broker:
        for named in (BOTH, [("client-id", None)], [("user", "a b/c")], [("ip", "::1")]):
            key = "connection_creation_rate" if named[0][0] == "ip" else "consumer_byte_rate"
            assert await alter(broker, (named, {key: 5.0})) == [None]
        before = broker.metadata.current.quotas
    async with Broker(ensemble) as broker:
        assert broker.metadata.current.quotas == before
        assert len(before) == 4


@scenario
async def test_what_a_user_has_beside_his_quotas_stays(ensemble):
    async with Broker(ensemble) as broker:
        path = znodes.config_path(znodes.USER_CONFIGS, "alice")
        await broker.zookeeper.create(path, znodes.encode_config({"SCRAM-SHA-256": "salt=x"}))
        for value in (5.0, None):
            await alter(broker, ([("user", "alice")], {"producer_byte_rate": value}))
        data, _ = await broker.zookeeper.get(path)
        assert data == znodes.encode_config({"SCRAM-SHA-256": "salt=x"})
        assert broker.metadata.current.quotas == {}


@scenario
async def test_each_entity_is_answered_on_its_own_and_judged_before_it_is_written(ensemble):
    async with Broker(ensemble) as broker:
        given = (
            ([("user", "a")], {"producer_byte_rate": 1.0}),
            ([("user", "b")], {"producer_byte_rate": -1.0}),
            ([("user", "c")], {"producer_byte_rate": 1.0}),
            ([("user", "c")], {"producer_byte_rate": 2.0}),
        )
        judged = await alter(broker, *given, validate_only=True)
        assert paths(ensemble, "/config/users") == []
        done = await alter(broker, *given)
        wrong = "invalid_request"
        assert codes(judged) == codes(done) == ["ok", wrong, wrong, wrong]
        assert paths(ensemble, "/config/users") == ["/config/users/a"]


@scenario
async def test_quotas_are_set_although_the_connection_is_lost(ensemble):
    async with Broker(ensemble) as broker:
        for number in range(20):
            ensemble.loop.call_later(0.001 * number, broker.zookeeper.cut)
            ensemble.loop.call_later(0.5, broker.zookeeper.heal)
            assert await alter(broker, (BOTH, {"producer_byte_rate": number + 1.0})) == [None]
            held = broker.metadata.current.quotas[QuotaEntity("alice", "c")]
            assert held == {"producer_byte_rate": number + 1.0}
            await asyncio.sleep(1)
