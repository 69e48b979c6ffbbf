"""Of what a cluster says, only names reach the shell: a line to be run is made of them."""

from __future__ import annotations

from random import Random

from kcli.client.admin.admin import Admin, ResourceType
from kcli.client.config import AdminConfig
from kcli.shell_completion.cluster_names import cluster, groups, topic_keys
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata

HOSTILE = ("$(reboot)", "a;b", "a\nb", "a b", "`a`", "\x1b[2J", "a'b", "ä", "")


def names_of(question, topics=(), keys=(), groups=()):
    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop, "broker", id=7)
        told = [(name, ErrorCode.none, (7, 0), (7, 0)) for name in topics]
        broker.on(ApiKey.METADATA, metadata(broker, topics=told))

        def configs(request):
            reply = reply_to(request)
            entries = [
                reply.results.configs(name=key, value="", read_only=False, is_sensitive=False)
                for key in keys
            ]
            (asked,) = request.resources
            result = reply.results(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=ResourceType.TOPIC,
                resource_name=asked.resource_name,
                configs=entries,
            )
            return reply(results=[result])

        def listing(request):
            reply = reply_to(request)
            return reply(groups=[reply.groups(group_id=g, group_state="Empty") for g in groups])

        broker.on(ApiKey.DESCRIBE_CONFIGS, configs)
        broker.on(ApiKey.LIST_GROUPS, listing)
        await broker.start()
        config = AdminConfig.of({"bootstrap.servers": broker.address})
        async with Admin(config, random=Random(1)) as admin:
            return await question(admin)

    return simulate(main, 1)


def test_topics_and_brokers_are_those_whose_names_are_only_names():
    assert names_of(cluster, topics=("orders", *HOSTILE)) == {
        "topics": {"orders": 2},
        "brokers": {"7": "broker:9092"},
    }


def test_keys_are_those_of_any_topic():
    assert names_of(topic_keys, topics=["orders"], keys=("retention.ms", *HOSTILE)) == {
        "keys": ["retention.ms"]
    }


def test_without_a_topic_no_keys_are_known():
    assert names_of(topic_keys) == {}


def test_groups_are_those_whose_names_are_only_names():
    assert names_of(groups, groups=("billing", *HOSTILE)) == {"groups": {"billing": "Empty"}}
