"""Test SaslAuthenticate requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import sasl_authenticate as module
from kserver.errors import ErrorCode

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
def test_a_listener_without_sasl_says_so_and_stays_open(client, version):
    for token in (b"", b"\0user\0password"):
        answer = client.call(KEY, version, auth_bytes=token)
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.illegal_sasl_state, b"")
        assert answer.error_message
