from __future__ import annotations

from random import Random

import pytest

from kcli.client.admin.descriptions import CoordinatorType
from kcli.client.cluster import Cluster
from kcli.client.config import AdminConfig
from kcli.client.coordinators import find, of_coordinators
from kcli.client.errors import TimedOut
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata

GROUP = CoordinatorType.GROUP


def run(scenario, *, brokers: int = 2):
    async def main(loop: SimLoop):
        started = [ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(brokers)]
        for broker in started:
            broker.on(ApiKey.METADATA, metadata(*started))
            await broker.start()
        config = AdminConfig.of({"bootstrap.servers": "broker-0:9092"})
        cluster = Cluster(config, random=Random(1))
        try:
            return await scenario(cluster, *started)
        finally:
            await cluster.close()

    return simulate(main, 1)


def led(leaders: dict[str, ScriptedBroker]):
    """A FindCoordinator handler that looks leaders up when it is asked."""

    def handler(request):
        reply = reply_to(request)

        def one(make, key, /, **named):
            node = leaders.get(key)
            if node is None:
                return make(error_code=ErrorCode.coordinator_not_available, node_id=-1, **named)
            return make(node_id=node.id, host=node.name, port=node.port, **named)

        if request.__version__ < 4:
            return one(reply, request.key)
        return reply(
            coordinators=[one(reply.coordinators, k, key=k) for k in request.coordinator_keys]
        )

    return handler


@pytest.mark.parametrize("newest", [0, 3, 6])
def test_each_key_is_asked_at_its_coordinator(newest):
    async def scenario(cluster, one, two):
        for broker in (one, two):
            broker.on(ApiKey.FIND_COORDINATOR, led({"a": one, "b": two, "c": two}), (0, newest))

        async def ask(peer, node, keys):
            return {key: (node.id, peer.port, tuple(keys)) for key in keys}

        deadline = cluster.deadline(1000)
        asked = await of_coordinators(cluster, "x", ["a", "b", "c"], GROUP, deadline, ask)
        assert {key: told[0] for key, told in asked.items()} == {"a": 0, "b": 1, "c": 1}
        assert asked["b"][2] == ("b", "c")

    run(scenario)


def test_a_key_whose_coordinator_moved_is_asked_at_the_next_one():
    async def scenario(cluster, one, two):
        leaders = {"a": one, "b": one}
        one.on(ApiKey.FIND_COORDINATOR, led(leaders))
        two.on(ApiKey.FIND_COORDINATOR, led(leaders))
        asked = []

        async def ask(peer, node, keys):
            asked.append((node.id, keys))
            leaders["a"] = two
            if node.id == 0 and "a" in keys:
                return {"a": KafkaError(ErrorCode.not_coordinator), "b": node.id}
            return dict.fromkeys(keys, node.id)

        deadline = cluster.deadline(1000)
        found = await of_coordinators(cluster, "x", ["a", "b"], GROUP, deadline, ask)
        assert found == {"a": 1, "b": 0}
        assert asked == [(0, ["a", "b"]), (1, ["a"])]

    run(scenario)


def test_what_the_coordinator_refuses_for_good_is_its_result_and_the_rest_goes_on():
    async def scenario(cluster, one, two):
        one.on(ApiKey.FIND_COORDINATOR, led({"a": one, "b": one}))
        loads = [True, True, False]

        async def ask(peer, node, keys):
            loading = KafkaError(ErrorCode.coordinator_load_in_progress)
            denied = KafkaError(ErrorCode.group_authorization_failed)
            told = {"a": denied, "b": loading if loads.pop(0) else "done"}
            return {key: told[key] for key in keys}

        deadline = cluster.deadline(5000)
        found = await of_coordinators(cluster, "x", ["a", "b"], GROUP, deadline, ask)
        assert found["a"].code is ErrorCode.group_authorization_failed
        assert found["b"] == "done"
        assert len(one.asked(ApiKey.FIND_COORDINATOR)) == 1

    run(scenario, brokers=2)


def test_a_coordinator_that_never_comes_is_the_refusal_of_its_keys_alone():
    async def scenario(cluster, one):
        one.on(ApiKey.FIND_COORDINATOR, led({"a": one}))

        async def ask(peer, node, keys):
            return dict.fromkeys(keys, "done")

        deadline = cluster.deadline(1000)
        found = await of_coordinators(cluster, "x", ["a", "b"], GROUP, deadline, ask)
        assert found["a"] == "done"
        assert found["b"].code is ErrorCode.coordinator_not_available

    run(scenario, brokers=1)


def test_a_coordinator_that_is_gone_is_looked_up_anew():
    async def scenario(cluster, one, two):
        leaders = {"a": two}
        one.on(ApiKey.FIND_COORDINATOR, led(leaders))
        two.stop()

        async def ask(peer, node, keys):
            return dict.fromkeys(keys, node.id)

        with pytest.raises(TimedOut):
            await of_coordinators(cluster, "x", ["a"], GROUP, cluster.deadline(300), ask)
        leaders["a"] = one
        found = await of_coordinators(cluster, "x", ["a"], GROUP, cluster.deadline(5000), ask)
        assert found == {"a": 0}

    run(scenario)


def test_a_coordinator_that_brokers_have_not_heard_of_yet_is_waited_for():
    async def scenario(cluster, one, two):
        one.on(ApiKey.METADATA, metadata(one))
        one.on(ApiKey.FIND_COORDINATOR, led({"a": two}))

        async def ask(peer, node, keys):
            return dict.fromkeys(keys, peer.host)

        unheard = await of_coordinators(cluster, "x", ["a"], GROUP, cluster.deadline(300), ask)
        assert unheard["a"].code is ErrorCode.coordinator_not_available
        one.on(ApiKey.METADATA, metadata(one, two))
        found = await of_coordinators(cluster, "x", ["a"], GROUP, cluster.deadline(5000), ask)
        assert found == {"a": "broker-1"}

    run(scenario)


def test_no_keys_ask_nobody():
    async def scenario(cluster, one):
        assert await find(cluster, [], GROUP) == {}
        assert await of_coordinators(cluster, "x", [], GROUP, 0, None) == {}
        assert one.requests == []

    run(scenario, brokers=1)
