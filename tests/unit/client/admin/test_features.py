"""Features of the cluster: told and changed, by brokers that are scripted."""

from __future__ import annotations

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.admin.features import FeatureUpdate, UpgradeType
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK
from tests.support.scripted_broker import ScriptedBroker, metadata

UPDATES = {
    "a": FeatureUpdate(2),
    "b": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE),
    "c": FeatureUpdate(0, UpgradeType.UNSAFE_DOWNGRADE),
}


def run(scenario, versions=None, codes=(), results=None):
    """`scenario(admin.features, broker)`; `codes` are those of the next answers, `results` those of
    the features."""

    async def main(loop: SimLoop):
        broker, left = ScriptedBroker(loop, "broker-0"), list(codes)

        def update(request):
            reply = reply_to(request)
            told = [
                reply.results(feature=name, error_code=code, error_message="told")
                for name, code in (results or {}).items()
            ]
            return reply(error_code=left.pop(0) if left else OK, error_message="no", results=told)

        broker.on(ApiKey.METADATA, metadata(broker))
        broker.on(ApiKey.UPDATE_FEATURES, update, versions)
        broker.features = {"a": 1}
        await broker.start()
        async with Admin({"bootstrap.servers": broker.address}) as admin:
            return await scenario(admin.features, broker)

    return simulate(main, 1)


def test_levels_are_told_as_a_broker_has_them():
    async def scenario(features, broker):
        found = await features.describe()
        assert (found.finalized, found.epoch) == ({"a": 1}, 1)
        broker.features = {}
        assert (await features.describe(0)).epoch is None

    run(scenario)


def test_an_update_says_what_kind_it_is_in_every_version():
    async def scenario(features, broker):
        await features.update(UPDATES, validate_only=broker.versions[ApiKey.UPDATE_FEATURES][1] > 0)
        (asked,) = broker.asked(ApiKey.UPDATE_FEATURES)
        assert [(u.feature, u.max_version_level) for u in asked.feature_updates] == [
            *(("a", 2), ("b", 1), ("c", 0))
        ]
        return asked

    assert [u.allow_downgrade for u in run(scenario, (0, 0)).feature_updates] == [False, True, True]
    for version in (1, 2):
        asked = run(scenario, (0, version))
        assert [u.upgrade_type for u in asked.feature_updates] == [1, 2, 3]
        assert asked.validate_only


def test_what_each_feature_met_is_told():
    async def scenario(features, broker):
        return await features.update(UPDATES)

    refused = run(scenario, (0, 1), results={"a": OK, "b": ErrorCode.invalid_update_version})
    assert refused["a"] is None
    assert (refused["b"].code, refused["b"].message) == (ErrorCode.invalid_update_version, "told")
    assert isinstance(refused["c"], KafkaError)
    all_refused = run(scenario, codes=[ErrorCode.feature_update_failed])
    assert {error.message for error in all_refused.values()} == {"no"}
    assert run(scenario) == {"a": None, "b": None, "c": None}


def test_another_controller_is_looked_for():
    async def scenario(features, broker):
        await features.update(UPDATES)
        assert len(broker.asked(ApiKey.UPDATE_FEATURES)) == 2

    run(scenario, codes=[ErrorCode.not_controller])


def test_what_cannot_be_tried_is_not_done_instead():
    async def scenario(features, broker):
        with pytest.raises(KafkaError, match="cannot try an update"):
            await features.update(UPDATES, validate_only=True)
        assert not broker.asked(ApiKey.UPDATE_FEATURES)

    run(scenario, (0, 0))
