"""Test UpdateFeatures requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import api_versions
from kserver.api import update_features as module
from kserver.errors import ErrorCode
from tests.support import brokers
from tests.support.wire_client import WireClient

KEY, VERSIONS = module.KEY, module.VERSIONS
pytestmark = pytest.mark.usefixtures("since_4")
every_version = pytest.mark.parametrize("version", VERSIONS)
API_VERSIONS = api_versions.KEY
GROUPS, TRANSACTIONS = "group.version", "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
NEWEST = {GROUPS: 1, TRANSACTIONS: 2}


def told(client, version=4):
    software = {"client_software_name": "wire", "client_software_version": "1.0"}
    return client.call(API_VERSIONS, version, **software)


def finalized(client):
    features = told(client).finalized_features
    return {f.name: f.max_version_level for f in features if f.name in NEWEST}


def update(client, version, *, validate_only=False, **levels):
    """Update features, named with _ for the dot; a level below the newest is a downgrade."""
    updates = [
        {
            "feature": name.replace("_", "."),
            "max_version_level": level,
            "upgrade_type": UPGRADE if level == NEWEST.get(name.replace("_", "."), level) else 2,
            "allow_downgrade": level != NEWEST.get(name.replace("_", "."), level),
        }
        for name, level in levels.items()
    ]
    return client.call(KEY, version, feature_updates=updates, validate_only=validate_only)


@pytest.fixture
def newest(client):
    yield
    for name, level in NEWEST.items():
        if finalized(client).get(name) != level:
            assert update(client, 1, **{name: level}).error_code is ErrorCode.none


@every_version
@pytest.mark.usefixtures("newest")
def test_a_level_is_lowered_and_raised_and_every_client_told(broker, client, kind, version):
    if version == 0 and kind != brokers.OURS:
        pytest.skip("Apache's broker passes over allow_downgrade")
    assert finalized(client) == NEWEST
    before = told(client).finalized_features_epoch
    assert update(client, version, transaction_version=1).error_code is ErrorCode.none
    with WireClient(broker.address) as other:
        brokers.until(lambda: finalized(other) == NEWEST | {TRANSACTIONS: 1})
        assert told(other).finalized_features_epoch > before
    assert update(client, version, transaction_version=2).error_code is ErrorCode.none
    brokers.until(lambda: finalized(client) == NEWEST)


@every_version
@pytest.mark.usefixtures("newest", "only_ours")
def test_level_0_is_no_level(client, version):
    answer = update(client, version, transaction_version=0, group_version=0)
    assert answer.error_code is ErrorCode.none
    assert finalized(client) == {}


@every_version
def test_one_that_is_refused_refuses_all(client, version):
    answer = update(client, version, transaction_version=1, group_version=7)
    assert answer.error_code is ErrorCode.invalid_update_version
    assert "Invalid update version 7 for feature group.version." in answer.error_message
    assert finalized(client) == NEWEST


@pytest.mark.usefixtures("only_ours")
@pytest.mark.parametrize("version", [0, 1])
def test_each_feature_is_answered_where_there_is_room_for_it(client, version):
    answer = update(client, version, transaction_version=1, group_version=7)
    assert {r.feature: r.error_code for r in answer.results} == {
        TRANSACTIONS: ErrorCode.operation_not_attempted,
        GROUPS: ErrorCode.invalid_update_version,
    }


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 1])
def test_what_is_only_asked_changes_nothing(client, version):
    answer = update(client, version, validate_only=True, transaction_version=1)
    assert answer.error_code is ErrorCode.none
    assert finalized(client) == NEWEST


@pytest.mark.parametrize("version", api_versions.VERSIONS)
def test_features_whose_minimum_is_0_are_supported_only_to_who_can_read_it(client, version):
    answer = told(client, version)
    supported = (
        {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
        if (version >= 3)
        else {}
    )
    known = {name: supported[name] for name in NEWEST if name in supported}
    assert known == ({name: (0, level) for name, level in NEWEST.items()} if version >= 4 else {})
