"""Test FindCoordinator requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import find_coordinator as module
from kserver.errors import ErrorCode
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
GROUP, TRANSACTION = 0, 1
FIRST_WITH_MANY_KEYS = 4


def ask(client, version, kind, *keys):
    if version < FIRST_WITH_MANY_KEYS:
        return [client.call(KEY, version, key=keys[0], key_type=kind)]
    return list(client.call(KEY, version, coordinator_keys=keys, key_type=kind).coordinators)


@every_version
@pytest.mark.parametrize("coordinator", [GROUP, TRANSACTION])
def test_this_broker_is_found_and_its_topic_made(broker, client, version, coordinator):
    if version == 0 and coordinator == TRANSACTION:
        pytest.skip("v0 has no key types")

    def found():
        (one,) = ask(client, version, coordinator, "a")
        # Apache's broker creates the topic after its first response.
        return one.error_code is not ErrorCode.coordinator_not_available

    until(found)
    (one,) = ask(client, version, coordinator, "a")
    assert one.error_code is ErrorCode.none
    assert f"{one.host}:{one.port}" == broker.address


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_MANY_KEYS])
def test_every_key_is_answered(client, version):
    assert [found.key for found in ask(client, version, GROUP, "a", "b", "c")] == ["a", "b", "c"]


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 1])
def test_an_unknown_kind_of_coordinator_is_refused(client, version):
    (found,) = ask(client, version, 99, "a")
    assert found.error_code is ErrorCode.invalid_request
