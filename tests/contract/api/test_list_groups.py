"""Test ListGroups requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import list_groups as module
from kserver.errors import ErrorCode
from tests.contract.api.group_calls import commit, join, leave, stable

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_STATES, FIRST_WITH_TYPES = 4, 5


def listed(client, version, **fields):
    """Return the listed groups by id."""
    answer = client.call(KEY, version, **fields)
    assert answer.error_code is ErrorCode.none
    return {one.group_id: one for one in answer.groups}


@every_version
def test_groups_are_listed_with_what_they_are(client, group, topic, version):
    joined = stable(client, group)
    commit(client, f"{group}-offsets", topic, {0: 5})
    found = listed(client, version)
    assert found[group].protocol_type == "consumer"
    assert found[f"{group}-offsets"].protocol_type == ""
    if version >= FIRST_WITH_STATES:
        assert found[group].group_state == "Stable"
        assert found[f"{group}-offsets"].group_state == "Empty"
        leave(client, group, joined.member_id)
        assert listed(client, version)[group].group_state == "Empty"
    if version >= FIRST_WITH_TYPES:
        assert found[group].group_type == "classic"


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_STATES])
def test_only_groups_in_the_states_asked_for_are_listed(client, group, version):
    join(client, group)
    for states in (["CompletingRebalance"], ["completingREBALANCE", "Stable"], []):
        assert group in listed(client, version, states_filter=states), states
    for states in (["Stable", "Empty"], ["no such state"]):
        assert group not in listed(client, version, states_filter=states), states


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_TYPES])
def test_only_groups_of_the_types_asked_for_are_listed(client, group, version):
    stable(client, group)
    for types in (["classic"], ["CLASSIC", "consumer"], []):
        assert group in listed(client, version, types_filter=types), types
    for types in (["consumer"], ["no such type"]):
        assert group not in listed(client, version, types_filter=types), types
    both = {"states_filter": ["Stable"], "types_filter": ["classic"]}
    assert group in listed(client, version, **both)
