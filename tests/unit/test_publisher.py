"""What the controller says, brought to a broker's parts: what is believed, what is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from kserver import znodes
from kserver.cluster_config.config_manager import ConfigManager
from kserver.cluster_config.znode_store import make_persistent
from kserver.errors import ErrorCode
from kserver.metadata import BrokerInfo, ClusterMetadata, MetadataCache
from kserver.model import NO_BROKER, BrokerId, Endpoint, TopicPartition
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.publisher import MetadataPublisher
from kserver.replica.manager import ReplicaManager
from kserver.replica.purgatory import Purgatory
from kserver.wire.control import (
    FULL,
    NO_BROKER_EPOCH,
    ControlMessage,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.clock import SimClock
from tests.support.logs import batch
from tests.support.loop import SimLoop, simulate
from tests.support.zookeeper import SimEnsemble
from tests.unit.log.test_manager import Host

ME: BrokerId = 0
CONTROLLER, ANOTHER = 1, 2
EPOCH = 10
"""Of this broker's registration."""
TOPIC_ID = UUID(int=1)
OK = ErrorCode.none


class Scene:
    def __init__(self, loop: SimLoop) -> None:
        self.host = Host(loop)
        self.ensemble = SimEnsemble(loop, SimClock(loop))
        self.zookeeper = self.ensemble.client()
        self.metadata = MetadataCache(ClusterMetadata("cluster"))
        self.followed: list[ClusterMetadata] = []

    def apply(self, image: ClusterMetadata) -> None:
        self.followed.append(image)

    async def start(self) -> None:
        logs = await self.host.start()
        await self.zookeeper.start()
        await make_persistent(self.zookeeper)
        config = self.host.config
        self.replicas = ReplicaManager(
            ME,
            lambda: config,
            logs,
            self.metadata,
            Purgatory(self.host.loop),
            self.host.loop,
            self.host.clock,
            NodeToControllerChannel(ME, "test", lambda: config, self.metadata),
            lambda: 0,
        )
        self.configs = ConfigManager(
            self.zookeeper, self.metadata, lambda: config, ME, lambda _image, _topics: None
        )
        await self.configs.load()
        self.publisher = MetadataPublisher(
            self.metadata, self.configs, self.replicas, [self], ME, lambda: EPOCH
        )

    async def publish(self, request: Any) -> ErrorCode:
        answer: Any = await self.publisher.publish(request)
        assert isinstance(answer, ControlMessage)
        code: ErrorCode = answer.error_code
        return code

    async def lead(self, *partitions: int, epoch: int = 1, **fields: Any) -> ErrorCode:
        """What is led here of the topic t."""
        states = tuple(
            LeaderAndIsrPartitionState(n, epoch, ME, 0, (ME,), 0, (ME,), is_new=True)
            for n in partitions
        )
        topics = (LeaderAndIsrTopicState("t", TOPIC_ID, states),) if states else ()
        fields = {"controller_id": CONTROLLER, "broker_epoch": EPOCH, **fields}
        return await self.publish(
            LeaderAndIsrRequest(
                controller_epoch=epoch, topic_states=topics, live_leaders=(), **fields
            )
        )

    async def tell(
        self, *topics: str, epoch: int = 1, port: int = 9092, **fields: Any
    ) -> ErrorCode:
        """Of this broker and these topics, which are led by it."""
        endpoint = UpdateMetadataEndpoint(port, "localhost", "PLAINTEXT", 0)
        partition = UpdateMetadataPartitionState(0, epoch, ME, 0, (ME,), 0, (ME,))
        brokers = tuple(UpdateMetadataBroker(id_, (endpoint,)) for id_ in (ME, CONTROLLER))
        fields = {"controller_id": CONTROLLER, "broker_epoch": EPOCH, **fields}
        return await self.publish(
            UpdateMetadataRequest(
                controller_epoch=epoch,
                topic_states=tuple(
                    UpdateMetadataTopicState(name, TOPIC_ID, (partition,)) for name in topics
                ),
                live_brokers=brokers,
                **fields,
            )
        )

    @property
    def hosted(self) -> set[tuple[str, int]]:
        return {(key.topic, key.partition) for key in self.replicas.partitions}


