"""A broker without logs and listeners, as ZooKeeper and the controller see it."""

import asyncio
import contextlib
from dataclasses import replace

from kserver.broker.registration import Registration, cluster_id
from kserver.cluster_config.config_manager import ConfigManager
from kserver.cluster_config.znode_store import make_persistent
from kserver.controller.controller import Controller
from kserver.errors import ErrorCode
from kserver.log.manager import LogManager
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import Endpoint
from kserver.wire.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092)


class ControlledBroker:
    def __init__(self, world, config, broker_id=1):
        self.world = world
        self.zookeeper = world.zookeeper
        self.metadata = MetadataCache(ClusterMetadata(""))
        self.told = []
        """Images after each change of configs."""
        self.requests = []
        """The controller's requests to this broker."""
        self.registration = Registration(
            world, config, broker_id, [ENDPOINT], LogManager(world, config)
        )
        self.configs = ConfigManager(
            world.zookeeper,
            self.metadata,
            lambda: config,
            broker_id,
            lambda image, _topics: self.told.append(image),
        )
        self.controller = Controller(
            world,
            self.configs,
            lambda: config,
            broker_id,
            self._publish,
            self.registration.registered,
            self._known,
            lambda: max((r.controller_epoch for r in self.requests), default=0),
        )

    def _known(self, controller):
        self.metadata.update(replace(self.metadata.current, controller=controller))

    async def _publish(self, request):
        self.requests.append(request)
        if isinstance(request, UpdateMetadataRequest):
            names = {topic.topic_name: topic.topic_id for topic in request.topic_states}
            await self.configs.learn(names)
            self.metadata.update(self.metadata.current.updated(request, self.configs.topics))
            self.configs.forget(names.keys() - self.topics.keys())
            return UpdateMetadataResponse(ErrorCode.none)
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(ErrorCode.none)
        return StopReplicaResponse(ErrorCode.none)

    async def __aenter__(self):
        await self.zookeeper.start()
        await make_persistent(self.zookeeper)
        cluster = await cluster_id(self.zookeeper, self.world.random)
        self.metadata.update(replace(self.metadata.current, cluster_id=cluster))
        await self._listen()
        await self.registration.register()
        await self.configs.load()
        await self.controller.start()
        self.requests.clear()
        self.told.clear()
        parts = (self.registration, self.configs, self.controller)
        self._running = [asyncio.create_task(part.run()) for part in parts]
        return self

    async def _listen(self):
        """Listen at the advertised address, and answer nothing, from which nothing can be
        concluded.
        """
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().create_server(
                asyncio.Protocol, ENDPOINT.host, ENDPOINT.port
            )

    async def __aexit__(self, *error):
        await self._stop()
        await self.zookeeper.close()

    async def _stop(self):
        for part in self._running:
            part.cancel()
        await asyncio.wait(self._running)

    async def until_active(self):
        """Wait until this controller is active: a session that a crash left may still hold
        /controller.
        """
        while not self.controller.is_active:
            await asyncio.sleep(0.1)

    async def kill(self):
        self.zookeeper.kill()
        await self._stop()

    @property
    def said(self):
        """Return the kind and topics of each request."""
        return [
            (type(r).__name__.removesuffix("Request"), {t.topic_name for t in r.topic_states})
            for r in self.requests
        ]

    @property
    def topics(self):
        return self.metadata.current.topics
