"""Test DescribeAcls requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import describe_acls as module
from kserver.errors import ErrorCode

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
ANY = 1


@every_version
def test_a_broker_without_an_authorizer_says_so(client, version):
    answer = client.call(
        KEY,
        version,
        resource_type_filter=ANY,
        pattern_type_filter=ANY,
        operation=ANY,
        permission_type=ANY,
    )
    assert (answer.error_code, answer.resources) == (ErrorCode.security_disabled, ())
    assert "uthorizer" in answer.error_message
