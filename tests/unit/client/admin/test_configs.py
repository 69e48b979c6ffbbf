"""Configurations, as the admin client changes and lists them."""

import pytest

from kcli.client.admin.admin import ConfigChange, ConfigOp, ResourceType
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.unit.client.admin.test_admin import run

TOPIC, OWN, DEFAULT = (
    (ResourceType.TOPIC, "t"),
    (ResourceType.BROKER, "1"),
    (ResourceType.BROKER, ""),
)


def altered(*refused):
    """Every resource is changed, but those of these names."""
    codes = dict(refused)

    def handler(request):
        reply = reply_to(request)
        return reply(
            responses=[
                reply.responses(
                    error_code=codes.get(r.resource_name, ErrorCode.none),
                    error_message="why" if r.resource_name in codes else None,
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                )
                for r in request.resources
            ]
        )

    return handler


def test_a_broker_is_told_of_its_own_changes_and_each_resource_has_its_outcome():
    async def scenario(admin, *brokers):
        for broker in brokers:
            broker.on(ApiKey.INCREMENTAL_ALTER_CONFIGS, altered(("t", ErrorCode.invalid_config)))
        changes = {
            TOPIC: [ConfigChange("a", ConfigOp.SET, "1"), ConfigChange("b", ConfigOp.DELETE)],
            OWN: [ConfigChange("c", ConfigOp.APPEND, "x,y")],
            DEFAULT: [ConfigChange("c", ConfigOp.SUBTRACT, "x")],
        }
        done = await admin.incremental_alter_configs(changes, validate_only=True)
        assert (done[OWN], done[DEFAULT]) == (None, None)
        assert (done[TOPIC].code, done[TOPIC].message) == (ErrorCode.invalid_config, "why")
        requests = [q for b in brokers for q in b.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)]
        assert all(request.validate_only for request in requests)
        sent = {
            (r.resource_type, r.resource_name): [
                (c.name, c.config_operation, c.value) for c in r.configs
            ]
            for request in requests
            for r in request.resources
        }
        assert sent == {resource: [tuple(c) for c in of] for resource, of in changes.items()}
        own = [
            r.resource_name
            for q in brokers[1].asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)
            for r in q.resources
        ]
        assert "1" in own

    run(scenario, brokers=2)


def test_overrides_are_replaced_as_a_whole():
    async def scenario(admin, broker):
        broker.on(ApiKey.ALTER_CONFIGS, altered())
        assert await admin.alter_configs({TOPIC: {"a": "1"}, DEFAULT: {}}) == {
            TOPIC: None,
            DEFAULT: None,
        }
        (request,) = broker.asked(ApiKey.ALTER_CONFIGS)
        assert [[(c.name, c.value) for c in r.configs] for r in request.resources] == [
            [("a", "1")],
            [],
        ]
        assert not request.validate_only

    run(scenario)


def test_a_controller_that_is_no_longer_one_is_asked_again():
    async def scenario(admin, broker):
        def handler(request):
            first = len(broker.asked(ApiKey.ALTER_CONFIGS)) < 2
            return altered(*([("t", ErrorCode.not_controller)] if first else []))(request)

        broker.on(ApiKey.ALTER_CONFIGS, handler)
        assert await admin.alter_configs({TOPIC: {}}) == {TOPIC: None}
        assert len(broker.asked(ApiKey.ALTER_CONFIGS)) == 2

    run(scenario)


def test_a_resource_that_the_answer_leaves_out_is_refused():
    async def scenario(admin, broker):
        broker.on(ApiKey.ALTER_CONFIGS, lambda request: reply_to(request)(responses=()))
        done = await admin.alter_configs({TOPIC: {}})
        assert isinstance(done[TOPIC], KafkaError)

    run(scenario)


def test_resources_are_listed_without_those_of_kinds_unknown_here():
    async def scenario(admin, broker):
        def handler(request):
            reply = reply_to(request)
            return reply(
                error_code=ErrorCode.none,
                config_resources=[
                    reply.config_resources(resource_name=name, resource_type=kind)
                    for kind, name in ((2, "t"), (4, "1"), (77, "x"))
                ],
            )

        broker.on(ApiKey.LIST_CONFIG_RESOURCES, handler)
        kinds = [ResourceType.TOPIC, ResourceType.BROKER]
        assert await admin.list_config_resources(kinds) == [TOPIC, OWN]
        assert [q.resource_types for q in broker.asked(ApiKey.LIST_CONFIG_RESOURCES)] == [(2, 4)]

    run(scenario)


def test_a_list_that_is_refused_is_no_list():
    async def scenario(admin, broker):
        def handler(request):
            code = ErrorCode.cluster_authorization_failed
            return reply_to(request)(error_code=code, config_resources=[])

        broker.on(ApiKey.LIST_CONFIG_RESOURCES, handler)
        with pytest.raises(KafkaError) as refused:
            await admin.list_config_resources()
        assert refused.value.code is ErrorCode.cluster_authorization_failed

    run(scenario)