def scenario(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    """Run an `async def test(scene)` in a few simulations."""

    def run() -> None:
        async def main(loop: SimLoop) -> None:
            scene = Scene(loop)
            await scene.start()
            await test(scene)
            await scene.host.end_run()
            await scene.zookeeper.close()

        for seed in range(5):
            simulate(main, seed)

    run.__name__ = test.__name__
    return run


@scenario
async def test_what_was_meant_for_an_earlier_registration_is_refused(scene: Scene) -> None:
    stale = {"broker_epoch": EPOCH - 1}
    assert await scene.lead(0, **stale) is ErrorCode.stale_broker_epoch
    assert await scene.tell("t", **stale) is ErrorCode.stale_broker_epoch
    assert scene.hosted == set()
    assert not scene.metadata.current.topics
    # The controller may know of a registration before this broker does.
    assert await scene.lead(0, broker_epoch=EPOCH + 1) is OK
    assert scene.hosted == {("t", 0)}


@scenario
async def test_what_an_earlier_controller_says_is_refused(scene: Scene) -> None:
    assert await scene.lead(0, epoch=5) is OK
    assert await scene.lead(0, 1, epoch=4) is ErrorCode.stale_controller_epoch
    assert await scene.tell("t", epoch=4) is ErrorCode.stale_controller_epoch
    stops = StopReplicaTopicState("t", (StopReplicaPartitionState(0, 0, True),))
    stop = StopReplicaRequest(CONTROLLER, 4, (stops,), EPOCH)
    assert await scene.publish(stop) is ErrorCode.stale_controller_epoch
    assert scene.hosted == {("t", 0)}
    assert scene.publisher.controller_epoch == 5


@scenario
async def test_an_epoch_has_one_controller(scene: Scene) -> None:
    assert await scene.lead(0, epoch=5) is OK
    assert await scene.lead(0, 1, epoch=5, controller_id=ANOTHER) is ErrorCode.invalid_request
    assert scene.hosted == {("t", 0)}
    assert await scene.lead(0, 1, epoch=6, controller_id=ANOTHER) is OK
    assert scene.hosted == {("t", 0), ("t", 1)}


@scenario
async def test_what_a_full_message_does_not_name_is_hosted_no_longer(scene: Scene) -> None:
    await scene.lead(0, 1)
    await scene.lead(2)
    assert scene.hosted == {("t", 0), ("t", 1), ("t", 2)}
    await scene.lead(1, type=FULL)
    assert scene.hosted == {("t", 1)}


@scenario
async def test_a_message_is_taken_once_the_one_before_it_is_in_force(scene: Scene) -> None:
    await scene.lead(0)
    scene.replicas.get("t", 0).log.append_as_leader(batch(), 0, scene.host.clock.now_ms())
    await scene.replicas.forget_deleted()
    # Checkpoints name the log by now: they are written again when it is deleted.
    scene.host.disk.mean_offload_s = 0.2
    stops = StopReplicaTopicState("t", (StopReplicaPartitionState(0, 0, True),))
    stop = StopReplicaRequest(CONTROLLER, 1, (stops,), EPOCH)
    stopping = scene.host.loop.create_task(scene.publish(stop))
    leading = scene.host.loop.create_task(scene.lead(1))
    seen: set[bool] = set()
    while not stopping.done():
        seen.add(("t", 1) in scene.hosted)
        await asyncio.sleep(0.001)
    assert seen == {False}
    assert await leading is OK
    assert scene.hosted == {("t", 1)}


@scenario
async def test_topics_are_known_once_the_controller_of_this_epoch_has_told_of_them(
    scene: Scene,
) -> None:
    await scene.lead(0)
    assert not scene.publisher.knows_topics
    await scene.tell()
    assert not scene.publisher.knows_topics, "it told of brokers only"
    await scene.tell("t")
    assert scene.publisher.knows_topics
    await scene.lead(0, epoch=2)
    assert not scene.publisher.knows_topics, "a new controller begins with what is led"
    await scene.tell(epoch=2, type=FULL)
    assert scene.publisher.knows_topics
    assert not scene.metadata.current.topics


@scenario
async def test_roles_are_known_also_by_a_controller_that_knows_no_broker_epochs(
    scene: Scene,
) -> None:
    assert not scene.publisher.knows_roles
    await scene.lead(broker_epoch=NO_BROKER_EPOCH)
    assert scene.publisher.knows_roles


@scenario
async def test_where_it_is_reached_a_broker_knows_best(scene: Scene) -> None:
    own = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 1)
    me = BrokerInfo(ME, {"PLAINTEXT": own})
    scene.metadata.update(ClusterMetadata("cluster", brokers={ME: me}))
    await scene.tell("t", port=2)
    brokers = scene.metadata.current.brokers
    assert brokers[ME] == me
    assert brokers[CONTROLLER].endpoints["PLAINTEXT"].port == 2
    assert scene.followed[-1] is scene.metadata.current


@scenario
async def test_settings_go_with_the_topics_that_a_full_message_does_not_name(scene: Scene) -> None:
    data = znodes.encode_config({"retention.ms": "5"})
    await scene.zookeeper.create(znodes.config_path(znodes.TOPIC_CONFIGS, "t"), data)
    await scene.tell("t")
    assert scene.configs.topics["t"] == {"retention.ms": "5"}
    assert scene.metadata.current.topics["t"].config == {"retention.ms": "5"}
    await scene.tell(type=FULL)
    assert "t" not in scene.configs.topics


@scenario
async def test_zookeeper_names_a_controller_where_none_is_known_and_no_other(scene: Scene) -> None:
    await scene.tell("t")
    scene.publisher.controller_is(ME)
    assert scene.metadata.current.controller == CONTROLLER, "it has told of itself"
    scene.publisher.controller_is(NO_BROKER)
    assert scene.metadata.current.controller == CONTROLLER, "another is it no longer"
    await scene.tell(controller_id=ME, epoch=2)
    scene.publisher.controller_is(NO_BROKER)
    assert scene.metadata.current.controller == NO_BROKER
    scene.publisher.controller_is(9)
    assert scene.metadata.current.controller == NO_BROKER, "no such broker is known"
    scene.publisher.controller_is(CONTROLLER)
    assert scene.metadata.current.controller == CONTROLLER
    assert scene.followed[-1] is scene.metadata.current


@scenario
async def test_what_was_answered_to_be_deleted_stays_so_without_power(scene: Scene) -> None:
    await scene.lead(0)
    scene.replicas.get("t", 0).log.append_as_leader(batch(), 0, scene.host.clock.now_ms())
    stops = StopReplicaTopicState("t", (StopReplicaPartitionState(0, 0, True),))
    assert await scene.publish(StopReplicaRequest(CONTROLLER, 1, (stops,), EPOCH)) is OK
    assert scene.hosted == set()
    await scene.host.lose_power()
    logs = await scene.host.start()
    assert TopicPartition("t", 0) not in logs.logs
