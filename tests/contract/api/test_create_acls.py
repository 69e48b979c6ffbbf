"""Test CreateAcls requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import create_acls as module
from kserver.errors import ErrorCode

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3


ACL = {
    "resource_type": TOPIC,
    "resource_name": "t",
    "resource_pattern_type": LITERAL,
    "principal": "User:a",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}


@every_version
def test_a_broker_without_an_authorizer_refuses_each(client, version):
    answer = client.call(KEY, version, creations=[ACL, ACL | {"resource_name": "u"}])
    assert [one.error_code for one in answer.results] == [ErrorCode.security_disabled] * 2
    assert all("uthorizer" in one.error_message for one in answer.results)
