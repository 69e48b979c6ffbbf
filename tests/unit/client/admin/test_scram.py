"""SCRAM credentials: what leaves this process of a password, and what is told of credentials."""

import hashlib

import pytest

from kcli.client.admin.scram import NewCredential, ScramMechanism
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.unit.client.admin.test_admin import run

SHA_256, SHA_512 = ScramMechanism


def test_a_broker_is_sent_what_is_derived_from_a_password():
    async def scenario(admin, broker):
        def handler(request):
            reply = reply_to(request)
            users = dict.fromkeys(one.name for one in (*request.upsertions, *request.deletions))
            return reply(results=[reply.results(user=u, error_code=ErrorCode.none) for u in users])

        broker.on(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, handler)
        credentials = [
            NewCredential("a", SHA_256, "schlüssel"),
            NewCredential("b", SHA_512, "x", 8192),
        ]
        done = await admin.alter_user_scram_credentials(credentials, [("c", SHA_256)])
        assert done == {"a": None, "b": None, "c": None}
        (request,) = broker.asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
        assert [(d.name, d.mechanism) for d in request.deletions] == [("c", 1)]
        for sent, digest, password in zip(
            request.upsertions, ("sha256", "sha512"), ("schlüssel", "x"), strict=True
        ):
            assert sent.salted_password == hashlib.pbkdf2_hmac(
                digest, password.encode(), sent.salt, sent.iterations
            )
        first, second = request.upsertions
        assert (first.iterations, second.iterations) == (4096, 8192)
        assert first.salt != second.salt

    run(scenario)


def test_a_password_is_not_shown_with_its_credential():
    assert "hunter2" not in repr(NewCredential("a", SHA_256, "hunter2"))


def test_of_each_user_mechanisms_or_why_not_are_told_and_who_has_none_is_left_out():
    async def scenario(admin, broker):
        def handler(request):
            reply = reply_to(request)
            codes = {"a": "none", "b": "resource_not_found", "c": "duplicate_resource"}
            return reply(
                error_code=ErrorCode.none,
                results=[
                    reply.results(
                        user=user,
                        error_code=ErrorCode[code],
                        error_message="why",
                        credential_infos=[
                            reply.results.credential_infos(mechanism=2, iterations=8192)
                        ],
                    )
                    for user, code in codes.items()
                ],
            )

        broker.on(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handler)
        found = await admin.describe_user_scram_credentials(["a", "b", "c"])
        assert found.keys() == {"a", "c"}
        assert found["a"] == {SHA_512: 8192}
        assert isinstance(found["c"], KafkaError)
        await admin.describe_user_scram_credentials()
        asked = broker.asked(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
        assert [q.users and [u.name for u in q.users] for q in asked] == [["a", "b", "c"], None]

    run(scenario)


def test_who_may_not_ask_is_told():
    async def scenario(admin, broker):
        def handler(request):
            code = ErrorCode.cluster_authorization_failed
            return reply_to(request)(error_code=code, error_message="no", results=())

        broker.on(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handler)
        with pytest.raises(KafkaError, match="no"):
            await admin.describe_user_scram_credentials()

    run(scenario)
