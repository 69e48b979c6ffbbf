"""Features over a simulated ZooKeeper: what is answered is there at the next start."""

import asyncio

from kserver import znodes
from kserver.controller.features import NEWEST, Update, UpgradeType
from kserver.errors import ErrorCode
from tests.support.controlled_broker import ENDPOINT
from tests.unit.controller.test_controller import Broker, codes, scenario

LOWERED = Update("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)


@scenario
async def test_a_new_cluster_finalizes_the_newest(ensemble):
    async with Broker(ensemble) as broker:
        features = broker.metadata.current.features
        assert features.levels == NEWEST
        data, stat = await broker.zookeeper.get(znodes.FEATURES)
        assert znodes.decode_features(data) == NEWEST
        assert features.epoch == stat.version


@scenario
async def test_what_is_finalized_is_told_and_kept(ensemble):
    async with Broker(ensemble) as broker:
        before = broker.metadata.current.features
        assert await broker.controller.update_features([LOWERED], validate_only=True) == [None]
        assert broker.told == []
        assert await broker.controller.update_features([LOWERED], validate_only=False) == [None]
        (image,) = broker.told
        assert image.features.transaction_version == 1
        assert image.features.epoch == before.epoch + 1
    async with Broker(ensemble) as broker:
        assert broker.metadata.current.features == image.features


@scenario
async def test_what_was_there_is_left_alone(ensemble):
    async with Broker(ensemble) as broker:
        await broker.zookeeper.set(znodes.FEATURES, znodes.encode_features({}))
    async with Broker(ensemble) as broker:
        assert broker.metadata.current.features.levels == {}
        assert broker.metadata.current.features.group_version == 0


@scenario
async def test_features_that_somebody_else_has_changed_are_not_overwritten(ensemble):
    async with Broker(ensemble) as broker:
        # Its turn comes at once from here on.
        await broker.controller.update_features([], validate_only=True)
        await broker.zookeeper.set(znodes.FEATURES, znodes.encode_features({}))
        (error,) = await broker.controller.update_features([LOWERED], validate_only=False)
        assert error.code is ErrorCode.not_controller
        data, _ = await broker.zookeeper.get(znodes.FEATURES)
        assert znodes.decode_features(data) == {}


@scenario
async def test_features_are_lowered_to_what_a_broker_of_apache_knows(ensemble):
    async with Broker(ensemble) as broker:
        assert broker.configs.features.levels == NEWEST
        apache = ensemble.client()
        await apache.start()
        registered = znodes.encode_broker(znodes.BrokerRegistration(2, (ENDPOINT,), 0))
        await apache.create("/brokers/ids/2", registered, ephemeral=True)
        while broker.configs.features.levels:
            await asyncio.sleep(0.01)
        raised = [Update(name, level) for name, level in NEWEST.items()]
        refused = await broker.controller.update_features(raised, validate_only=False)
        assert codes(refused) == ["invalid_update_version"] * len(NEWEST)
        await apache.close()
        while await broker.controller.update_features(raised, validate_only=False) != [None, None]:
            await asyncio.sleep(0.01)
        assert broker.configs.features.levels == NEWEST


@scenario
async def test_a_cluster_that_was_of_apache_begins_without_features(ensemble):
    apache = ensemble.client()
    await apache.start()
    registered = znodes.encode_broker(znodes.BrokerRegistration(2, (ENDPOINT,), 0))
    await apache.create("/brokers/ids/2", registered, ephemeral=True, make_parents=True)
    async with Broker(ensemble) as broker:
        assert broker.configs.features.levels == {}
    await apache.close()
