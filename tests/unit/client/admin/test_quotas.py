from __future__ import annotations

import pytest

from kcli.client.admin.quotas import Match, QuotaComponent, QuotaEntity
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.unit.client.admin.test_admin import run

ALICE = QuotaEntity("alice")


def told(request):
    reply = reply_to(request)
    entry = reply.entries
    user, default = (
        entry.entity(entity_type="user", entity_name="alice"),
        entry.entity(entity_type="client-id", entity_name=None),
    )
    bound = entry.values(key="producer_byte_rate", value=1024.0)
    return reply(
        error_code=ErrorCode.none,
        entries=[
            entry(entity=[user], values=[bound]),
            entry(entity=[default, user], values=[]),
        ],
    )


def test_entities_are_told_with_their_bounds_and_asked_for_by_components():
    async def scenario(admin, broker):
        seen = []
        broker.on(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda request: (seen.append(request), told(request))[1]
        )
        asked = [
            QuotaComponent("user", Match.EXACT, "alice"),
            QuotaComponent("client-id", Match.DEFAULT),
        ]
        found = await admin.describe_client_quotas(asked, strict=True)
        assert found == {
            ALICE: {"producer_byte_rate": 1024.0},
            QuotaEntity("alice", ""): {},
        }
        assert seen[0].strict
        assert [(c.entity_type, c.match_type, c.match) for c in seen[0].components] == [
            ("user", 0, "alice"),
            ("client-id", 1, None),
        ]

    run(scenario)


def test_a_filter_that_is_refused_is_raised():
    async def scenario(admin, broker):
        broker.on(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            lambda request: reply_to(request)(
                error_code=ErrorCode.invalid_request, error_message="twice", entries=None
            ),
        )
        with pytest.raises(KafkaError, match="twice"):
            await admin.describe_client_quotas()

    run(scenario)


def test_each_entity_that_is_altered_has_its_own_outcome():
    async def scenario(admin, broker):
        def altered(request):
            reply = reply_to(request)
            assert request.validate_only
            (ops, _) = (entry.ops for entry in request.entries)
            assert [(op.key, op.value, op.remove) for op in ops] == [
                ("producer_byte_rate", 5.0, False),
                ("consumer_byte_rate", 0.0, True),
            ]
            codes = [ErrorCode.none, ErrorCode.invalid_request]
            return reply(
                entries=[
                    reply.entries(
                        error_code=code,
                        error_message=None if code is ErrorCode.none else "no",
                        entity=[
                            reply.entries.entity(
                                entity_type=e.entity_type, entity_name=e.entity_name
                            )
                            for e in entry.entity
                        ],
                    )
                    for entry, code in zip(request.entries, codes, strict=True)
                ]
            )

        broker.on(ApiKey.ALTER_CLIENT_QUOTAS, altered)
        default = QuotaEntity(ip="")
        done = await admin.alter_client_quotas(
            {
                ALICE: {"producer_byte_rate": 5.0, "consumer_byte_rate": None},
                default: {"connection_creation_rate": 1.0},
            },
            validate_only=True,
        )
        assert done[ALICE] is None
        assert done[default].code is ErrorCode.invalid_request

    run(scenario)
