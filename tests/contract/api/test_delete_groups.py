"""Test DeleteGroups requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import delete_groups as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.group_calls import commit, leave, offsets, stable

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


def delete(client, version, *groups):
    """Return the error code of each group."""
    results = client.call(KEY, version, groups_names=groups).results
    return {result.group_id: result.error_code for result in results}


@every_version
def test_groups_without_members_are_deleted_with_their_offsets(client, group, topic, version):
    joined = stable(client, group, topic.name)
    commit(client, group, topic, {0: 5}, joined)
    commit(client, f"{group}-2", topic, {0: 6})
    codes = delete(client, version, group, f"{group}-2", f"{group}-3")
    not_found = ErrorCode.group_id_not_found
    expected = {
        group: ErrorCode.non_empty_group,
        f"{group}-2": ErrorCode.none,
        f"{group}-3": not_found,
    }
    assert codes == expected
    leave(client, group, joined.member_id)
    assert delete(client, version, group) == {group: ErrorCode.none}
    assert offsets(client, group, topic, 0) == {0: -1}
    assert offsets(client, f"{group}-2", topic, 0) == {0: -1}
    (found,) = client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=[group]).groups
    assert found.group_state == "Dead"
    assert delete(client, version, group) == {group: not_found}
