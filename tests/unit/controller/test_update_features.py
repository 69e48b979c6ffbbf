"""Features over a simulated ZooKeeper: what is answered is there at the next start."""

from kserver.controller.features import NEWEST, Update, UpgradeType
from kserver.errors import ErrorCode
from kserver.znodes import FEATURES, decode_features, encode_features
from tests.unit.controller.test_controller import Broker, scenario

LOWERED = Update("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)


@scenario
async def test_a_new_cluster_finalizes_the_newest(ensemble):
    async with Broker(ensemble) as broker:
        features = broker.metadata.current.features
        assert features.levels == NEWEST
        data, stat = await broker.zookeeper.get(FEATURES)
        assert decode_features(data) == NEWEST
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
        await broker.zookeeper.set(FEATURES, encode_features({}))
    async with Broker(ensemble) as broker:
        assert broker.metadata.current.features.levels == {}
        assert broker.metadata.current.features.group_version == 0


@scenario
async def test_features_that_somebody_else_has_changed_are_not_overwritten(ensemble):
    async with Broker(ensemble) as broker:
        await broker.zookeeper.set(FEATURES, encode_features({}))
        (error,) = await broker.controller.update_features([LOWERED], validate_only=False)
        assert error.code is ErrorCode.not_controller
        data, _ = await broker.zookeeper.get(FEATURES)
        assert decode_features(data) == {}
