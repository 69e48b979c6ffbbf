"""What brokers ask of the controller, wherever it is: topics that clients want, producer ids."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from kserver import znodes
from kserver.errors import ErrorCode
from kserver.model import CONSUMER_OFFSETS
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import request
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster

SEEDS = seeds(5)
OK = ErrorCode.none


class Scene:
    def __init__(self, loop: SimLoop, **settings: object) -> None:
        self.loop = loop
        self.cluster = SimulatedCluster(loop, 3, settings)

    def broker(self, id_: int) -> Any:
        return self.cluster.brokers[id_].broker

    @property
    def controller(self) -> int:
        (active,) = [id_ for id_ in self.cluster.up if self.broker(id_)._parts.controller.is_active]
        return active

    @property
    def others(self) -> list[int]:
        return sorted(self.cluster.up - {self.controller})

    async def ask(self, id_: int, api: int, **fields: Any) -> Any:
        peer: Peer = await self.cluster.brokers[id_].connect()
        try:
            return await peer.call(request(api, peer.version(api))(**fields))
        finally:
            peer.close()

    async def asked_for(self, id_: int, topic: str) -> ErrorCode:
        """What a client is told that asks this broker for a topic, which is made if need be."""
        new = request(ApiKey.METADATA, 9)
        wanted = [new.topics(name=topic)]
        peer = await self.cluster.brokers[id_].connect()
        answer = await peer.call(new(topics=wanted, allow_auto_topic_creation=True))
        peer.close()
        return answer.topics[0].error_code

    async def coordinator(self, id_: int, group: str = "g") -> ErrorCode:
        answer = await self.ask(id_, ApiKey.FIND_COORDINATOR, coordinator_keys=[group])
        return answer.coordinators[0].error_code

    async def allocate(self, id_: int, broker: int, epoch: int) -> Any:
        """Asked as a broker asks, from where one is registered."""
        peer = await self.cluster.brokers[id_].connect(f"b{self.others[0]}")
        try:
            asked = request(
                ApiKey.ALLOCATE_PRODUCER_IDS, peer.version(ApiKey.ALLOCATE_PRODUCER_IDS)
            )
            return await peer.call(asked(broker_id=broker, broker_epoch=epoch))
        finally:
            peer.close()


def run(scenario: Any, seed: int = 1, **settings: object) -> None:
    async def main(loop: SimLoop) -> None:
        scene = Scene(loop, **settings)
        await scenario(scene)
        for id_ in sorted(scene.cluster.up):
            await scene.cluster.stop(id_)
        assert not [bug for broker in scene.cluster.brokers.values() for bug in broker.bugs]

    simulate(main, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_broker_has_the_controller_make_the_topic_that_it_is_asked_for(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start()
        for id_ in scene.cluster.brokers:
            assert await scene.asked_for(id_, f"t{id_}") is OK

    run(scenario, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_that_are_asked_at_once_make_one_topic(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start()
        asked = [scene.asked_for(id_, "t") for id_ in (1, 2, 3, 1, 2, 3)]
        assert await asyncio.gather(*asked) == [OK] * 6
        ids = {scene.broker(id_)._parts.metadata.current.topics["t"].id for id_ in (1, 2, 3)}
        assert len(ids) == 1

    run(scenario, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_is_made_although_the_controller_is_another_meanwhile(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start()
        other = scene.others[0]
        scene.cluster.expire(scene.controller)
        assert await scene.asked_for(other, "t") is OK

    run(scenario, seed)


def test_without_a_controller_a_client_is_answered_all_the_same() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start()
        other, controller = scene.others[0], scene.controller
        for id_ in scene.others:
            scene.loop.network.cut(f"b{controller}", f"b{id_}")
        began_s = scene.loop.time()
        assert await scene.asked_for(other, "t") is ErrorCode.unknown_topic_or_partition
        assert scene.loop.time() - began_s < 4
        for id_ in scene.others:
            scene.loop.network.heal(f"b{controller}", f"b{id_}")
        await asyncio.sleep(5)
        assert await scene.asked_for(other, "t") is OK

    run(scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_offsets_are_kept_nowhere_before_they_can_be_kept_everywhere(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start(1, 2)
        for id_ in (1, 2):
            assert await scene.coordinator(id_) is ErrorCode.coordinator_not_available
        await scene.cluster.start(3)
        assert await scene.coordinator(1) is OK
        topic = scene.broker(1)._parts.metadata.current.topics[CONSUMER_OFFSETS]
        assert all(set(p.replicas) == {1, 2, 3} for p in topic.partitions)

    run(scenario, seed)


def test_only_the_controller_makes_topics() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start()
        new = request(ApiKey.CREATE_TOPICS, 7)
        topic = new.topics(name="t", num_partitions=1, replication_factor=1)
        wanted = {"topics": [topic], "timeout": datetime.timedelta(seconds=5)}
        answer = await scene.ask(scene.others[0], ApiKey.CREATE_TOPICS, **wanted)
        assert answer.topics[0].error_code is ErrorCode.not_controller
        answer = await scene.ask(scene.controller, ApiKey.CREATE_TOPICS, **wanted)
        assert answer.topics[0].error_code is OK

    run(scenario)


def test_the_controller_gives_blocks_of_producer_ids_to_brokers_as_they_are_registered() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start()
        controller, other = scene.controller, scene.others[0]
        epochs = {
            id_: broker.epoch
            for id_, broker in scene.broker(controller)._parts.controller._context.brokers.items()
        }
        answer = await scene.allocate(controller, other, epochs[other])
        assert (answer.error_code, answer.producer_id_len) == (OK, 1000)
        following = await scene.allocate(controller, controller, epochs[controller])
        assert following.producer_id_start == answer.producer_id_start + 1000
        for asked, broker, epoch, code in (
            (other, other, epochs[other], ErrorCode.not_controller),
            (controller, other, epochs[other] - 1, ErrorCode.stale_broker_epoch),
            (controller, 99, 0, ErrorCode.broker_id_not_registered),
        ):
            assert (await scene.allocate(asked, broker, epoch)).error_code is code
        data, _ = await scene.cluster.brokers[1].zookeeper.get(znodes.PRODUCER_ID_BLOCK)
        assert znodes.decode_producer_id_block(data) == (
            controller,
            following.producer_id_start,
            following.producer_id_start + 999,
        )

    run(scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_producers_are_given_one_id_while_controllers_come_and_go(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.cluster.start()
        random, cluster = scene.loop.random, scene.cluster
        given: list[int] = []
        for _ in range(40):
            for id_ in sorted(cluster.up):
                answer = await scene.ask(id_, ApiKey.INIT_PRODUCER_ID, transactional_id=None)
                assert answer.error_code in (OK, ErrorCode.coordinator_load_in_progress)
                if answer.error_code is OK:
                    given.append(answer.producer_id)
            match random.randrange(8):
                case 0:
                    cluster.expire(random.choice(sorted(cluster.up)))
                case 1:
                    one = random.choice(sorted(cluster.up))
                    await cluster.kill(one)
                    await cluster.start(one)
        assert len(given) > 60
        assert len(set(given)) == len(given)

    run(scenario, seed)
