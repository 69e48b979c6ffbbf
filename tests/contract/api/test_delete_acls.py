"""Test DeleteAcls requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import delete_acls as module
from kserver.errors import ErrorCode

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
ANY = 1


FILTER = {
    "resource_type_filter": ANY,
    "pattern_type_filter": ANY,
    "operation": ANY,
    "permission_type": ANY,
}


@every_version
def test_a_broker_without_an_authorizer_refuses_each(client, version):
    answer = client.call(KEY, version, filters=[FILTER, FILTER])
    assert [one.error_code for one in answer.filter_results] == [ErrorCode.security_disabled] * 2
    assert all("uthorizer" in one.error_message for one in answer.filter_results)
