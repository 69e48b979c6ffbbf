"""Test SaslHandshake requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import sasl_handshake as module
from kserver.errors import ErrorCode

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
def test_a_listener_without_sasl_says_so_and_stays_open(client, version):
    for mechanism in ("PLAIN", "SCRAM-SHA-256", ""):
        answer = client.call(KEY, version, mechanism=mechanism)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.illegal_sasl_state, ())
