"""A broker that consists only of its registration and its responses to the controller.

    async with ControlledPeer(ensemble, 2) as peer:
        ...
        peer.told(LeaderAndIsrRequest)      the controller's requests so far
        peer.errors["t", 0] = ErrorCode.kafka_storage_error
        peer.may_answer.clear()             it sends no response until this is set

It listens at the address of the broker, so an open connection proves it alive.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Self, TypeVar

from kserver import znodes
from kserver.errors import ErrorCode
from kserver.model import BrokerId, Endpoint
from kserver.wire import codec
from kserver.wire.codec import versions_of
from kserver.wire.control import (
    ANSWERS,
    ControlMessage,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    write_control,
)
from kserver.world.zookeeper import Create, Delete
from tests.support.scripted_broker import ScriptedBroker
from tests.support.zookeeper import SimEnsemble

R = TypeVar("R", bound=ControlMessage)

REQUESTS = {request.api_key: request for request in ANSWERS}
PORTS = itertools.count(10_000)


class ControlledPeer(ScriptedBroker):
    def __init__(self, ensemble: SimEnsemble, id_: BrokerId) -> None:
        super().__init__(ensemble.loop, f"peer-{id_}", next(PORTS), id_)
        self.zookeeper = ensemble.client()
        self.ensemble = ensemble
        self.errors: dict[tuple[str, int], ErrorCode] = {}
        """Its errors for partitions, in responses to LeaderAndIsr and StopReplica."""
        self.refuses = ErrorCode.none
        """The top-level error of its StopReplica responses."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.answered: list[ControlMessage] = []
        for key in REQUESTS:
            self.versions[key] = versions_of(key)

    async def __aenter__(self) -> Self:
        await self.start()
        await self.zookeeper.start()
        await self.register()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.zookeeper.close()
        self.stop()

    @property
    def epoch(self) -> int:
        """Return the broker epoch of its registration."""
        return self.ensemble.tree.nodes[znodes.broker_path(self.id)].stat.czxid

    async def register(self) -> None:
        path = znodes.broker_path(self.id)
        await self.zookeeper.create(path, self._data(), ephemeral=True, make_parents=True)

    async def unregister(self) -> None:
        await self.zookeeper.delete(znodes.broker_path(self.id))

    async def register_again(self) -> None:
        """Register again as a restarted broker, so quickly that its absence goes unnoticed."""
        path = znodes.broker_path(self.id)
        await self.zookeeper.multi([Delete(path), Create(path, self._data(), ephemeral=True)])

    async def move(self) -> None:
        """Listen on another port from now on, with the same registration."""
        self.stop()
        self.port = next(PORTS)
        await self.start()
        await self.zookeeper.set(znodes.broker_path(self.id), self._data())

    def _data(self) -> bytes:
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", self.name, self.port)
        return znodes.encode_broker(znodes.BrokerRegistration(self.id, (endpoint,), 0))

    def told(self, kind: type[R]) -> list[R]:
        """Return the controller's requests of a kind, in order, answered or not."""
        return [request for request in self.requests if isinstance(request, kind)]

    async def answer(self, header: codec.RequestHeader, request: Any) -> bytes | None:
        if not isinstance(request, ControlMessage):
            return await super().answer(header, request)
        self.requests.append(request)
        await self.may_answer.wait()
        self.answered.append(request)
        answer = self._answer(request)
        key, version, correlation_id, _ = header
        return write_control(key, version, correlation_id, answer)

    def read_request(self, header: codec.RequestHeader, frame: memoryview, at: int) -> Any:
        kind = REQUESTS.get(header.api_key)
        if kind is None:
            return super().read_request(header, frame, at)
        return kind.decode(header.api_version, frame[at:])

    def _answer(self, request: ControlMessage) -> ControlMessage:
        if isinstance(request, LeaderAndIsrRequest):
            topics = tuple(
                LeaderAndIsrTopicError(
                    tuple(
                        LeaderAndIsrPartitionError(
                            p.partition_index, self._error(t.topic_name, p.partition_index)
                        )
                        for p in t.partition_states
                    ),
                    topic_id=t.topic_id,
                )
                for t in request.topic_states
            )
            return LeaderAndIsrResponse(ErrorCode.none, topics)
        if isinstance(request, StopReplicaRequest):
            errors = tuple(
                StopReplicaPartitionError(
                    t.topic_name, p.partition_index, self._error(t.topic_name, p.partition_index)
                )
                for t in request.topic_states
                for p in t.partition_states
            )
            return StopReplicaResponse(self.refuses, errors)
        assert isinstance(request, UpdateMetadataRequest)
        return UpdateMetadataResponse(ErrorCode.none)

    def _error(self, topic: str, partition: int) -> ErrorCode:
        return self.errors.get((topic, partition), ErrorCode.none)
