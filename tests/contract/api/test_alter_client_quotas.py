"""Test AlterClientQuotas requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import alter_client_quotas as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import alter_quotas, described_quotas
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
@pytest.mark.parametrize(
    "kinds", [("user",), ("client-id",), ("client-id", "user")], ids=" and ".join
)
def test_a_quota_is_set_changed_and_removed(client, name, version, kinds):
    entity = tuple((one, name) for one in kinds)
    for bounds in (
        {"producer_byte_rate": 1e9},
        {"producer_byte_rate": 2e9, "controller_mutation_rate": 0.5},
        {"producer_byte_rate": None, "controller_mutation_rate": 0.5},
    ):
        assert alter_quotas(client, entity, version, **bounds).error_code is ErrorCode.none
        held = {key: value for key, value in bounds.items() if value is not None}
        until_held(client, entity, held)
    done = alter_quotas(client, entity, version, controller_mutation_rate=None)
    assert done.error_code is ErrorCode.none
    until_held(client, entity, None)


def until_held(client, entity, bounds):
    until(lambda: described_quotas(client, entity) == bounds)


@every_version
def test_any_name_and_the_default_can_have_a_quota(client, version):
    for name in ("a b/c", "ü*~%+", "=1+1", "..%2F", "<default>", None):
        entity = (("client-id", name),)
        assert alter_quotas(client, entity, version, producer_byte_rate=1e12).error_code is (
            ErrorCode.none
        )
        until_held(client, entity, {"producer_byte_rate": 1e12})
        alter_quotas(client, entity, version, producer_byte_rate=None)


@every_version
def test_an_address_has_a_rate_of_connections(client, version):
    entity = (("ip", "192.0.2.1"),)
    done = alter_quotas(client, entity, version, connection_creation_rate=5.0)
    assert done.error_code is ErrorCode.none
    until_held(client, entity, {"connection_creation_rate": 5.0})
    alter_quotas(client, entity, version, connection_creation_rate=None)


@every_version
def test_validate_only_changes_nothing(client, name, version):
    entity = (("user", name),)
    done = alter_quotas(client, entity, version, validate_only=True, producer_byte_rate=1.0)
    assert done.error_code is ErrorCode.none
    assert described_quotas(client, entity) is None
    done = alter_quotas(client, entity, version, validate_only=True, producer_byte_rate=-1.0)
    assert done.error_code is ErrorCode.invalid_request


@every_version
@pytest.mark.parametrize(
    ("entity", "bounds"),
    [
        ((), {"producer_byte_rate": 1.0}),
        ((("planet", "x"),), {"producer_byte_rate": 1.0}),
        ((("user", ""),), {"producer_byte_rate": 1.0}),
        ((("user", "x"), ("ip", "192.0.2.1")), {"producer_byte_rate": 1.0}),
        ((("ip", "192.0.2.256"),), {"connection_creation_rate": 1.0}),
        ((("user", "x"),), {"speed": 1.0}),
        ((("user", "x"),), {"producer_byte_rate": 0.0}),
        ((("user", "x"),), {"producer_byte_rate": 1.5}),
    ],
)
def test_what_makes_no_sense_is_refused_and_told_why(client, version, entity, bounds):
    refused = alter_quotas(client, entity, version, **bounds)
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message
    assert described_quotas(client, entity) is None


@every_version
def test_each_entity_is_answered_on_its_own(client, name, version):
    def entry(entity_name, value):
        return {
            "entity": [{"entity_type": "user", "entity_name": entity_name}],
            "ops": [{"key": "producer_byte_rate", "value": value}],
        }

    answer = client.call(KEY, version, entries=[entry(name, 1e9), entry(name + "-2", -1.0)])
    codes = {one.entity[0].entity_name: one.error_code for one in answer.entries}
    assert codes == {name: ErrorCode.none, name + "-2": ErrorCode.invalid_request}
    alter_quotas(client, (("user", name),), producer_byte_rate=None)


@pytest.mark.usefixtures("only_ours")
@pytest.mark.parametrize("name", [".", "..", "c" * 1025])
def test_a_name_that_no_znode_can_have_is_refused(client, name):
    refused = alter_quotas(client, (("client-id", name),), producer_byte_rate=1.0)
    assert refused.error_code is ErrorCode.invalid_request
